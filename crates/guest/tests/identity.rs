//! A host path that leads to another file than when it was checked: no machine starts, at any level, and the error
//! names the path.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    fs,
    io::{Read, Write},
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use sandbar_guest::protocol::{BootFailure, HostPath, Launch, LaunchMount, Level, VERSION};

/// The supervisor's failure, or `None` if the guest sent its hello.
fn boot(launch: &Launch) -> Option<BootFailure> {
    let (mut leash, their_leash) = UnixStream::pair().expect("socket pair");
    let (mut control, their_control) = UnixStream::pair().expect("socket pair");
    for stream in [&leash, &control] {
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
    }
    let mut supervisor = Command::new(env!("CARGO_BIN_EXE_sandbar-guest"))
        .arg("supervise")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(their_leash)))
        .stdout(Stdio::from(OwnedFd::from(their_control)))
        .stderr(Stdio::null())
        .spawn()
        .expect("start the supervisor");
    let message = launch.encode();
    leash.write_all(&(message.len() as u32).to_le_bytes()).expect("launch");
    leash.write_all(&message).expect("launch");
    let started = control.read_exact(&mut [0; 9]).is_ok();
    drop(control);
    let mut words = Vec::new();
    leash.read_to_end(&mut words).expect("the supervisor ends in time");
    supervisor.wait().expect("wait");
    if started { None } else { Some(BootFailure::decode(&words).expect("a reason")) }
}

fn seen(path: &Path) -> HostPath {
    let path = path.canonicalize().expect("a path");
    let found = fs::metadata(&path).expect("metadata");
    HostPath { path: path.as_os_str().as_bytes().to_vec(), device: found.dev(), inode: found.ino() }
}

fn machine(dir: &Path, level: Level) -> Launch {
    Launch {
        version: VERSION,
        level,
        state: dir.join("state").as_os_str().as_bytes().to_vec(),
        id: b"machine".to_vec(),
        tmp_bytes: 1 << 20,
        pids: 64,
        open_files: 256,
        ..Launch::default()
    }
}

fn scratch() -> PathBuf {
    let dir = std::env::temp_dir().join(format!("sandbar-identity-{}", std::process::id()));
    for place in ["state", "judged", "other"] {
        fs::create_dir_all(dir.join(place)).expect("a directory");
    }
    dir.canonicalize().expect("a path")
}

#[test]
fn what_is_shown_is_what_was_judged_at_every_level() {
    let dir = scratch();
    let judged = seen(&dir.join("judged"));
    let swapped = HostPath { path: seen(&dir.join("other")).path, ..judged.clone() };
    std::os::unix::fs::symlink("judged", dir.join("link")).expect("a link");
    let linked = HostPath { path: dir.join("link").as_os_str().as_bytes().to_vec(), ..judged.clone() };
    let elsewhere = HostPath { device: judged.device ^ 1, ..judged.clone() };
    for level in [Level::Full, Level::Landlock, Level::None] {
        for (host, held) in [(&judged, true), (&swapped, false), (&linked, false), (&elsewhere, false)] {
            let workspace = Launch { workspace: Some((host.clone(), true)), ..machine(&dir, level) };
            let mount = LaunchMount { host: host.clone(), inside: host.path.clone(), writable: false };
            let mount = Launch { mounts: vec![mount], ..machine(&dir, level) };
            let rootfs = Launch { rootfs: Some(host.clone()), ..machine(&dir, level) };
            let mut launches = vec![workspace, mount];
            if level == Level::Full {
                launches.push(rootfs);
            }
            for launch in launches {
                match (boot(&launch), held) {
                    (None, true) => {}
                    (Some(failure), false) => {
                        let path = String::from_utf8_lossy(&host.path).into_owned();
                        assert!(failure.stage.contains(&format!("{path} inside: it changed")), "{failure:?}");
                        assert_eq!((failure.errno, failure.missing.as_str()), (libc::ESTALE, ""), "{failure:?}");
                    }
                    (found, _) => unreachable!("{level:?} {launch:?}: {found:?}"),
                }
                assert_eq!(fs::read_dir(dir.join("state")).expect("state").count(), 0, "nothing is left");
            }
        }
    }
    fs::remove_dir_all(dir).expect("clean up");
}
