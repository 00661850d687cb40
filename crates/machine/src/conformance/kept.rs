//! Promises about commands that outlive their holders, and about machines that end without a holder.

use std::time::Duration;

use bytes::BytesMut;
use tokio::time::Instant;

use super::{
    detached::{attach, detached, is_gone},
    rig::{Rig, exit, pause, send, shell, soon, until},
};
use crate::{
    Command, Commands, Control, Exit, ExitReason, Lifetime, MachineError, MachineSpec, Output, Process, ProcessId,
    ProcessInfo, ProcessState, SandboxClient, Signal, TerminalSize,
};

/// Waits for a file, so that the command continues once it has no holder. It prints nothing: a holder could receive output
/// and not have acknowledged it yet.
const WAIT: &str = "while ! test -e go; do sleep 0.05; done";

/// Drops a holder without a message: its connection ends first, so nothing that it does afterwards reaches the machine.
fn vanish(rig: Rig, process: Process) -> ProcessId {
    let id = process.id.expect("a detached machine knows its commands");
    drop(rig);
    drop(process);
    id
}

fn commands(rig: &Rig) -> &dyn Commands {
    rig.machine.commands().expect("a machine that knows its commands")
}

/// Adopts the command as soon as the machine knows that its last holder is gone.
async fn adopt(rig: &Rig, id: ProcessId) -> Process {
    soon("adopt", async {
        loop {
            match commands(rig).adopt(id).await {
                Ok(found) => return found.expect("it is there"),
                Err(MachineError::Held(held)) => assert_eq!(held, id),
                Err(other) => panic!("{other}"),
            }
            pause(20).await;
        }
    })
    .await
}

async fn is_forgotten(rig: &Rig, id: ProcessId) {
    soon("the command to be forgotten", async {
        while commands(rig).list().await.expect("a list").iter().any(|info| info.id == id) {
            pause(20).await;
        }
    })
    .await;
    assert!(soon("adopt", commands(rig).adopt(id)).await.expect("no error").is_none());
}

async fn info(rig: &Rig, id: ProcessId) -> ProcessInfo {
    let all = soon("processes", commands(rig).list()).await.expect("a list");
    all.into_iter().find(|info| info.id == id).expect("it is listed")
}

/// Waits until the machine reports this state of the command.
async fn becomes(rig: &Rig, id: ProcessId, state: ProcessState) {
    let what = format!("{state:?}");
    soon(&what, async {
        while info(rig, id).await.state != state {
            pause(20).await;
        }
    })
    .await;
}

/// Lets a command continue, and waits until it has printed its text.
async fn goes_on(rig: &Rig) {
    rig.put("go", "").await;
    soon("the command to continue without a holder", async {
        while rig.stat("said").await.is_none() {
            pause(20).await;
        }
    })
    .await;
}

/// All output of a command, by kind.
#[derive(Debug, Default)]
struct Heard {
    omitted: Vec<u64>,
    stdout: BytesMut,
    stderr: BytesMut,
    exits: Vec<Exit>,
}

async fn hear(process: &mut Process) -> Heard {
    let mut heard = Heard::default();
    while let Some(output) = soon("output", process.output.recv()).await {
        match output.expect("the machine lives") {
            Output::Omitted(count) => {
                assert!(heard.stdout.is_empty() && heard.exits.is_empty(), "it comes first");
                heard.omitted.push(count);
            }
            Output::Stdout(bytes) => heard.stdout.extend_from_slice(&bytes),
            Output::Stderr(bytes) => heard.stderr.extend_from_slice(&bytes),
            Output::Exit(exit) => heard.exits.push(exit),
        }
    }
    heard
}

