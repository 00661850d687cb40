//! Commands that survive their client, which was killed or ended regularly, and leases.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use sandbar_machine::{
    Access, Command, Control, Lifetime, Machine, MachineError, Output, Process, ProcessId, ProcessInfo, ProcessState,
    SandboxClient, TerminalSize, Workspace, once,
};

use super::bench::{Bench, detached, file, hear, soon, until};

const ECHO: &str = "stty -echo 2>/dev/null; echo ready; while read line; do echo \"got $line\"; done";

/// The work of a process that will be killed: starts one command with a terminal, one that floods, and one without
/// input.
pub(crate) async fn hold(client: &dyn SandboxClient, place: &Path) {
    let saved = fs::read(place.join("handle")).expect("handle");
    let handle = serde_json::from_slice(&saved).expect("json");
    let machine = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    let mut ids = Vec::new();
    let flood = "head -c 3000000 /dev/zero; sleep 300";
    let over = "while ! test -e go; do sleep 0.05; done; echo over; exit 5";
    for command in [shell(ECHO).tty(TerminalSize::default()), shell(flood), shell(over)] {
        let process = soon(machine.spawn(command.kept())).await.expect("spawn");
        ids.push(process.id.expect("an id"));
        // Neither dropped nor read.
        std::mem::forget(process);
    }
    std::mem::forget(machine);
    fs::write(place.join("ids"), serde_json::to_vec(&ids).expect("json")).expect("write");
}

fn shell(script: &str) -> Command {
    Command::new(["sh", "-c", script])
}

