//! Hosts where AppArmor gives user namespaces no capabilities: the report, and the profile of `doctor --fix`.
//!
//! The kernel that runs the tests need not have AppArmor. Its switch is put into a mount namespace's `/proc`; a filter
//! refuses the first thing that takes powers in a user namespace, as AppArmor would. The loader is a script.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf};

use super::rig::{Run, Sandbar, finish};

const POWERLESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/without_host_names.py");

/// A host on which the switch has a value, with an empty directory of profiles and a loader.
struct Host {
    sandbar: Sandbar,
    script: String,
}

/// What the loader does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loader {
    Absent,
    Loads,
    Refuses,
}

impl Host {
    fn new(sandbar: Sandbar, switch: u8, loader: Loader) -> Self {
        let dir = sandbar.dir().to_owned();
        let (profiles, layers) = (dir.join("profiles"), dir.join("layers"));
        for dir in [&profiles, &layers] {
            fs::create_dir(dir).expect("create");
        }
        let program = dir.join("loader");
        let end = if loader == Loader::Refuses { "echo no such abi >&2; exit 1" } else { "exit 0" };
        fs::write(&program, format!("#!/bin/sh\necho \"$@\" > {}/loaded\n{end}\n", dir.display())).expect("write");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("chmod");
        // Root may have the real one.
        let place = match loader {
            Loader::Absent => "mount -t tmpfs none /usr/sbin".to_owned(),
            _ => format!("mount -t tmpfs none /usr/sbin && cp {} /usr/sbin/apparmor_parser", program.display()),
        };
        let script = format!(
            "set -e; mount -t tmpfs none /proc/sys/kernel; \
             echo {switch} > /proc/sys/kernel/apparmor_restrict_unprivileged_userns; \
             mount -t tmpfs none {0}; mkdir {0}/upper {0}/work; \
             mount -t overlay -o lowerdir=/etc,upperdir={0}/upper,workdir={0}/work none /etc; \
             mkdir -p /etc/apparmor.d; mount --bind {1} /etc/apparmor.d; \
             {place}; exec python3 {POWERLESS} \"$@\"",
            layers.display(),
            profiles.display(),
        );
        Self { sandbar, script }
    }

    fn run(&self, args: &[&str]) -> Run {
        let mut command = self.sandbar.behind(&["unshare", "--mount", "sh", "-c", &self.script, "sh"], args);
        finish(command.spawn().expect("spawn"))
    }

    fn profile(&self) -> PathBuf {
        self.sandbar.dir().join("profiles/sandbar")
    }

    /// What the loader was called with.
    fn loaded(&self) -> Option<String> {
        fs::read_to_string(self.sandbar.dir().join("loaded")).ok()
    }

    /// Everything in the directory of profiles.
    fn profiles(&self) -> usize {
        fs::read_dir(self.sandbar.dir().join("profiles")).expect("list").count()
    }
}

#[test]
fn a_refusal_is_explained_if_apparmor_restricts_user_namespaces() {
    let host = Host::new(Sandbar::unprivileged(), 1, Loader::Loads);
    let refused = host.run(&["exec", "--", "echo", "ran"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    for words in ["AppArmor restricts", "sandbar doctor --fix", "apparmor_restrict_unprivileged_userns=0"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let doctor = host.run(&["doctor"]);
    for words in [
        "refuses to run",
        "apparmor  gives programs without a profile user namespaces",
        "to fix",
        "sandbar doctor --fix",
    ] {
        assert!(doctor.stdout.contains(words), "{words}: {doctor:?}");
    }
    let unrestricted = Host::new(Sandbar::unprivileged(), 0, Loader::Loads);
    let other = unrestricted.run(&["exec", "--", "echo", "ran"]);
    assert!(other.code == 125 && !other.stderr.contains("AppArmor"), "{other:?}");
}

#[test]
fn an_ordinary_user_is_shown_the_profile_and_how_root_installs_it() {
    let host = Host::new(Sandbar::unprivileged(), 1, Loader::Loads);
    let shown = host.run(&["doctor", "--fix", "--yes"]);
    let program = host.sandbar.dir().join("program").display().to_string();
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(shown.stdout.contains(&format!("profile sandbar \"{program}\" flags=(unconfined) {{")), "{shown:?}");
    assert!(
        shown.stdout.contains("Caution") && shown.stderr.contains(&format!("sudo {program} doctor --fix")),
        "{shown:?}"
    );
    assert_eq!((host.profiles(), host.loaded()), (0, None));
}

#[test]
fn root_installs_and_loads_the_profile_after_consent() {
    let host = Host::new(Sandbar::own(), 1, Loader::Loads);
    let unasked = host.run(&["doctor", "--fix"]);
    assert_eq!((unasked.code, host.profiles(), host.loaded()), (3, 0, None), "{unasked:?}");
    assert!(unasked.stderr.contains("--yes"), "{unasked:?}");
    let document = host.run(&["doctor", "--fix", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&document.stdout).expect("json");
    assert_eq!(
        (document["status"].as_str(), document["file"].as_str()),
        (Some("needs_consent"), Some("/etc/apparmor.d/sandbar"))
    );
    let done = host.run(&["doctor", "--fix", "--yes"]);
    assert_eq!((done.code, host.profiles()), (0, 1), "{done:?}");
    let text = fs::read_to_string(host.profile()).expect("the profile");
    assert!(text.contains("userns,") && Some(text.as_str()) == document["profile"].as_str(), "{text}");
    assert_eq!(host.loaded().as_deref(), Some("--replace /etc/apparmor.d/sandbar\n"));
}

#[test]
fn a_profile_that_cannot_be_loaded_restores_the_previous_one() {
    let missing = Host::new(Sandbar::own(), 1, Loader::Absent);
    let run = missing.run(&["doctor", "--fix", "--yes"]);
    assert!(run.code == 1 && run.stderr.contains("install the package `apparmor`"), "{run:?}");
    assert_eq!(missing.profiles(), 0);

    let refusing = Host::new(Sandbar::own(), 1, Loader::Refuses);
    let run = refusing.run(&["doctor", "--fix", "--yes"]);
    assert!(run.code == 1 && run.stderr.contains("no such abi"), "{run:?}");
    assert!(refusing.loaded().is_some() && refusing.profiles() == 0);
    fs::write(refusing.profile(), "an older one").expect("write");
    let run = refusing.run(&["doctor", "--fix", "--yes"]);
    assert!(run.code == 1 && run.stdout.contains("It replaces an existing"), "{run:?}");
    assert_eq!(fs::read_to_string(refusing.profile()).expect("read"), "an older one");
    assert_eq!(refusing.profiles(), 1);
}

#[test]
fn without_restrictions_no_profile_is_installed() {
    let host = Host::new(Sandbar::own(), 0, Loader::Loads);
    let run = host.run(&["doctor", "--fix", "--yes"]);
    assert_eq!((run.code, host.profiles(), host.loaded()), (0, 0, None), "{run:?}");
    assert!(run.stderr.contains("nothing to fix"), "{run:?}");
    assert_eq!(host.run(&["doctor", "--yes"]).code, 2);
}