/// A kept command survives its holder; the next holder receives the output since then and can write to the command.
pub async fn a_kept_command_outlives_its_holder_with_its_output(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = format!(
        "echo ready; {WAIT}; echo one; echo two >&2; echo three; touch said; read line; echo got $line; exit 7"
    );
    let mut process = rig.spawn(shell(&script).stdin().kept()).await;
    until(&mut process, "ready").await;
    let id = vanish(rig, process);
    let rig = attach(client, &handle).await;
    goes_on(&rig).await;
    becomes(&rig, id, ProcessState::Alone).await;
    let mut process = adopt(&rig, id).await;
    assert_eq!(process.id, Some(id));
    send(&process, "this\n").await;
    let heard = hear(&mut process).await;
    assert_eq!(String::from_utf8_lossy(&heard.stdout).replace("ready\n", ""), "one\nthree\ngot this\n");
    assert_eq!((heard.stderr.as_ref(), heard.omitted.len()), (b"two\n".as_slice(), 0));
    assert_eq!(heard.exits, [Exit::code(7)]);
    is_forgotten(&rig, id).await;
}

/// Of output that exceeds the buffer while no holder reads, the end is stored, and the dropped bytes are counted exactly.
pub async fn what_does_not_fit_is_counted_exactly(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = format!("{WAIT}; seq 1000000 1700000; touch said; read line; echo end");
    let process = rig.spawn(shell(&script).stdin().kept()).await;
    let id = vanish(rig, process);
    let rig = attach(client, &handle).await;
    becomes(&rig, id, ProcessState::Alone).await;
    goes_on(&rig).await;
    let mut process = adopt(&rig, id).await;
    send(&process, "\n").await;
    let heard = hear(&mut process).await;
    let mut all: Vec<u8> = (1_000_000..=1_700_000).flat_map(|line: u32| format!("{line}\n").into_bytes()).collect();
    all.extend_from_slice(b"end\n");
    let [omitted] = heard.omitted[..] else { panic!("{:?}", heard.omitted) };
    assert_eq!(omitted + heard.stdout.len() as u64, all.len() as u64);
    assert!(heard.stdout.len() >= 1 << 20, "a mebibyte is kept: {}", heard.stdout.len());
    assert!(all.ends_with(&heard.stdout), "and it is the last one");
    assert_eq!(heard.exits, [Exit::code(0)]);
}

/// A kept terminal stays a terminal: the next holder can type into it, resize it and interrupt it.
pub async fn a_kept_terminal_can_be_typed_into_again(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = format!(
        "stty -echo; ({WAIT}; echo meanwhile; touch said)& echo ready; \
         while read line; do echo \"<$line>\"; stty size; done"
    );
    let mut process = rig.spawn(shell(&script).tty(TerminalSize::new(33, 101)).kept()).await;
    until(&mut process, "ready").await;
    send(&process, "early\n").await;
    until(&mut process, "33 101").await;
    let id = vanish(rig, process);
    let rig = attach(client, &handle).await;
    goes_on(&rig).await;
    let mut process = adopt(&rig, id).await;
    assert!(info(&rig, id).await.tty);
    until(&mut process, "meanwhile").await;
    soon("resize", process.control.send(Control::Resize(TerminalSize::new(10, 20)))).await.expect("it is taken");
    send(&process, "late\n").await;
    let said = until(&mut process, "10 20").await;
    assert!(said.contains("<late>"), "{said}");
    send(&process, "\u{3}").await;
    assert_eq!(exit(&mut process).await.reason, ExitReason::Signaled);
    drop(process);
    is_forgotten(&rig, id).await;
}

/// A command that ended without a holder gives its output and its exit to the first client that adopts it, once.
pub async fn a_command_that_ended_alone_is_told_once(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let process = rig.spawn(shell(&format!("{WAIT}; echo last words; exit 3")).kept()).await;
    let id = vanish(rig, process);
    let rig = attach(client, &handle).await;
    rig.put("go", "").await;
    becomes(&rig, id, ProcessState::Ended(Exit::code(3))).await;
    let mut process = adopt(&rig, id).await;
    let heard = hear(&mut process).await;
    assert_eq!((heard.stdout.as_ref(), &heard.exits[..]), (b"last words\n".as_slice(), &[Exit::code(3)][..]));
    is_forgotten(&rig, id).await;
    assert!(commands(&rig).adopt(ProcessId(u64::MAX)).await.expect("no error").is_none());
}

