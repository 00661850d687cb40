//! Machines that outlive the process that made them, seen from several processes and several users.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Child,
    time::Duration,
};

use sandbar_clients::UnixLocal;
use sandbar_guest::protocol::{DOOR, Knock, Wish};
use sandbar_machine::{
    Access, Command, Features, HostMount, MachineHandle, MachinePath, MachineSpec, SandboxClient, collect, once,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use self::detached::bench::{
    Bench, PART, PLACE, as_ordinary_user, detached, file, hear, kill, nonce, printed, soon, until,
};

mod detached {
    pub(crate) mod bench;
    mod door;
    pub(crate) mod kept;
}

/// What other processes do in these tests; nothing, unless one of them started this.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn part() {
    let (Ok(part), Some(place)) = (std::env::var(PART), std::env::var_os(PLACE)) else { return };
    let client = UnixLocal::new().state_dir(Path::new(&place).join("state"));
    let handle = || serde_json::from_slice(&fs::read(Path::new(&place).join("handle")).expect("handle")).expect("json");
    match part.as_str() {
        "make" => {
            let machine = soon(client.create(detached())).await.expect("create");
            soon(machine.write(&file("note"), once("from another process"))).await.expect("write");
            let saved = serde_json::to_vec(&(machine.handle(), machine.features())).expect("json");
            // In one step: this process may be killed in the middle of it.
            fs::write(Path::new(&place).join("half"), saved).expect("write");
            fs::rename(Path::new(&place).join("half"), Path::new(&place).join("made")).expect("rename");
            // Neither dropped nor stopped.
            std::process::exit(0);
        }
        "hold" => {
            let machine = soon(client.attach(&handle())).await.expect("attach").expect("it lives");
            let beat = "while :; do echo x >>beat; sleep 0.05; done";
            let _process = soon(machine.spawn(Command::new(["sh", "-c", beat]))).await.expect("spawn");
            println!("holding");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        "keep" => {
            detached::kept::hold(&client, Path::new(&place)).await;
            println!("holding");
            tokio::time::sleep(Duration::from_secs(100)).await;
        }
        // The runtime ends as it does at the end of every program.
        "keep and end" => {
            detached::kept::hold(&client, Path::new(&place)).await;
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
            // The other side may hang up first.
            let _hung_up = stream.write_all(&Knock::new(Wish::End, nonce).encode()).await;
            let mut answer = Vec::new();
            let _reset = soon(stream.read_to_end(&mut answer)).await;
            assert!(answer.is_empty(), "another user was answered");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_machine_made_by_a_process_that_ended_is_found_used_and_deleted() {
    let bench = Bench::new();
    assert!(bench.play("make").wait().expect("wait").success());
    let made = fs::read(bench.0.path().join("made")).expect("a handle");
    let (handle, features): (MachineHandle, Features) = serde_json::from_slice(&made).expect("json");
    // Another client: everything it needs to know is in the handle.
    let client = UnixLocal::new();
    let one = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    let two = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    assert_eq!((one.handle(), one.features()), (handle.clone(), features));
    let bytes = soon(collect(soon(one.read(&file("note"))).await.expect("read"), 100)).await.expect("collect");
    assert_eq!(bytes, "from another process");
    let both = tokio::join!(printed(&*one, "cat note; sleep 0.2"), printed(&*two, "echo $DECLARED; sleep 0.2"));
    assert_eq!(both, ("from another process".to_owned(), "remembered\n".to_owned()));
    let processes = bench.processes().await;
    soon(client.delete(&handle)).await.expect("delete");
    processes.are_gone().await;
    assert_eq!(bench.machines(), Vec::<PathBuf>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(&bench.state().display().to_string()));
    assert!(soon(client.attach(&handle)).await.expect("attach").is_none());
}

#[tokio::test]
async fn processes_use_a_machine_side_by_side_and_a_killed_one_takes_only_its_own_with_it() {
    let bench = Bench::new();
    let (handle, processes) = bench.create().await;
    bench.save(&handle);
    let mut holder = bench.play("hold");
    hear(&mut holder, "holding");
    let runners: Vec<Child> = (0..4).map(|_| bench.play("run")).collect();
    for mut runner in runners {
        assert!(runner.wait().expect("wait").success());
    }
    holder.kill().expect("kill -9");
    holder.wait().expect("wait");
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives on");
    let size = || async { soon(machine.stat(&file("beat"))).await.expect("stat").expect("it ran").size };
    let mut sizes = vec![size().await];
    while sizes.len() < 20 && !sizes.ends_with(&[size().await; 2]) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        sizes.push(size().await);
    }
    assert!(sizes.len() < 20, "the killed process's command still runs: {sizes:?}");
    soon(machine.stop()).await.expect("stop");
    processes.are_gone().await;
    assert_eq!(bench.machines(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_maker_killed_at_any_moment_leaves_nothing_or_a_whole_machine() {
    let mut whole = 0;
    for delay in [1, 5, 10, 15, 20, 25, 30, 40, 60, 400] {
        let bench = Bench::new();
        let mut maker = bench.play("make");
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let _ended_already = maker.kill();
        maker.wait().expect("wait");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let made = bench.0.path().join("made");
        if made.exists() {
            let (handle, _): (MachineHandle, Features) =
                serde_json::from_slice(&fs::read(made).expect("read")).expect("json");
            soon(bench.client().delete(&handle)).await.expect("delete");
            whole += 1;
        } else if let Some(machine) = bench.machines().first() {
            // Nobody knows its handle; taking its door away ends it all the same. One that is just ending may be gone.
            let _gone_already = fs::remove_file(machine.join(DOOR));
        }
        until("nothing is left", || bench.machines().is_empty()).await;
    }
    assert!(whole > 0, "no maker was given enough time");
}

#[tokio::test]
async fn a_create_that_is_cancelled_leaves_nothing() {
    let bench = Bench::new();
    let client = bench.client();
    let mut cancelled = 0;
    for delay in [300, 1000, 2000, 3000, 4000, 5000, 6000, 8000, 10_000, 15_000] {
        match tokio::time::timeout(Duration::from_micros(delay), client.create(detached())).await {
            Ok(made) => soon(client.delete(&made.expect("create").handle())).await.expect("delete"),
            Err(_late) => cancelled += 1,
        }
    }
    assert!(cancelled > 0, "none was slow enough");
    until("nothing is left", || bench.machines().is_empty()).await;
}

#[tokio::test]
async fn what_a_killed_supervisor_left_is_gone_and_swept() {
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
            // One that was closed since is not kept.
            let Ok(open) = fs::read_link(fd.path()) else { continue };
            let name = open.to_string_lossy();
            let own = ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| name.starts_with(kind));
            assert!(own || name == "/dev/null" || open.starts_with(bench.state()), "{name}");
        }
    }
    soon(bench.client().delete(&handle)).await.expect("delete");
}

/// Knocks with these bytes, in hexadecimal digits, at the door whose path is given, and says how much was answered.
const KNOCK: &str = "import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(20)
s.connect(sys.argv[1])
try:
    s.sendall(bytes.fromhex(sys.argv[2]))
    print(len(s.recv(100)))
except ConnectionError:
    print(0)";

#[tokio::test]
async fn a_door_does_not_open_to_somebody_in_another_machine() {
    let bench = Bench::new();
    let (handle, _processes) = bench.create().await;
    let door = bench.machines()[0].join(DOOR);
    let knock = Knock::new(Wish::Attach, nonce(&handle)).encode();
    let knock: String = knock.iter().map(|byte| format!("{byte:02x}")).collect();
    // The same knock from outside is answered.
    let outside =
        std::process::Command::new("python3").args(["-c", KNOCK]).arg(&door).arg(&knock).output().expect("python3");
    assert_ne!(String::from_utf8_lossy(&outside.stdout), "0\n", "{outside:?}");
    let shown = MachinePath::new("/shown").expect("a path");
    let mount = HostMount { host: bench.state(), inside: shown, access: Access::ReadWrite, identity: None };
    let spec = MachineSpec { mounts: vec![mount], ..MachineSpec::default() };
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
    if rustix::process::geteuid().is_root() {
        as_ordinary_user(|command| {
            command.arg("--test-threads=2");
        });
    }
}
