//! A hostile guest: whatever it sends, the host neither panics nor hangs nor fills its memory.

use sandbar_guest::protocol::{At, Event, ExitKind, FrameHeader, MAX_DATA, MAX_PAYLOAD, Open, Record, VERSION};
use sandbar_machine::{
    Command, Commands, Files, Machine, MachineError, MachinePath, Process, ProcessId, ScanOptions, Target, collect,
};
use tokio::net::UnixStream;

use super::{
    GuestMachine,
    fake::{Far, hello, scripted, setup, soon},
    files::{Bounds, FileOp, records},
    noise_tests::{Noise, frame},
};

fn target() -> Target {
    Target::from(MachinePath::workspace())
}

fn header(length: u32, channel: u32, kind: u8) -> Vec<u8> {
    FrameHeader { length, channel, kind }.encode().to_vec()
}

/// Runs a command whose guest answers the request (channel 1) with these bytes, and returns how the output ended.
async fn output_after(answer: Vec<u8>) -> Result<Process, MachineError> {
    let (machine, mut far) = scripted().await;
    let (process, ()) = tokio::join!(machine.spawn(Command::new(["x"])), async {
        far.opened().await;
        far.raw(&answer).await;
        far.0.shutdown_write();
    });
    let mut process = process?;
    while let Some(output) = soon(process.output.recv()).await {
        output?;
    }
    Ok(process)
}

impl Far {
    /// Closes the guest's sending side, so that silence after the last frame is the end of the stream, not a pause.
    fn close(self) {
        drop(self);
    }
}

trait ShutdownWrite {
    fn shutdown_write(&self);
}

impl ShutdownWrite for UnixStream {
    fn shutdown_write(&self) {
        let socket = std::os::fd::AsFd::as_fd(self).try_clone_to_owned().expect("dup");
        std::os::unix::net::UnixStream::from(socket).shutdown(std::net::Shutdown::Write).expect("shutdown");
    }
}