/// A command whose holder is connected cannot be adopted.
pub async fn a_held_command_is_not_adopted(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let other = attach(client, &rig.machine.handle()).await;
    let mut process = rig.spawn(shell("echo ready; read line; echo got $line").stdin().kept()).await;
    until(&mut process, "ready").await;
    let id = process.id.expect("an id");
    for holder in [&rig, &other] {
        let refused = soon("adopt", commands(holder).adopt(id)).await.expect_err("it is held");
        assert!(matches!(refused, MachineError::Held(held) if held == id), "{refused}");
    }
    assert_eq!(info(&other, id).await.state, ProcessState::Held);
    send(&process, "it\n").await;
    until(&mut process, "got it").await;
}

/// A holder can leave its command. The command receives all input that was sent before, and the next holder receives the output
/// that the first did not take.
pub async fn a_command_that_is_left_is_there_for_the_next(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let mut process = rig.spawn(shell("echo ready; while read line; do echo got $line; done").stdin().kept()).await;
    until(&mut process, "ready").await;
    let id = process.id.expect("an id");
    for turn in 0..20 {
        send(&process, format!("{turn}\n")).await;
        soon("leave", process.control.send(Control::Leave)).await.expect("it is taken");
        // The answer arrives at the leaving holder or at the next one.
        let before = hear(&mut process).await.stdout;
        drop(process);
        process = adopt(&rig, id).await;
        let answer = format!("got {turn}\n");
        if !String::from_utf8_lossy(&before).contains(&answer) {
            until(&mut process, &answer).await;
        }
    }
}

/// Input for a command that does not read yet is not lost with its holder, and does not reduce the input that the next holder
/// may send.
pub async fn input_waits_for_a_command_that_was_left(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = format!("dd bs=1 count=1 >/dev/null 2>&1; echo ready; {WAIT}; wc -c");
    let mut process = rig.spawn(shell(&script).stdin().kept()).await;
    // More than a pipe holds, less than may be in flight.
    send(&process, vec![b'x'; 200_001]).await;
    until(&mut process, "ready").await;
    // The first byte has arrived, so all input is in flight; a later request is answered after all of it has arrived.
    rig.stat("").await.expect("the workspace is there");
    let id = vanish(rig, process);
    let rig = attach(client, &handle).await;
    let mut process = adopt(&rig, id).await;
    send(&process, vec![b'y'; 200_000]).await;
    rig.put("go", "").await;
    send(&process, vec![b'z'; 400_000]).await;
    drop(process.stdin.take());
    let heard = hear(&mut process).await;
    assert_eq!(String::from_utf8_lossy(&heard.stdout).split_whitespace().last(), Some("800000"));
    assert_eq!(heard.exits, [Exit::code(0)]);
}

/// If a connected holder drops a kept command, the command is killed.
pub async fn dropping_control_kills_a_kept_command(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let beat = "echo ready; while :; do echo x >>beat; sleep 0.05; done";
    let mut process = rig.spawn(shell(beat).kept()).await;
    until(&mut process, "ready").await;
    let id = process.id.expect("an id");
    drop(process);
    rig.stops_growing("beat").await;
    is_forgotten(&rig, id).await;
}

/// A deadline ends a command that has no holder.
pub async fn a_deadline_holds_without_a_holder(client: &dyn SandboxClient) {
    let mut rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    for deadline in [2, 15, 40].map(Duration::from_secs) {
        let begun = Instant::now();
        let process = rig.spawn(Command::new(["sleep", "300"]).deadline(deadline).kept()).await;
        let id = vanish(rig, process);
        let vanished = begun.elapsed();
        rig = attach(client, &handle).await;
        // A holder that lived until the deadline may have received the exit, and then no other client does.
        if vanished < deadline {
            return becomes(&rig, id, ProcessState::Ended(Exit { code: 137, reason: ExitReason::Deadline })).await;
        }
    }
    panic!("no holder was gone before a deadline");
}

