//! The engine these tests work on, through its own command.

use std::{collections::BTreeMap, fs::File, os::unix::net::UnixListener, path::Path, process::Command};

use rustix::fs::{FlockOperation, flock};

/// Made by `cargo xtask setup`.
pub(crate) const IMAGE: &str = "sandbar-test:busybox";

pub(crate) type Labels = BTreeMap<String, String>;

/// What the engine says to these words.
pub(crate) fn docker(words: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(words).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// One at a time, whatever process: what one test makes to be kept, another's `gc` would remove.
pub(crate) fn alone() -> File {
    let place = std::env::temp_dir().join("sandbar-test-gc");
    let file = File::options().create(true).append(true).open(place).expect("a lock");
    flock(&file, FlockOperation::LockExclusive).expect("locked");
    file
}

/// Something on the engine that goes at the end of its test, whatever happens.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
}

impl Thing {
    pub(crate) fn container(words: &[&str], labels: &Labels) -> Self {
        Self { kind: "container", name: made(words, labels, &[IMAGE, "sleep", "1000"]) }
    }

    pub(crate) fn volume(name: Option<&str>, labels: &Labels) -> Self {
        Self { kind: "volume", name: made(&["volume", "create"], labels, name.as_slice()) }
    }

    pub(crate) fn is_there(&self) -> bool {
        docker(&[self.kind, "inspect", &self.name]).is_ok()
    }
}

impl Drop for Thing {
    fn drop(&mut self) {
        let _gone_already = docker(&[self.kind, "rm", "--force", &self.name]);
    }
}

fn made(words: &[&str], labels: &Labels, rest: &[&str]) -> String {
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("--label={name}={value}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    docker(&[words, &labels, rest].concat()).expect("made")
}

/// The container of a harness, once it has one.
pub(crate) fn container_of(pid: u32) -> Option<String> {
    let found = docker(&["ps", "--quiet", "--no-trunc", "--filter", &format!("label=sandbar.pid={pid}")]);
    found.ok().filter(|found| !found.is_empty())
}

pub(crate) fn labels(container: &str) -> Labels {
    let text = docker(&["inspect", "--format", "{{json .Config.Labels}}", container]).expect("inspect");
    serde_json::from_str(&text).expect("labels")
}

/// The volumes of a container.
pub(crate) fn volumes(container: &str) -> Vec<String> {
    let each = "{{range .Mounts}}{{if eq .Type \"volume\"}}{{.Name}} {{end}}{{end}}";
    let text = docker(&["inspect", "--format", each, container]).expect("inspect");
    text.split_whitespace().map(str::to_owned).collect()
}

/// An engine that takes every question and answers none.
pub(crate) fn silent(place: &Path) -> (UnixListener, String) {
    let socket = place.join("engine.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    listener.set_nonblocking(true).expect("no waiting");
    (listener, format!("unix://{}", socket.display()))
}