async fn adopt(machine: &dyn Machine, id: ProcessId) -> Process {
    for _ in 0..3000 {
        match soon(machine.commands().expect("it knows its commands").adopt(id)).await {
            Ok(found) => return found.expect("it is there"),
            Err(MachineError::Held(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("process {id} is held for ever");
}

/// Reads until standard output contains this text; returns the text, and the number of omitted bytes.
async fn heard(process: &mut Process, words: &str) -> (String, u64) {
    let (mut text, mut omitted) = (String::new(), 0);
    while !text.contains(words) {
        match soon(process.output.recv()).await.expect("more").expect("output") {
            Output::Stdout(bytes) | Output::Stderr(bytes) => text.push_str(&String::from_utf8_lossy(&bytes)),
            Output::Omitted(count) => omitted += count,
            Output::Exit(exit) => text.push_str(&format!("exit {}", exit.code)),
        }
    }
    (text, omitted)
}

#[tokio::test]
async fn commands_of_a_killed_or_ended_process_are_found_by_another() {
    for part in ["keep", "keep and end"] {
        let bench = Bench::new();
        let (handle, processes) = bench.create().await;
        bench.save(&handle);
        let mut holder = bench.play(part);
        hear(&mut holder, "holding");
        if part == "keep" {
            holder.kill().expect("kill -9");
        }
        holder.wait().expect("wait");
        let ids: Vec<ProcessId> =
            serde_json::from_slice(&fs::read(bench.0.path().join("ids")).expect("ids")).expect("json");
        let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
        let mut terminal = adopt(&*machine, ids[0]).await;
        terminal.stdin.as_ref().expect("input").send("you\n".into()).await.expect("it is typed");
        let (text, omitted) = heard(&mut terminal, "got you").await;
        assert_eq!((text.contains("got you"), omitted), (true, 0), "{part}: {text:?}");
        let mut flood = adopt(&*machine, ids[1]).await;
        assert!(flood.stdin.is_none(), "it had no input, and has none");
        // The dead process never read more than its buffers hold, and the guest stores one mebibyte.
        let mut total = 0;
        while total < 1 << 20 {
            match soon(flood.output.recv()).await.expect("more").expect("output") {
                Output::Stdout(bytes) => total += bytes.len(),
                Output::Omitted(count) => assert!(count <= 2_000_000, "{count}"),
                other => panic!("{other:?}"),
            }
        }
        soon(flood.control.send(Control::Leave)).await.expect("it is left");
        drop(flood);
        soon(machine.write(&file("go"), once(""))).await.expect("write");
        let mut over = adopt(&*machine, ids[2]).await;
        let (text, _) = heard(&mut over, "exit 5").await;
        assert!(text.starts_with("over\n"), "{text:?}");
        soon(machine.stop()).await.expect("stop");
        processes.are_gone().await;
    }
}

fn has_ended(info: &ProcessInfo) -> bool {
    matches!(info.state, ProcessState::Ended(_))
}

/// The commands of a machine, once the condition holds.
async fn list_once(machine: &dyn Machine, is_so: impl Fn(&[ProcessInfo]) -> bool) -> Vec<ProcessInfo> {
    soon(async {
        loop {
            let list = machine.commands().expect("it knows its commands").list().await.expect("a list");
            if is_so(&list) {
                return list;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
}

#[tokio::test]
async fn the_latest_exited_commands_are_retained() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
    let mut all = Vec::new();
    for turn in 0..70 {
        let word = if turn == 0 { "first" } else { "others" };
        let script = format!("while ! test -e {word}; do sleep 0.5; done");
        all.push(soon(machine.spawn(shell(&script).kept())).await.expect("spawn"));
    }
    let first = all[0].id.expect("an id");
    drop(machine);
    drop(all);
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
    list_once(&*machine, |list| list.iter().all(|info| info.state == ProcessState::Alone)).await;
    soon(machine.write(&file("first"), once(""))).await.expect("write");
    list_once(&*machine, |list| list.iter().any(|info| info.id == first && has_ended(info))).await;
    soon(machine.write(&file("others"), once(""))).await.expect("write");
    let left = list_once(&*machine, |list| list.iter().all(has_ended)).await;
    assert_eq!(left.len(), 64);
    assert!(left.iter().all(|info| info.id != first), "the one that ended first was forgotten");
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn more_commands_than_can_be_kept_are_refused() {
    let bench = Bench::new();
    let (handle, _) = bench.create().await;
    let machine = soon(bench.client().attach(&handle)).await.expect("attach").expect("it lives");
    let sleep = || Command::new(["sleep", "300"]);
    let mut all = Vec::new();
    for _ in 0..128 {
        all.push(soon(machine.spawn(sleep().kept())).await.expect("spawn"));
    }
    let refused = soon(machine.spawn(sleep().kept())).await.expect_err("one too many");
    assert_eq!(refused.code(), "exhausted");
    let text = "room for kept processes is exhausted: at most 128 of them run on a machine at a time; end one first";
    assert_eq!(refused.to_string(), text);
    all.push(soon(machine.spawn(sleep())).await.expect("others can still run"));
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test]
async fn a_lease_removes_a_machine_and_never_the_hosts_own_directory() {
    let bench = Bench::new();
    let own = bench.0.path().join("own");
    fs::create_dir(&own).expect("a directory");
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).expect("open to the user of the machine");
    fs::write(own.join("file"), "precious").expect("write");
    let leased = |milliseconds: u64| {
        detached()
            .workspace(Workspace::Host { path: own.clone(), access: Access::ReadWrite })
            .lifetime(Lifetime::Leased(Duration::from_millis(milliseconds)))
    };
    let mut made = soon(bench.client().create(leased(300))).await;
    if made.is_err() {
        // A create that is delayed may find that its lease is over.
        until("what there was of it is gone", || bench.machines().is_empty()).await;
        made = soon(bench.client().create(leased(20_000))).await;
    }
    let machine = made.expect("create");
    let (handle, processes) = (machine.handle(), bench.processes().await);
    drop(machine);
    processes.are_gone().await;
    until("its directory is gone", || bench.machines().is_empty()).await;
    assert!(soon(bench.client().attach(&handle)).await.expect("attach").is_none());
    assert_eq!(fs::read_to_string(own.join("file")).expect("it is there"), "precious");
    let hasty = detached().lifetime(Lifetime::Leased(Duration::ZERO));
    assert_eq!(soon(bench.client().create(hasty)).await.expect_err("too short").code(), "invalid");
}