/// Every holder sees the running commands and can signal them.
pub async fn commands_are_listed_and_signalled_by_number(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let other = attach(client, &rig.machine.handle()).await;
    let mut process = rig.spawn(Command::new(["sh", "-c", "exec sleep 300", &"x".repeat(5000)]).kept()).await;
    let second = rig.spawn(Command::new(["sleep", "301"]).kept()).await;
    let id = process.id.expect("an id");
    assert!(second.id > Some(id), "numbers grow");
    let told = info(&other, id).await;
    assert_eq!((&told.argv[..2], told.tty, told.kept), (&["sh".into(), "-c".into()][..], false, true));
    assert!(told.argv.iter().map(|word| word.len()).sum::<usize>() < 1000, "it is shortened");
    assert!(told.since > 1_600_000_000);
    assert!(soon("signal", commands(&other).signal(id, Signal::Terminate)).await.expect("it is sent"));
    assert_eq!(exit(&mut process).await.code, 143);
    drop(process);
    is_forgotten(&other, id).await;
    assert!(!soon("signal", commands(&other).signal(id, Signal::Terminate)).await.expect("no error"));
    assert_eq!(info(&other, second.id.expect("an id")).await.state, ProcessState::Held);
}

/// Two clients can hold one command each at the same time.
pub async fn two_holders_adopt_side_by_side(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = "echo ready; while read line; do echo got $line; done";
    let mut both = Vec::new();
    for _ in 0..2 {
        let mut process = rig.spawn(shell(script).stdin().kept()).await;
        until(&mut process, "ready").await;
        both.push(process);
    }
    let ids: Vec<ProcessId> = both.iter().filter_map(|process| process.id).collect();
    drop(rig);
    drop(both);
    let (one, two) = (attach(client, &handle).await, attach(client, &handle).await);
    let (mut first, mut second) = (adopt(&one, ids[0]).await, adopt(&two, ids[1]).await);
    for turn in 0..10 {
        send(&first, format!("one {turn}\n")).await;
        send(&second, format!("two {turn}\n")).await;
        until(&mut first, &format!("got one {turn}")).await;
        until(&mut second, &format!("got two {turn}")).await;
    }
    drop((one, first));
    send(&second, "still\n").await;
    until(&mut second, "got still").await;
}

/// On a bound machine, [`Command::kept`] has no effect.
pub async fn a_bound_machine_keeps_nothing(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(shell("echo out; exit 4").kept()).await;
    assert_eq!(process.id, None);
    let ran = super::rig::finish(process).await;
    assert_eq!((ran.text().as_str(), ran.exit), ("out\n", Exit::code(4)));
    assert!(soon("adopt", commands(&rig).adopt(ProcessId(1))).await.expect("no error").is_none());
}

/// A leased machine ends when it had no client for the length of its lease, and not while it has one.
pub async fn a_lease_ends_an_idle_machine_and_no_other(client: &dyn SandboxClient) {
    for lease in [1500, 12_000] {
        if a_lease_is_kept(client, lease).await.is_ok() {
            return;
        }
    }
    panic!("no client came back within a lease");
}

/// The next holder came after the end of the lease, so the attempt shows nothing.
struct TooLate;

/// One attempt with a lease of this many milliseconds.
async fn a_lease_is_kept(client: &dyn SandboxClient, lease: u64) -> Result<(), TooLate> {
    let (length, begun) = (Duration::from_millis(lease), Instant::now());
    let lifetime = Lifetime::Leased(length);
    let rig = match soon("create", client.create(MachineSpec::default().lifetime(lifetime))).await {
        Ok(machine) => Rig { machine },
        // The creator of the machine is a holder, too.
        Err(_) if begun.elapsed() >= length => return Err(TooLate),
        Err(other) => panic!("{other}"),
    };
    let handle = rig.machine.handle();
    // A command is not a client.
    let process = rig.spawn(Command::new(["sleep", "300"]).kept()).await;
    pause(lease + 1000).await;
    rig.put("file", "still here").await;
    let left = Instant::now();
    vanish(rig, process);
    pause(300).await;
    let Some(machine) = soon("attach", client.attach(&handle)).await.expect("no error") else {
        assert!(left.elapsed() >= length, "it ended after {:?}", left.elapsed());
        return Err(TooLate);
    };
    let rig = Rig { machine };
    pause(lease + 1000).await;
    assert_eq!(rig.get("file").await, "still here");
    drop(rig);
    soon("the machine to end", async {
        // Each check is a client for a moment, too; it must not restart the lease.
        while !is_gone(client, &handle).await {
            pause(300).await;
        }
    })
    .await;
    Ok(())
}
