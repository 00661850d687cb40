//! A machine works over a simple in-memory guest.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use sandbar_guest::protocol::{Event, ExitKind, Open, Request};
use sandbar_machine::{
    Command, Control, Exit, ExitReason, Files as _, Machine, MachineError, MachinePath, Output, Process, Signal,
    Target, TerminalSize, collect, once,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    GuestMachine,
    fake::{Far, scripted, simple, soon},
};

fn target(path: &str) -> Target {
    Target::from(MachinePath::new(path).expect("path"))
}

/// All output of a process, and its exit.
async fn finish(process: &mut Process) -> (Vec<u8>, Vec<u8>, Option<Exit>) {
    let (mut out, mut err, mut end) = (Vec::new(), Vec::new(), None);
    while let Some(output) = soon(process.output.recv()).await {
        match output.expect("output") {
            Output::Stdout(bytes) => out.extend_from_slice(&bytes),
            Output::Stderr(bytes) => err.extend_from_slice(&bytes),
            Output::Omitted(count) => panic!("{count} bytes were omitted"),
            Output::Exit(exit) => assert!(end.replace(exit).is_none(), "two exits"),
        }
    }
    (out, err, end)
}

#[tokio::test]
async fn a_command_gets_a_clean_environment_and_its_own_variables() {
    let machine = simple().await;
    let command = Command::new(["env"]).env("MINE", "1").env("PAGER", "less");
    let (out, _, exit) = finish(&mut machine.spawn(command).await.expect("spawn")).await;
    let text = String::from_utf8(out).expect("text");
    for line in ["FROM_SPEC=yes", "MINE=1", "PAGER=less", "HOME=/home/agent", "TERM=dumb", "NO_COLOR=1", "USER=agent"] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains("CARGO"), "{text}");
    assert_eq!(exit, Some(Exit::code(0)));
}

#[tokio::test]
async fn invalid_requests_are_refused_before_they_reach_the_guest() {
    let machine = simple().await;
    let code = async |command: Command| machine.spawn(command).await.map(drop).expect_err("refused").code();
    assert_eq!(code(Command::new(Vec::<String>::new())).await, "invalid");
    assert_eq!(code(Command::new(["a\0b"])).await, "invalid");
    assert_eq!(code(Command::new(["env"]).env("", "x")).await, "invalid");
    assert_eq!(code(Command::new(["env"]).env("A=B", "x")).await, "invalid");
    assert_eq!(code(Command::new(["env"]).env("A", "x\0")).await, "invalid");
    assert_eq!(code(Command::new(["env"]).user("a\0")).await, "invalid");
    assert_eq!(code(Command::new([vec!["x"; 3 << 20].join("")])).await, "invalid");
    assert_eq!(code(Command::new(["env"]).cwd(MachinePath::root())).await, "not_found");
    let too_much = target("/workspace/a").mode(0o4755);
    assert_eq!(machine.write(&too_much, once("x")).await.expect_err("suid").code(), "invalid");
    assert_eq!(machine.ports().expect("ports").open(9).await.expect_err("undeclared").to_string().lines().count(), 1);
    let (_, err, exit) = finish(&mut machine.spawn(Command::new(["nonsense"])).await.expect("spawn")).await;
    assert_eq!((err.as_slice(), exit), (b"not found\n".as_slice(), Some(Exit::code(127))));
}

#[tokio::test]
async fn input_and_output_flow_together_far_beyond_any_window() {
    let machine = simple().await;
    let mut process = machine.spawn(Command::new(["cat"]).stdin()).await.expect("spawn");
    let stdin = process.stdin.take().expect("stdin");
    let feeding = tokio::spawn(async move {
        for number in 0..64_u8 {
            stdin.send(Bytes::from(vec![number; 100_000])).await.expect("send");
        }
    });
    let (out, _, exit) = finish(&mut process).await;
    feeding.await.expect("fed");
    assert_eq!(out.len(), 6_400_000);
    assert!(
        out.chunks(100_000).enumerate().all(|(number, piece)| piece.iter().all(|byte| usize::from(*byte) == number))
    );
    assert_eq!(exit, Some(Exit::code(0)));
}

#[tokio::test]
async fn a_process_without_a_reader_waits_and_blocks_no_other() {
    let machine = simple().await;
    let unread = machine.spawn(Command::new(["zeros", "100000000"])).await.expect("spawn");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (_, _, exit) = finish(&mut machine.spawn(Command::new(["env"])).await.expect("spawn")).await;
    assert_eq!(exit, Some(Exit::code(0)));
    soon(unread.control.send(Control::Signal(Signal::Terminate))).await.expect("control");
    let mut unread = unread;
    let (out, _, exit) = finish(&mut unread).await;
    assert!(out.len() < 2_000_000, "{}", out.len());
    assert_eq!(exit, Some(Exit { code: 143, reason: ExitReason::Signaled }));
}