#[tokio::test]
async fn invalid_frames_end_the_connection() {
    let started = frame(1, &Event::Started);
    let data = |bytes: &[u8]| frame(1, &Event::Data(bytes));
    let exit = frame(1, &Event::Exit(0, ExitKind::Exited));
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("an unknown kind", [started.clone(), header(0, 1, 200)].concat()),
        ("a request's kind", [started.clone(), header(0, 1, 33)].concat()),
        ("an oversized frame", [started.clone(), header(u32::MAX, 1, 66)].concat()),
        ("bulk longer than bulk may be", [started.clone(), header(MAX_DATA as u32 + 1, 1, 66)].concat()),
        ("an event longer than events may be", [started.clone(), header(MAX_PAYLOAD as u32, 1, 71)].concat()),
        ("empty bulk", [started.clone(), header(0, 1, 66)].concat()),
        ("a channel never opened", [started.clone(), frame(77, &Event::Done)].concat()),
        ("bulk on a channel never opened", [started.clone(), frame(77, &Event::Data(b"x"))].concat()),
        ("the connection's own channel", [started.clone(), frame(0, &hello())].concat()),
        ("hello on a process", [started.clone(), frame(1, &hello())].concat()),
        ("bytes before the start", data(b"x")),
        ("an exit before the start", exit.clone()),
        ("a second start", [started.clone(), started.clone()].concat()),
        ("a second exit", [started.clone(), exit.clone(), exit.clone()].concat()),
        ("done without an exit", [started.clone(), frame(1, &Event::Done)].concat()),
        ("more than the window", [started.clone(), data(&[0; 40_000]), data(&[0; 40_000])].concat()),
        ("a half frame", [started.clone(), header(100, 1, 66), vec![0; 50]].concat()),
        ("a half header", [started.clone(), vec![1, 2, 3]].concat()),
        ("a start with something in it", header(1, 1, 65).into_iter().chain([0]).collect()),
        ("omitted bytes of a command that was not adopted", [started.clone(), frame(1, &Event::Omitted(1))].concat()),
        ("kept, which was not requested", frame(1, &Event::Kept(1, true))),
        ("kept after the start", [started.clone(), frame(1, &Event::Kept(1, true))].concat()),
        ("anything after done", [started, exit, frame(1, &Event::Done), data(b"x")].concat()),
    ];
    for (what, answer) in cases {
        let outcome = soon(output_after(answer)).await;
        let after_done = what == "anything after done";
        match outcome {
            Err(MachineError::Transport { .. }) => {}
            Ok(_) if after_done => {}
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_adopted_command_is_the_one_that_was_asked_for_and_omits_once() {
    let kept = |id| frame(1, &Event::Kept(id, false));
    let cases = [
        ("another command", kept(8)),
        ("a command that was only started", frame(1, &Event::Started)),
        ("two gaps", [kept(7), frame(1, &Event::Omitted(1)), frame(1, &Event::Omitted(1))].concat()),
    ];
    for (what, answer) in cases {
        let (machine, mut far) = scripted().await;
        let (process, ()) = tokio::join!(machine.adopt(ProcessId(7)), async {
            far.opened().await;
            far.raw(&answer).await;
        });
        let Ok(process) = process else { continue };
        let mut process = process.expect("it is there");
        let mut ended = Ok(());
        while let Some(output) = soon(process.output.recv()).await {
            ended = output.map(drop);
        }
        assert!(matches!(ended, Err(MachineError::Transport { .. })), "{what}: {ended:?}");
    }
}

#[tokio::test]
async fn a_malformed_list_of_processes_ends_the_connection() {
    let endless = vec![0; 60_000];
    for answer in [b"\x01\0\0\0".as_slice(), b"\xff\xff\xff\xff", &endless] {
        let (machine, mut far) = scripted().await;
        let (list, ()) = tokio::join!(Commands::list(&machine), async {
            far.opened().await;
            far.raw(&frame(1, &Event::Data(answer))).await;
            far.raw(&frame(1, &Event::Done)).await;
        });
        assert!(matches!(list, Err(MachineError::Transport { .. })), "{list:?}");
        assert!(machine.is_gone());
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_for_cause_stays_closed() {
    let (machine, mut far) = scripted().await;
    far.raw(&header(0, 9, 99)).await;
    let error = soon(machine.make_dir(&target())).await.expect_err("closed");
    assert!(matches!(error, MachineError::Transport { .. }), "{error:?}");
    assert!(machine.is_gone());
    soon(machine.stop()).await.expect("stopping is fine");
    far.close();
}

#[tokio::test]
async fn a_bad_greeting_is_refused() {
    let wrong_version = Event::Hello(sandbar_guest::protocol::Hello { version: VERSION + 1, ..Default::default() });
    let relative = Event::Hello(sandbar_guest::protocol::Hello {
        version: VERSION,
        workspace: b"../..".to_vec(),
        ..Default::default()
    });
    let cases = [
        ("nothing", Vec::new(), "gone"),
        ("another version", frame(0, &wrong_version), "transport"),
        ("a relative workspace", frame(0, &relative), "transport"),
        ("a channel", frame(3, &hello()), "transport"),
        ("something else", frame(0, &Event::Started), "transport"),
        ("noise", vec![0xff; 64], "transport"),
    ];
    for (what, bytes, code) in cases {
        let (near, far) = UnixStream::pair().expect("pair");
        let mut far = Far(far);
        far.raw(&bytes).await;
        far.0.shutdown_write();
        let (reader, writer) = near.into_split();
        let error = soon(GuestMachine::connect(reader, writer, setup())).await.map(drop).expect_err(what);
        assert_eq!(error.code(), code, "{what}: {error:?}");
    }
}

#[tokio::test]
async fn every_kind_of_request_refuses_the_answers_of_another() {
    for (what, answer) in [
        ("bytes", frame(1, &Event::Data(b"x"))),
        ("an exit", frame(1, &Event::Exit(0, ExitKind::Exited))),
        ("a start", frame(1, &Event::Started)),
        ("credit", frame(1, &Event::Credit(5))),
    ] {
        let (machine, mut far) = scripted().await;
        let root = target();
        let (made, ()) = tokio::join!(machine.make_dir(&root), async {
            far.opened().await;
            far.raw(&answer).await;
        });
        assert_eq!(made.expect_err(what).code(), "transport", "{what}");
    }
}

#[tokio::test]
async fn records_that_lie_are_refused() {
    let record = |path: &str| {
        let mut out = Vec::new();
        Record { path: path.as_bytes().to_vec(), ..Record::default() }.encode(&mut out);
        out
    };
    let cases = [
        record("/etc/passwd"),
        record("a/../../b"),
        [record("a"), record("a")].concat(),
        vec![0xff; 8],
        record("half").into_iter().take(10).collect(),
    ];
    for bytes in cases {
        let (machine, mut far) = scripted().await;
        let options = ScanOptions::default();
        let root = target();
        let (scanned, ()) = tokio::join!(machine.scan(&root, &options), async {
            far.opened().await;
            far.say(1, Event::Data(&bytes)).await;
            far.say(1, Event::Done).await;
        });
        assert_eq!(scanned.expect_err("refused").code(), "transport");
        assert!(machine.is_gone());
    }
}

#[tokio::test]
async fn records_without_end_are_cut_off() {
    let (machine, mut far) = scripted().await;
    let record = {
        let mut out = Vec::new();
        Record { path: b"a".to_vec(), ..Record::default() }.encode(&mut out);
        out.repeat(100)
    };
    let flooding = async {
        far.opened().await;
        loop {
            far.say(1, Event::Data(&record)).await;
            tokio::task::yield_now().await;
        }
    };
    let op = FileOp::new("scan", &target());
    let open = Open::List(At { path: b"/".to_vec(), ..At::default() });
    let listing = records(&machine.link, &op, open, Bounds { bytes: 1 << 20, entries: 1000 });
    let outcome = soon(async {
        tokio::select! {
            outcome = listing => outcome,
            () = flooding => Ok(Vec::new()),
        }
    })
    .await;
    assert_eq!(outcome.expect_err("cut off").code(), "exhausted");
}

#[tokio::test]
async fn credit_without_end_is_only_noise() {
    let (machine, mut far) = scripted().await;
    let (process, ()) = tokio::join!(machine.spawn(Command::new(["x"]).stdin()), async {
        far.opened().await;
        far.say(1, Event::Started).await;
        let flood = frame(1, &Event::Credit(u32::MAX)).repeat(100_000);
        far.raw(&flood).await;
        far.say(1, Event::Exit(0, ExitKind::Exited)).await;
        far.say(1, Event::Done).await;
    });
    let mut process = process.expect("spawn");
    while let Some(output) = soon(process.output.recv()).await {
        output.expect("output");
    }
}

#[tokio::test]
async fn spoiled_conversations_end_and_never_hang() {
    let mut noise = Noise(0x5eed);
    let record = {
        let mut out = Vec::new();
        Record { path: b"a".to_vec(), ..Record::default() }.encode(&mut out);
        out
    };
    for _ in 0..400 {
        let mut answer = [
            frame(1, &Event::Started),
            frame(1, &Event::Data(&noise.bytes(2000))),
            frame(1, &Event::Data(&record)),
            frame(1, &Event::ErrorData(b"oops")),
            frame(1, &Event::Credit(10)),
            frame(1, &Event::Exit(3, ExitKind::Exited)),
            frame(1, &Event::Done),
        ]
        .concat();
        noise.spoil(&mut answer);
        let (machine, mut far) = scripted().await;
        let which = noise.below(4);
        let acting = async {
            match which {
                0 => machine.spawn(Command::new(["x"])).await.map(|mut process| {
                    tokio::spawn(async move { while process.output.recv().await.is_some() {} });
                }),
                1 => match machine.read(&target()).await {
                    Ok(stream) => collect(stream, 1 << 20).await.map(drop),
                    Err(error) => Err(error),
                },
                2 => Files::list(&machine, &target()).await.map(drop),
                _ => machine.write(&target(), sandbar_machine::once("x")).await,
            }
        };
        let answering = async {
            far.opened().await;
            far.raw(&answer).await;
            far.close();
        };
        let (_outcome, ()) = soon(async { tokio::join!(acting, answering) }).await;
    }
}
