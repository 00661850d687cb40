//! Machines that outlive the process that created them, used by several processes and several users.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use sandbar_clients::UnixLocal;
use sandbar_guest::protocol::{DOOR, Knock, Wish};
use sandbar_machine::{
    Access, Command, HostMount, MachinePath, MachineSpec, SandboxClient, conformance::as_ordinary_user, once,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use self::detached::bench::{Bench, PART, PLACE, detached, file, kill, nonce, player, printed, soon};

mod detached {
    pub(crate) mod bench;
    mod both;
    mod door;
    pub(crate) mod kept;
}
#[path = "docker/bench.rs"]
mod docker;

/// The work of other processes in these tests; does nothing unless a test started this process for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part() {
    let (Ok(part), Some(place)) = (std::env::var(PART), std::env::var_os(PLACE)) else { return };
    let client = player(Path::new(&place));
    let handle = || serde_json::from_slice(&fs::read(Path::new(&place).join("handle")).expect("handle")).expect("json");
    match part.as_str() {
        "make" => {
            let machine = soon(client.create(detached())).await.expect("create");
            soon(machine.write(&file("note"), once("from another process"))).await.expect("write");
            let saved = serde_json::to_vec(&(machine.handle(), machine.features())).expect("json");
            // In one step, because this process may be killed at any moment.
            fs::write(Path::new(&place).join("half"), saved).expect("write");
            fs::rename(Path::new(&place).join("half"), Path::new(&place).join("made")).expect("rename");
            // The machine is neither dropped nor stopped.
            std::process::exit(0);
        }
        "stay" => {
            let machine = soon(client.create(detached())).await.expect("create");
            let saved = serde_json::to_vec(&machine.handle()).expect("json");
            fs::write(Path::new(&place).join("handle"), saved).expect("write");
            println!("staying");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        "hold" => {
            let machine = soon(client.attach(&handle())).await.expect("attach").expect("it lives");
            let beat = "while :; do echo x >>beat; sleep 0.05; done";
            let _process = soon(machine.spawn(Command::new(["sh", "-c", beat]))).await.expect("spawn");
            soon(async { while machine.stat(&file("beat")).await.expect("stat").is_none() {} }).await;
            println!("holding");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        "keep" => {
            detached::kept::hold(client.as_ref(), Path::new(&place)).await;
            println!("holding");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        // The runtime ends as at the end of every program.
        "keep and end" => {
            detached::kept::hold(client.as_ref(), Path::new(&place)).await;
            println!("holding");
        }
        "run" => {
            let machine = soon(client.attach(&handle())).await.expect("attach").expect("it lives");
            for turn in 0..10 {
                assert_eq!(printed(&*machine, &format!("echo {turn} $DECLARED")).await, format!("{turn} remembered\n"));
            }
        }
        "intrude" => {
            let refused = soon(client.attach(&handle())).await.map(drop).expect_err("of another user");
            assert_eq!(refused.code(), "invalid");
            assert!(refused.to_string().contains("another user"), "{refused}");
            let refused = soon(client.delete(&handle())).await.expect_err("of another user");
            assert_eq!(refused.code(), "invalid");
        }
        "knock" => {
            let door = fs::read_to_string(Path::new(&place).join("door")).expect("the door");
            let mut stream = soon(UnixStream::connect(door)).await.expect("its directory was opened to all");
            let nonce = nonce(&handle());
            // The other side may close the connection first.
            let _hung_up = stream.write_all(&Knock::new(Wish::End, nonce).encode()).await;
            let mut answer = Vec::new();
            let _reset = soon(stream.read_to_end(&mut answer)).await;
            assert!(answer.is_empty(), "another user was answered");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn leftovers_of_a_killed_supervisor_are_swept() {
    let bench = Bench::new();
    for wish in [Wish::Attach, Wish::End] {
        let (handle, processes) = bench.create().await;
        kill(processes.supervisor);
        processes.are_gone().await;
        assert_eq!(bench.machines().len(), 1, "its directory is still there");
        match wish {
            Wish::Attach => assert!(soon(bench.client().attach(&handle)).await.expect("attach").is_none()),
            Wish::End => soon(bench.client().delete(&handle)).await.expect("delete"),
        }
        assert_eq!(bench.machines(), Vec::<PathBuf>::new());
    }
}

#[tokio::test]
async fn a_changed_handle_removes_nothing() {
    let bench = Bench::new();
    let (mut handle, _) = bench.create().await;
    let whole = handle.clone();
    let precious = bench.0.path().join("precious");
    let kept = ["0123456789abcdef/home", "fedcba9876543210/file"].map(|name| precious.join(name));
    for dir in &kept {
        fs::create_dir_all(dir).expect("a directory");
    }
    handle.state["dir"] = precious.to_str().expect("text").into();
    handle.state["id"] = "0123456789abcdef".into();
    assert!(soon(bench.client().attach(&handle)).await.expect("attach").is_none());
    let error = soon(bench.client().delete(&handle)).await.expect_err("it is no machine");
    assert_eq!(error.code(), "invalid");
    assert!(error.to_string().contains("precious/0123456789abcdef"), "{error}");
    assert!(kept.iter().all(|dir| dir.exists()));
    soon(bench.client().delete(&whole)).await.expect("delete");
    assert_eq!(bench.machines(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_machine_whose_directory_is_removed_by_hand_ends() {
    let bench = Bench::new();
    let (handle, processes) = bench.create().await;
    fs::remove_dir_all(&bench.machines()[0]).expect("rm -rf");
    processes.are_gone().await;
    assert!(soon(bench.client().attach(&handle)).await.expect("attach").is_none());
}

#[tokio::test]
async fn the_supervisor_keeps_nothing_of_its_maker() {
    let bench = Bench::new();
    let (handle, processes) = bench.create().await;
    let stat = fs::read_to_string(format!("/proc/{}/stat", processes.supervisor)).expect("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    assert_eq!(fields[3], processes.supervisor.to_string(), "a session of its own");
    assert_eq!(fields[4], "0", "no terminal");
    if rustix::process::geteuid().is_root() {
        assert_eq!(fs::read_link(format!("/proc/{}/cwd", processes.supervisor)).expect("cwd"), Path::new("/"));
        for fd in fs::read_dir(format!("/proc/{}/fd", processes.supervisor)).expect("fds").flatten() {
            // A descriptor that was closed meanwhile is skipped.
            let Ok(open) = fs::read_link(fd.path()) else { continue };
            let name = open.to_string_lossy();
            let own = ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| name.starts_with(kind));
            assert!(own || name == "/dev/null" || open.starts_with(bench.state()), "{name}");
        }
    }
    soon(bench.client().delete(&handle)).await.expect("delete");
}

/// Sends these bytes, given as hexadecimal digits, to the door at this path, and prints the length of the answer.
const KNOCK: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(50)
s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    print(len(s.recv(100)))
except ConnectionError:
    print(0)";

#[tokio::test]
async fn a_door_does_not_open_to_a_command_in_another_machine() {
    let bench = Bench::new();
    let (handle, _processes) = bench.create().await;
    let door = bench.machines()[0].join(DOOR);
    let knock = Knock::new(Wish::Attach, nonce(&handle)).encode();
    let knock: String = knock.iter().map(|byte| format!("{byte:02x}")).collect();
    // The same request from outside is answered.
    let outside =
        std::process::Command::new("python3").args(["-c", KNOCK]).arg(&door).arg(&knock).output().expect("python3");
    assert_ne!(String::from_utf8_lossy(&outside.stdout), "0\n", "{outside:?}");
    let shown = MachinePath::new("/shown").expect("a path");
    let mount = HostMount { host: bench.state(), inside: shown, access: Access::ReadWrite, identity: None };
    let spec = MachineSpec::default().mounts([mount]);
    let other = soon(UnixLocal::new().create(spec)).await.expect("create");
    let inside = format!("/shown/{}/{DOOR}", door.parent().and_then(Path::file_name).expect("a name").display());
    let script = format!("python3 -c '{KNOCK}' {inside} {knock} 2>&1 | tail -1");
    let answer = printed(&*other, &script).await;
    assert!(answer == "0\n" || answer.contains("PermissionError"), "{answer}");
    soon(other.stop()).await.expect("stop");
    soon(bench.client().delete(&handle)).await.expect("delete");
}

#[test]
fn an_ordinary_user_has_the_same_machines() {
    as_ordinary_user(&["--test-threads=2"]);
}
