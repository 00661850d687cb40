//! Access to a machine's door: refused without the nonce, for other users, and from inside.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command as HostCommand,
    sync::Arc,
    time::Duration,
};

use sandbar_clients::UnixLocal;
use sandbar_guest::protocol::{DOOR, Knock, VERSION, Wish};
use sandbar_machine::{
    Access, Command, Demand, Machine, MachineHandle, MachineSpec, Network, Output, SandboxClient, Workspace,
    conformance::as_ordinary_user_with,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::bench::{Bench, PART, PLACE, detached, nonce, printed, runs, said_by, soon};

#[tokio::test]
async fn the_wrong_nonce_finds_and_ends_nothing() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let mut wrong = handle.clone();
    wrong.state["nonce"] = "0".repeat(32).into();
    assert!(soon(bench.client().attach(&wrong)).await.expect("attach").is_none());
    soon(bench.client().delete(&wrong)).await.expect("there is no such machine");
    // A client that sends nothing does not block others.
    let door = bench.machines()[0].join(DOOR);
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(UnixStream::connect(&door).await.expect("connect"));
    }
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
    assert_eq!(printed(&*machine, "echo $DECLARED").await, "remembered\n");
    soon(machine.stop()).await.expect("stop");
}

/// Attaches as soon as the machine has noticed that earlier clients are gone.
async fn once_there_is_room(bench: &Bench, handle: &MachineHandle) -> Arc<dyn Machine> {
    soon(async {
        loop {
            match bench.client().attach(handle).await {
                Ok(machine) => return machine.expect("it lives"),
                Err(error) => assert_eq!(error.code(), "exhausted", "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_machine_has_only_so_many_holders_and_says_so() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let mut holders = Vec::new();
    let refused = loop {
        match soon(bench.client().attach(&handle)).await {
            Ok(machine) => holders.push(machine.expect("it lives")),
            Err(error) => break error,
        }
        assert!(holders.len() < 1000, "there is no limit");
    };
    assert_eq!(refused.code(), "exhausted", "{refused}");
    assert!(holders.len() >= 64, "{}", holders.len());
    for machine in [&holders[0], &holders[holders.len() - 1]] {
        assert_eq!(printed(&**machine, "echo $DECLARED").await, "remembered\n");
    }
    holders.clear();
    // Background processes of earlier clients, with their output still open, do not block new clients.
    for _ in 0..150 {
        let machine = once_there_is_room(&bench, &handle).await;
        let mut process =
            soon(machine.spawn(Command::new(["sh", "-c", "sleep 1000 & echo left"]))).await.expect("spawn");
        assert!(matches!(soon(process.output.recv()).await, Some(Ok(Output::Stdout(_)))));
        // After the exit of its command, nothing more is killed when this client goes.
        assert!(matches!(soon(process.output.recv()).await, Some(Ok(Output::Exit(_)))));
    }
    let again = once_there_is_room(&bench, &handle).await;
    assert!(
        printed(&*again, "cat /proc/[0-9]*/comm | grep -c sleep")
            .await
            .trim()
            .parse::<u32>()
            .is_ok_and(|left| left > 100)
    );
    soon(again.stop()).await.expect("stop");
}

#[tokio::test]
async fn a_holder_that_talks_nonsense_loses_only_its_own_connection() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
    for nonsense in [vec![0xff; 100], [5, 0, 0, 0, 1, 0, 0, 0, 200, 1, 2, 3, 4, 5].to_vec()] {
        let mut stream = UnixStream::connect(bench.machines()[0].join(DOOR)).await.expect("connect");
        stream.write_all(&Knock::new(Wish::Attach, nonce(&handle)).encode()).await.expect("knock");
        stream.write_all(&nonsense).await.expect("write");
        let mut told = Vec::new();
        // The machine may close the connection with unread data, which is a reset.
        let _reset = soon(stream.read_to_end(&mut told)).await;
        assert!(!told.is_empty());
        assert_eq!(printed(&*machine, "echo $DECLARED").await, "remembered\n");
    }
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn another_user_can_neither_attach_nor_end_a_machine() {
    if !rustix::process::geteuid().is_root() {
        // Only root can act as another user.
        return;
    }
    let bench = Bench::new();
    let (handle, processes) = bench.create().await;
    bench.save(&handle);
    let machine = bench.machines().remove(0);
    fs::write(bench.0.path().join("door"), machine.join(DOOR).to_str().expect("text")).expect("write");
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
    open(bench.0.path(), 0o755);
    let play = |part: &str| {
        let variables = [(PART, part.as_ref()), (PLACE, bench.0.path().as_os_str())];
        as_ordinary_user_with(&["--exact", "part", "--nocapture"], &variables);
    };
    play("intrude");
    // Even if the directories were open and the nonce were known.
    open(&bench.state(), 0o755);
    open(&machine, 0o755);
    open(&machine.join(DOOR), 0o777);
    play("knock");
    assert!(runs(processes.supervisor) && runs(processes.guest));
    open(&machine, 0o700);
    soon(bench.client().delete(&bench.saved())).await.expect("delete");
    processes.are_gone().await;
}

/// Looks for the door by its path, through every process, and for any socket; prints what it reached.
const BURGLAR: &str = r#"
import glob, os, socket, stat, sys
door, tried = sys.argv[1], set()
tried.update([door, os.path.basename(door)])
for root in glob.glob("/proc/*/root") + glob.glob("/proc/*/cwd") + glob.glob("/proc/*/fd/*"):
    tried.update([root + door, root + "/" + os.path.basename(door)])
for top in ("/home", "/tmp", "/run", "/var", "/workspace", "/dev/shm"):
    for place, _, names in os.walk(top):
        for name in names:
            path = os.path.join(place, name)
            try:
                if stat.S_ISSOCK(os.lstat(path).st_mode) and name == "door":
                    tried.add(path)
            except OSError:
                pass
reached = []
for path in tried:
    for name in (path, "\0" + path):
        try:
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(5)
            s.connect(name)
            reached.append(path)
        except OSError:
            pass
print(len(tried), "reached" if reached else "nothing")
"#;

#[tokio::test]
async fn nothing_inside_a_machine_reaches_its_door() {
    let bench = Bench::new();
    for (isolation, network) in
        [(Demand::Full, Network::Off), (Demand::Full, Network::Host), (Demand::Landlock, Network::Off)]
    {
        let spec = detached().isolation(isolation).network(network);
        let machine = soon(bench.client().create(spec)).await.expect("create");
        let door = bench.machines()[0].join(DOOR);
        let argv = ["python3", "-c", BURGLAR, door.to_str().expect("text")];
        let control = HostCommand::new(argv[0]).args(&argv[1..]).output().expect("python3");
        assert!(String::from_utf8_lossy(&control.stdout).contains("reached"), "on the host it is reached");
        let said = said_by(&*machine, Command::new(argv)).await;
        assert!(said.contains("nothing"), "{said}");
        soon(machine.stop()).await.expect("stop");
    }
}

/// Sends a request with a nonce, as a client does; prints the length of the answer.
const VISITOR: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.settimeout(50)
s.connect(sys.argv[1])
s.sendall(int(sys.argv[3]).to_bytes(4, "little") + b"\0" + bytes.fromhex(sys.argv[2]))
told = b""
while len(told) < 100 and (more := s.recv(100 - len(told))):
    told += more
print("told", len(told))
"#;

#[tokio::test]
async fn a_machine_that_is_shown_the_door_of_another_is_not_let_in() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let door = bench.machines()[0].join(DOOR);
    let known = handle.state["nonce"].as_str().expect("a nonce").to_owned();
    let knock =
        |path: &str, nonce: &str| ["python3", "-c", VISITOR, path, nonce, &VERSION.to_string()].map(str::to_owned);
    let argv = knock(door.to_str().expect("text"), &known);
    let control = HostCommand::new(&argv[0]).args(&argv[1..]).output().expect("python3");
    assert!(String::from_utf8_lossy(&control.stdout).contains("told 100"), "on the host the nonce is all it takes");
    let workspace = Workspace::Host { path: bench.state(), access: Access::ReadOnly };
    let other = soon(UnixLocal::new().create(MachineSpec::default().workspace(workspace))).await;
    let other = other.expect("what is shown is shown");
    let inside = Path::new("/workspace").join(door.strip_prefix(bench.state()).expect("inside"));
    let script = "exec python3 -c \"$0\" \"$@\" 2>&1";
    let guessed = knock(inside.to_str().expect("text"), &"0".repeat(32));
    let command = ["sh", "-c", script].map(str::to_owned).into_iter().chain(guessed.into_iter().skip(2));
    let said = said_by(&*other, Command::new(command)).await;
    assert!(said.contains("told 0") || said.contains("Error"), "{said}");
    assert!(!said.contains("No such file"), "it was not even shown: {said}");
    soon(other.stop()).await.expect("stop");
    soon(bench.client().delete(&handle)).await.expect("delete");
}

#[tokio::test]
async fn a_machine_is_never_shown_the_directory_of_its_own_door() {
    let bench = Bench::new();
    for path in [bench.0.path().to_owned(), "/tmp".into()] {
        let workspace = Workspace::Host { path, access: Access::ReadOnly };
        let refused = soon(bench.client().create(detached().workspace(workspace))).await;
        let refused = refused.map(drop).expect_err("it would see its door");
        assert!(refused.to_string().contains("door"), "{refused}");
    }
    assert_eq!(bench.machines(), Vec::<PathBuf>::new());
}
