//! A mount of a manifest shows the directory that was checked: a link that replaces it a moment later is not followed.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sandbar_clients::UnixLocal;
use sandbar_redteam::sys::{at, call, text};
use sandbar_sandbox::{Manifest, Mount, SandboxSession, SessionOptions};

const EXCHANGE: u64 = 2;
/// Longest wait for a swap that is delayed with the link in place.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mount_never_shows_what_a_link_leads_to() {
    let place = tempfile::tempdir().expect("a directory");
    // A directory that another sandbox can write to, and one that it cannot.
    let (shared, outside) = (place.path().join("shared"), place.path().join("outside"));
    for dir in [shared.join("d"), outside.clone()] {
        fs::create_dir_all(dir).expect("a directory");
    }
    fs::write(outside.join("secret"), "secret").expect("a file");
    symlink(&outside, shared.join("l")).expect("a link");
    let stop = Arc::new(AtomicBool::new(false));
    let swapping = thread::spawn({
        let (stop, here) = (stop.clone(), libc::AT_FDCWD as u64);
        let [one, other] = ["d", "l"].map(|name| text(&shared.join(name).display().to_string()));
        move || {
            while !stop.load(Ordering::Relaxed) {
                call(libc::SYS_renameat2, [here, at(&one), here, at(&other), EXCHANGE]).expect("swapped");
            }
        }
    });
    let client = Arc::new(UnixLocal::new().state_dir(place.path().join("state")));
    let (start, mut opened, mut reached, mut refused) = (Instant::now(), 0, 0, 0);
    while opened < 50 && (refused < 5000 || opened == 0 && start.elapsed() < SOON) {
        let manifest = Manifest::new().mount("m", Mount::new("d")).base_dir(&shared);
        let Ok(session) = SandboxSession::open(client.clone(), SessionOptions::new(manifest)).await else {
            refused += 1;
            continue;
        };
        opened += 1;
        reached += usize::from(session.read("m/secret").await.is_ok());
        session.delete().await.expect("delete");
    }
    stop.store(true, Ordering::Relaxed);
    swapping.join().expect("it stops");
    assert!(opened > 0, "nothing began, so nothing was raced");
    assert_eq!(reached, 0, "of {opened} sessions, {reached} were shown a directory that is not mounted");
}
