//! Promises about commands that outlive their holders, and about machines that end when nobody holds them.

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

/// Waits for a file, so that it goes on when nobody holds it any more. It says nothing, which a holder could have taken
/// without having said so yet.
const WAIT: &str = "while ! test -e go; do sleep 0.05; done";

/// A holder is gone without a word: its connection ends first, and whatever it does then nobody hears.
fn vanish(rig: Rig, process: Process) -> ProcessId {
    let id = process.id.expect("a detached machine knows its commands");
    drop(rig);
    drop(process);
    id
}

fn commands(rig: &Rig) -> &dyn Commands {
    rig.machine.commands().expect("a machine that knows its commands")
}

/// The command, once its last holder is known to be gone.
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
    soon("it to be forgotten", async {
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

/// Waits until the machine says that of a command.
async fn becomes(rig: &Rig, id: ProcessId, state: ProcessState) {
    let what = format!("{state:?}");
    soon(&what, async {
        while info(rig, id).await.state != state {
            pause(20).await;
        }
    })
    .await;
}

/// Lets a command go on, and waits until it has said what it has to say.
async fn goes_on(rig: &Rig) {
    rig.put("go", "").await;
    soon("it to go on alone", async {
        while rig.stat("said").await.is_none() {
            pause(20).await;
        }
    })
    .await;
}

/// Everything there was to hear of a command, in the order of its kinds.
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

/// Its holder vanishes; it goes on, and the next holder hears what it said meanwhile and can talk to it.
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

/// A flood that nobody reads keeps its end; what is missing is counted to the byte.
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

/// A terminal stays one: it can be typed into, resized and interrupted by whoever comes next.
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

/// One that ended while nobody held it gives its output and its exit to the first who asks, and to nobody after.
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

/// Nobody takes a command away from a holder that lives.
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

/// A holder that says that it leaves, leaves; what it typed before has been typed, and what it did not take is there for the
/// next one.
pub async fn a_command_that_is_left_is_there_for_the_next(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let mut process = rig.spawn(shell("echo ready; while read line; do echo got $line; done").stdin().kept()).await;
    until(&mut process, "ready").await;
    let id = process.id.expect("an id");
    for turn in 0..20 {
        send(&process, format!("{turn}\n")).await;
        soon("leave", process.control.send(Control::Leave)).await.expect("it is taken");
        // The answer comes to the one who leaves or to the one who comes.
        let before = hear(&mut process).await.stdout;
        drop(process);
        process = adopt(&rig, id).await;
        let answer = format!("got {turn}\n");
        if !String::from_utf8_lossy(&before).contains(&answer) {
            until(&mut process, &answer).await;
        }
    }
}

/// What was sent to a command that does not read yet is not lost with its holder, and does not take from the next one's.
pub async fn input_waits_for_a_command_that_was_left(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let script = format!("dd bs=1 count=1 >/dev/null 2>&1; echo ready; {WAIT}; wc -c");
    let mut process = rig.spawn(shell(&script).stdin().kept()).await;
    // More than a pipe holds, less than may be on its way.
    send(&process, vec![b'x'; 200_001]).await;
    until(&mut process, "ready").await;
    // Its first byte has arrived, so all of it is on its way; what is asked after it is answered when all has arrived.
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

/// Whoever drops a command while it holds its machine means it.
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

/// Nobody has to be there for a deadline to pass.
pub async fn a_deadline_holds_without_a_holder(client: &dyn SandboxClient) {
    let mut rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    for deadline in [2, 15, 40].map(Duration::from_secs) {
        let begun = Instant::now();
        let process = rig.spawn(Command::new(["sleep", "300"]).deadline(deadline).kept()).await;
        let id = vanish(rig, process);
        let vanished = begun.elapsed();
        rig = attach(client, &handle).await;
        // A holder that was held up until the deadline may have been told, and then nobody else is.
        if vanished < deadline {
            return becomes(&rig, id, ProcessState::Ended(Exit { code: 137, reason: ExitReason::Deadline })).await;
        }
    }
    panic!("no holder was gone before a deadline");
}

/// Every holder sees what runs, and can end it.
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

/// Two clients at once: each has its own, and both work.
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

/// On a machine that ends with its maker, keeping changes nothing.
pub async fn a_bound_machine_keeps_nothing(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(shell("echo out; exit 4").kept()).await;
    assert_eq!(process.id, None);
    let ran = super::rig::finish(process).await;
    assert_eq!((ran.text().as_str(), ran.exit), ("out\n", Exit::code(4)));
    assert!(soon("adopt", commands(&rig).adopt(ProcessId(1))).await.expect("no error").is_none());
}

/// It ends when nobody was there for as long as it was given, and not while somebody is.
pub async fn a_lease_ends_an_idle_machine_and_no_other(client: &dyn SandboxClient) {
    for lease in [1500, 12_000] {
        if a_lease_is_kept(client, lease).await.is_ok() {
            return;
        }
    }
    panic!("nobody came back within a lease");
}

/// The next holder came only when the lease, in milliseconds, was over: nothing is shown.
struct TooLate;

async fn a_lease_is_kept(client: &dyn SandboxClient, lease: u64) -> Result<(), TooLate> {
    let (length, begun) = (Duration::from_millis(lease), Instant::now());
    let lifetime = Lifetime::Leased(length);
    let rig = match soon("create", client.create(MachineSpec::default().lifetime(lifetime))).await {
        Ok(machine) => Rig { machine },
        // Its maker is a holder, too.
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
    soon("it to end", async {
        // Whoever looks is a client for a moment, too, and must not keep it alive.
        while !is_gone(client, &handle).await {
            pause(300).await;
        }
    })
    .await;
    Ok(())
}