#[tokio::test]
async fn a_process_whose_output_was_dropped_still_runs_to_its_end() {
    let (machine, mut far) = scripted().await;
    let guest = tokio::spawn(async move {
        let (channel, window, _) = far.opened().await;
        far.say(channel, Event::Started).await;
        let mut credit = i64::from(window);
        let mut sent = 0;
        while sent < 1_000_000 {
            while credit < 10_000 {
                let heard = far.hear().await.expect("credit");
                let Request::Credit(more) = heard.request() else { continue };
                credit += i64::from(more);
            }
            far.say(channel, Event::Data(&[7; 10_000])).await;
            credit -= 10_000;
            sent += 10_000;
        }
        far.say(channel, Event::Exit(0, ExitKind::Exited)).await;
        far.say(channel, Event::Done).await;
        (far, sent)
    });
    let process = machine.spawn(Command::new(["x"])).await.expect("spawn");
    let Process { control, output, .. } = process;
    drop(output);
    let (_far, sent) = soon(guest).await.expect("guest");
    assert_eq!(sent, 1_000_000);
    drop(control);
}

/// Starts a command on a scripted guest that answers with these events.
async fn started(machine: &GuestMachine, far: &mut Far, events: &[Event<'_>]) -> (Process, u32) {
    let (process, channel) = tokio::join!(machine.spawn(Command::new(["x"])), async {
        let (channel, ..) = far.opened().await;
        for event in events {
            far.say(channel, event.clone()).await;
        }
        channel
    });
    (process.expect("spawn"), channel)
}

fn drop_control(process: &mut Process) {
    drop(std::mem::replace(&mut process.control, tokio::sync::mpsc::channel(1).0));
}

#[tokio::test]
async fn dropping_control_kills_and_the_exit_still_arrives() {
    let (machine, mut far) = scripted().await;
    let (mut process, channel) = started(&machine, &mut far, &[Event::Started]).await;
    drop_control(&mut process);
    let heard = soon(far.hear()).await.expect("kill");
    assert_eq!((heard.channel, heard.request()), (channel, Request::Signal(9)));
    far.say(channel, Event::Exit(137, ExitKind::Signaled)).await;
    far.say(channel, Event::Done).await;
    assert_eq!(finish(&mut process).await.2.map(|exit| exit.code), Some(137));
}

#[tokio::test]
async fn dropping_a_whole_process_closes_it() {
    let (machine, mut far) = scripted().await;
    let (process, channel) = started(&machine, &mut far, &[Event::Started]).await;
    drop(process);
    let heard = soon(far.hear()).await.expect("close");
    assert_eq!((heard.channel, heard.request()), (channel, Request::Close));
}

#[tokio::test]
async fn dropping_control_spares_what_outlived_the_command() {
    let (machine, mut far) = scripted().await;
    let events = [Event::Started, Event::Exit(0, ExitKind::Exited)];
    let (mut process, channel) = started(&machine, &mut far, &events).await;
    assert!(matches!(soon(process.output.recv()).await, Some(Ok(Output::Exit(_)))));
    drop_control(&mut process);
    far.say(channel, Event::Data(b"daemon")).await;
    assert_eq!(soon(process.output.recv()).await.expect("late").expect("output"), Output::Stdout("daemon".into()));
    drop(process);
    assert!(tokio::time::timeout(Duration::from_millis(50), far.hear()).await.is_err(), "nothing is closed");
}

#[tokio::test]
async fn a_terminal_can_change_its_size_while_its_output_is_unread() {
    let machine = simple().await;
    let mut process = machine.spawn(Command::new(["sleep"]).tty(TerminalSize::default())).await.expect("spawn");
    for rows in 1..=100 {
        soon(process.control.send(Control::Resize(TerminalSize::new(rows, 80)))).await.expect("resize");
    }
    soon(process.control.send(Control::Signal(Signal::Hangup))).await.expect("signal");
    let (out, _, exit) = finish(&mut process).await;
    assert_eq!(String::from_utf8(out).expect("text").lines().count(), 100);
    assert_eq!(exit.map(|exit| exit.code), Some(129));
}

#[tokio::test]
async fn files_of_every_size_arrive_whole() {
    let machine = simple().await;
    for size in [0, 1, 1024, 256 * 1024, 256 * 1024 + 1, 5_000_000] {
        let content: Vec<u8> = (0..size).map(|index| u8::try_from(index % 251).expect("byte")).collect();
        let file = target("/workspace/file");
        soon(machine.write(&file, once(content.clone()))).await.expect("write");
        let read = soon(machine.read(&file)).await.expect("read");
        assert_eq!(soon(collect(read, usize::MAX)).await.expect("bytes"), content);
        let entry = soon(machine.stat(&file)).await.expect("stat").expect("there");
        assert_eq!((entry.name.to_str(), entry.size), (Some("file"), content.len() as u64));
    }
    assert!(soon(machine.stat(&target("/workspace/file/below"))).await.expect("stat").is_none());
    let missing = machine.read(&target("/workspace/none")).await.map(drop).expect_err("missing");
    assert!(matches!(missing, MachineError::NotFound(path) if path.as_bytes() == b"/workspace/none"));
}

#[tokio::test]
async fn a_write_whose_source_fails_is_taken_back() {
    let (machine, mut far) = scripted().await;
    let pieces = stream::iter([Ok(Bytes::from("half"))]).chain(stream::once(async {
        tokio::task::yield_now().await;
        Err(MachineError::invalid("the source", "failed"))
    }));
    let error = soon(machine.write(&target("/workspace/a"), Box::pin(pieces))).await.expect_err("failed");
    assert_eq!(error.to_string(), "the source: failed");
    let (channel, _, open) = far.opened().await;
    assert!(matches!(open, Open::Write(_)));
    assert_eq!(soon(far.hear()).await.expect("data").request(), Request::Data(b"half"));
    let close = soon(far.hear()).await.expect("close");
    assert_eq!((close.channel, close.request()), (channel, Request::Close));
}

#[tokio::test]
async fn a_dropped_stream_is_closed_and_its_late_frames_are_ignored() {
    let (machine, mut far) = scripted().await;
    let (file, directory) = (target("/workspace/a"), target("/workspace/b"));
    let (stream, channel) = tokio::join!(machine.read(&file), async {
        let (channel, ..) = far.opened().await;
        far.say(channel, Event::Started).await;
        far.say(channel, Event::Data(b"some")).await;
        channel
    });
    drop(stream.expect("read"));
    assert_eq!(soon(far.hear()).await.expect("close").request(), Request::Close);
    far.say(channel, Event::Data(b"late")).await;
    far.say(channel, Event::Done).await;
    let (made, ()) = tokio::join!(machine.make_dir(&directory), async {
        let (channel, ..) = far.opened().await;
        far.say(channel, Event::Done).await;
    });
    made.expect("the connection lives");
}

#[tokio::test]
async fn a_port_carries_connections_both_ways_until_the_machine_ends() {
    let machine = simple().await;
    let endpoint = machine.ports().expect("ports").open(8080).await.expect("port");
    assert_eq!(machine.ports().expect("ports").open(8080).await.expect("again"), endpoint);
    let address = endpoint.socket().expect("a port of this host");
    assert!(address.ip().is_loopback());
    let mut client = TcpStream::connect(address).await.expect("connect");
    let payload = vec![9; 1_000_000];
    let (mut from, mut to) = client.split();
    let mut echoed = Vec::new();
    let (sent, got) = soon(async {
        tokio::join!(
            async {
                to.write_all(&payload).await?;
                to.shutdown().await
            },
            from.read_to_end(&mut echoed)
        )
    })
    .await;
    sent.expect("sent");
    got.expect("echoed");
    assert_eq!(echoed, payload);
    machine.stop().await.expect("stop");
    soon(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert_eq!(machine.ports().expect("ports").open(8080).await.expect_err("gone").code(), "gone");
}

#[tokio::test]
async fn a_stopped_machine_is_gone_and_stopping_again_is_fine() {
    let machine = simple().await;
    let mut process = machine.spawn(Command::new(["sleep"])).await.expect("spawn");
    soon(machine.stop()).await.expect("stop");
    soon(machine.stop()).await.expect("stop again");
    assert!(matches!(soon(process.output.recv()).await, Some(Err(MachineError::Gone))));
    assert!(soon(process.output.recv()).await.is_none());
    assert_eq!(machine.spawn(Command::new(["env"])).await.map(drop).expect_err("gone").code(), "gone");
    assert_eq!(machine.make_dir(&target("/workspace/a")).await.expect_err("gone").code(), "gone");
    assert!(machine.is_gone());
}

#[tokio::test]
async fn a_dropped_machine_takes_its_processes_along() {
    let machine = simple().await;
    let mut process = machine.spawn(Command::new(["sleep"])).await.expect("spawn");
    drop(machine);
    assert!(matches!(soon(process.output.recv()).await, Some(Err(MachineError::Gone))));
}
