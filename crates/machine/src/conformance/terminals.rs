//! Promises about commands on terminals.

use futures::future::join_all;

use super::rig::{Rig, daemon, exit, finish, send, shell, signal, soon, until};
use crate::{Command, Control, ExitReason, Output, SandboxClient, Signal, TerminalSize};

fn on_terminal(script: &str) -> Command {
    shell(script).tty(TerminalSize::new(33, 101))
}

/// All three streams are the terminal, and it is the one that controls the session.
pub async fn a_terminal_is_a_terminal(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(on_terminal("test -t 0 && test -t 1 && test -t 2 && : </dev/tty && echo yes")).await;
    assert!(process.stdin.is_some(), "a terminal has input");
    let ran = keeping_input(process).await;
    assert!(ran.contains("yes"), "{ran}");
}

/// Reads to the end without sending the end of input first.
async fn keeping_input(mut process: crate::Process) -> String {
    let stdin = process.stdin.take();
    let text = finish(process).await.text();
    drop(stdin);
    text
}

/// Programs see the size that was asked for.
pub async fn a_terminal_has_the_size_it_was_given(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let text = keeping_input(rig.spawn(on_terminal("stty size")).await).await;
    assert!(text.contains("33 101"), "{text}");
}

/// A new size is there for who asks, and announced to who listens.
pub async fn a_terminal_can_be_resized(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = "trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.1; done";
    let mut process = rig.spawn(on_terminal(script)).await;
    until(&mut process, "ready").await;
    let size = Control::Resize(TerminalSize::new(50, 132));
    soon("resize", process.control.send(size)).await.expect("a running process takes a size");
    until(&mut process, "50 132").await;
    assert_eq!(exit(&mut process).await.code, 5);
}

/// The interrupt character interrupts.
pub async fn control_c_interrupts(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(on_terminal("trap 'exit 7' INT; echo ready; while :; do sleep 0.1; done")).await;
    until(&mut process, "ready").await;
    send(&process, "\x03").await;
    assert_eq!(exit(&mut process).await.code, 7);
    let mut process = rig.spawn(on_terminal("echo ready; exec sleep 1000")).await;
    until(&mut process, "ready").await;
    send(&process, "\x03").await;
    let ended = exit(&mut process).await;
    assert_eq!((ended.code, ended.reason), (130, ExitReason::Signaled));
}

/// Dropping the input of a terminal is its end-of-file character: a reader ends.
pub async fn closing_input_ends_a_terminal_reader(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(on_terminal("cat; echo done")).await;
    send(&process, "line\n").await;
    let ran = finish(process).await;
    assert!(ran.exit.success() && ran.text().contains("line") && ran.text().contains("done"), "{ran:?}");
}

/// The same when the last line was not finished, where one such character would only hand the line over.
pub async fn closing_input_ends_a_terminal_reader_in_the_middle_of_a_line(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(on_terminal("cat; echo done")).await;
    send(&process, "no newline").await;
    let ran = finish(process).await;
    assert!(ran.exit.success() && ran.text().contains("done"), "{ran:?}");
}

/// A terminal has one output.
pub async fn errors_on_a_terminal_arrive_as_output(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(on_terminal("echo out; echo err >&2; head -c 100000 /dev/zero | tr '\\0' z")).await;
    let mut text = Vec::new();
    while let Some(output) = soon("output", process.output.recv()).await {
        match output.expect("the machine lives") {
            Output::Stdout(bytes) => text.extend_from_slice(&bytes),
            other @ (Output::Stderr(_) | Output::Omitted(_)) => panic!("{other:?}"),
            Output::Exit(exit) => assert!(exit.success()),
        }
    }
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("out") && text.contains("err"), "{}", &text[..20]);
    assert_eq!(text.matches('z').count(), 100_000);
}

/// Many terminals, each with its own echo.
pub async fn sixty_four_terminals_work_at_once(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let all = (0..64).map(|number| {
        let rig = &rig;
        async move {
            let mut process = rig.spawn(on_terminal("echo ready; read line; echo answer-$line")).await;
            until(&mut process, "ready").await;
            (number, process)
        }
    });
    let started = join_all(all).await;
    let answers = started.into_iter().map(|(number, mut process)| async move {
        send(&process, format!("{number}-x\n")).await;
        until(&mut process, &format!("answer-{number}-x")).await;
        assert!(exit(&mut process).await.success());
    });
    join_all(answers).await;
}

/// A kill reaches what left the terminal's session.
pub async fn killing_on_a_terminal_reaches_daemons(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(on_terminal(&format!("{}; echo ready; sleep 1000", daemon("beat")))).await;
    until(&mut process, "ready").await;
    rig.appears("beat").await;
    signal(&process, Signal::Kill).await;
    assert_eq!(exit(&mut process).await.code, 137);
    rig.stops_growing("beat").await;
}

/// The terminals of the host and of other machines are not there.
pub async fn terminals_are_private_to_the_machine(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let other = Rig::new(client).await;
    let mut process = other.spawn(on_terminal("echo ready; sleep 1000")).await;
    until(&mut process, "ready").await;
    let seen = rig.sh("ls /dev/pts").await.text();
    assert!(!seen.lines().any(|name| name.bytes().all(|byte| byte.is_ascii_digit())), "{seen}");
}
