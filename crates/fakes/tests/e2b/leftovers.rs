//! A server that is dropped leaves nothing behind: no process, no file, no listener.

use std::{fs, net::TcpStream};

use sandbar_fakes::e2b::{Options, Server};
use serde_json::json;

use crate::client::{api, create};

/// Whether a process with these words in its command line runs on this host.
fn runs(words: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(words))
}

#[test]
fn a_dropped_server_leaves_nothing() {
    // A command line that no other test run on this host has.
    let sleep = format!("sleep {}", 100_000_000 + std::process::id());
    let state = tempfile::tempdir().unwrap();
    let server = Server::with(Options { state_dir: Some(state.path().join("state")), ..Options::default() }).unwrap();
    let address = server.url();
    let paused = create(&server, json!({}));
    let running = create(&server, json!({}));
    let followed = [&paused, &running].map(|sandbox| {
        let process = json!({"process": {"cmd": "/bin/sh", "args": ["-c", format!("setsid {sleep} & {sleep}")]}});
        sandbox.stream("/process.Process/Start", &process).begin()
    });
    let began = std::time::Instant::now();
    while !runs(&sleep) {
        assert!(began.elapsed().as_secs() < 60, "it never runs");
    }
    assert_eq!(api(&server, "POST", &format!("/sandboxes/{}/pause", paused.id)).send().status, 204);
    drop((paused, running, followed));
    drop(server);
    assert!(!runs(&sleep));
    let left: Vec<_> = fs::read_dir(state.path().join("state")).unwrap().flatten().map(|entry| entry.path()).collect();
    let machines: Vec<_> = left.iter().filter(|path| path.is_dir()).collect();
    assert!(machines.is_empty(), "{left:?}");
    assert!(TcpStream::connect(address.trim_start_matches("http://")).is_err());
}
