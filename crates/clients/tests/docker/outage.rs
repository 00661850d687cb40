//! The engine stops, restarts, runs out of disk space, or has its answers changed on the way.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use sandbar_clients::docker::Engine;
use sandbar_machine::{Command, MachinePath, MachineSpec, Output, Process, SandboxClient, Target, once};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    time::{sleep, timeout},
};

use crate::{
    bench::{BUSYBOX, client, engine, has_engine, nothing_left, run, sh, soon},
    second::Second,
};

/// A process of a machine that is gone ends with an error.
async fn ends_with_an_error(process: &mut Process) {
    let ended = soon(async {
        loop {
            match process.output.recv().await {
                Some(Err(error)) => break error.code(),
                Some(Ok(Output::Exit(exit))) => panic!("{exit:?}"),
                Some(Ok(_)) => {}
                None => break "silence",
            }
        }
    })
    .await;
    assert!(matches!(ended, "gone" | "transport"), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_ends_and_comes_back_is_used_again() {
    let Some(mut second) = Second::start(None).await else { return };
    let client = second.client(Duration::from_secs(60));
    for signal in [Signal::TERM, Signal::KILL] {
        let machine = soon(client.create(MachineSpec::default())).await.expect("create");
        let mut process = soon(machine.spawn(Command::new(["sleep", "1000"]))).await.expect("spawn");
        second.end(signal);
        ends_with_an_error(&mut process).await;
        let after = soon(machine.spawn(Command::new(["true"]))).await.map(drop).expect_err("gone");
        assert!(matches!(after.code(), "gone" | "transport"), "{after}");
        let created = soon(client.create(MachineSpec::default())).await.map(drop).expect_err("there is no engine");
        assert_eq!(created.code(), "start", "{created}");
        assert!(created.to_string().contains("DOCKER_HOST"), "{created}");
        // No process can confirm that the machine is gone, but the call must still return.
        let begun = Instant::now();
        let stopped = soon(machine.stop()).await;
        assert!(
            stopped.as_ref().err().is_none_or(|error| matches!(error.code(), "transport" | "start")),
            "{stopped:?}"
        );
        assert!(begun.elapsed() < Duration::from_secs(40));
        second.run().await;
        drop(machine);
        second.nothing_left().await;
        let again = soon(client.create(MachineSpec::default())).await.expect("the same client");
        assert_eq!(sh(&*again, "echo again").await, "again\n");
        soon(again.stop()).await.expect("stop");
        second.nothing_left().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_an_error_and_not_the_end() {
    let Some(second) = Second::start(Some("40m")).await else { return };
    let client = second.client(Duration::from_secs(60));
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    let at = |path: &str| Target::from(MachinePath::new(path).expect("a path"));
    let filled = sh(&*machine, "busybox dd if=/dev/zero of=/workspace/filler bs=64k 2>&1; echo ended").await;
    assert!(filled.contains("No space left on device") && filled.ends_with("ended\n"), "{filled}");
    let written = soon(machine.write(&at("/workspace/one-more"), once(vec![1u8; 1 << 20]))).await.expect_err("full");
    let reason = std::error::Error::source(&written).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{written}: {reason}").contains("No space left on device"), "{written:?}");
    assert_eq!(sh(&*machine, "echo alive").await, "alive\n");
    let other = soon(client.create(MachineSpec::default())).await.map(drop).expect_err("no room for another");
    assert_eq!(other.code(), "start", "{other}");
    let reason = std::error::Error::source(&other).map(ToString::to_string).unwrap_or_default();
    assert!(format!("{other}: {reason}").contains("no space left"), "{other:?}");
    soon(machine.remove(&at("/workspace/filler"))).await.expect("what is too much can be removed");
    soon(machine.write(&at("/workspace/one-more"), once(vec![1u8; 1 << 20]))).await.expect("room again");
    soon(machine.stop()).await.expect("stop");
    second.nothing_left().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_that_is_killed_takes_its_machine_with_it() {
    if !has_engine().await {
        return;
    }
    let client = client(BUSYBOX).label("sandbar.test", "guest-killed");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    let mut process = soon(machine.spawn(Command::new(["sleep", "1000"]))).await.expect("spawn");
    let name = machine.handle().state["container"].as_str().expect("a name").to_owned();
    let state = soon(engine().inspect_container(&name, None)).await.expect("it is there").state.expect("a state");
    let pid = state.pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).expect("its first process");
    if kill_process(pid, Signal::KILL).is_err() {
        println!("LEFT OUT: only root can kill a guest from outside");
        return;
    }
    ends_with_an_error(&mut process).await;
    let after = soon(machine.spawn(Command::new(["true"]))).await.map(drop).expect_err("gone");
    assert!(matches!(after.code(), "gone" | "transport"), "{after}");
    assert!(soon(client.attach(&machine.handle())).await.expect("a look").is_none());
    soon(machine.stop()).await.expect("stopping what is gone is fine");
    nothing_left("sandbar.test=guest-killed").await;
}

/// What a relay does to the engine's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mischief {
    /// Waits before every piece.
    Slow,
    /// Flips every byte, once it is switched on.
    Garble,
    /// Answers a request for this path with this text, after the engine has processed it.
    Answer(&'static str, &'static [u8]),
    /// Answers a request for this path with this text, without passing it to the engine.
    Swallow(&'static str, &'static [u8]),
}

/// A relay to the engine that changes answers.
fn crooked(place: &Path, mischief: Mischief) -> (Engine, Arc<AtomicBool>) {
    let socket = place.join("crooked.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let on = Arc::new(AtomicBool::new(false));
    let told = on.clone();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = UnixStream::connect("/var/run/docker.sock").await.expect("the engine");
            tokio::spawn(between(near, far, mischief, told.clone()));
        }
    });
    let engine = Engine::at(&format!("unix://{}", socket.display())).expect("an address");
    (engine.patience(Duration::from_secs(30)), on)
}

async fn between(mut near: UnixStream, mut far: UnixStream, mischief: Mischief, on: Arc<AtomicBool>) {
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        tokio::select! {
            count = near.read(&mut asked) => {
                let Ok(count @ 1..) = count else { return };
                let line = asked[..count].split(|byte| *byte == b'\r').next().unwrap_or_default();
                let path = String::from_utf8_lossy(line).into_owned();
                let answer = match mischief {
                    Mischief::Answer(part, with) | Mischief::Swallow(part, with) if path.contains(part) => Some(with),
                    _ => None,
                };
                if !(answer.is_some() && matches!(mischief, Mischief::Swallow(..)))
                    && far.write_all(&asked[..count]).await.is_err()
                {
                    return;
                }
                if let Some(with) = answer {
                    if matches!(mischief, Mischief::Answer(..)) {
                        has_done_it(&mut near, &mut far).await;
                    }
                    let _gone = near.write_all(with).await;
                    return;
                }
            }
            count = far.read(&mut answered) => {
                let Ok(count @ 1..) = count else { return };
                if mischief == Mischief::Slow {
                    sleep(Duration::from_millis(50)).await;
                }
                if on.load(Ordering::Relaxed) {
                    answered[..count].iter_mut().for_each(|byte| *byte = !*byte);
                }
                if near.write_all(&answered[..count]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Passes the rest of a request to the engine, and waits until the engine has processed it.
async fn has_done_it(near: &mut UnixStream, far: &mut UnixStream) {
    let ((mut near, _), (mut answer, mut far)) = (near.split(), far.split());
    let mut first = [0; 1];
    let done = async {
        tokio::select! {
            _ = tokio::io::copy(&mut near, &mut far) => {}
            _ = answer.read(&mut first) => {}
        }
    };
    let _it_may_never = timeout(Duration::from_secs(25), done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_engine_is_only_slow() {
    if !has_engine().await {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let (engine, _) = crooked(place.path(), Mischief::Slow);
    let client = client(BUSYBOX).engine(engine).label("sandbar.test", "slow");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    assert_eq!(sh(&*machine, "echo well").await, "well\n");
    soon(machine.stop()).await.expect("stop");
    nothing_left("sandbar.test=slow").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_turns_to_garbage_ends_its_machine() {
    if !has_engine().await {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let (engine, on) = crooked(place.path(), Mischief::Garble);
    let client = client(BUSYBOX).engine(engine).label("sandbar.test", "garbled");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    let mut process = soon(machine.spawn(Command::new(["sleep", "1000"]))).await.expect("spawn");
    on.store(true, Ordering::Relaxed);
    let answer = soon(machine.spawn(Command::new(["true"]))).await.map(drop).expect_err("nonsense");
    assert!(matches!(answer.code(), "gone" | "transport"), "{answer}");
    ends_with_an_error(&mut process).await;
    drop((process, machine));
    nothing_left("sandbar.test=garbled").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_answer_of_an_engine_at_any_step_leaves_anything() {
    if !has_engine().await {
        return;
    }
    const GARBAGE: &[u8] = b"\0\xff\r\n\r\n";
    const REFUSAL: &[u8] =
        b"HTTP/1.1 500 No\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"message\":\"x\"}";
    const NOTHING: &[u8] = b"";
    let steps = ["/images/", "/containers/create", "/archive", "/attach", "/start"];
    let tried = steps.into_iter().flat_map(|step| {
        let after = [GARBAGE, NOTHING].map(|answer| Mischief::Answer(step, answer));
        after.into_iter().chain([Mischief::Swallow(step, REFUSAL)])
    });
    let tried = tried.map(|mischief| async move {
        let place = tempfile::tempdir().expect("a directory");
        let (engine, _) = crooked(place.path(), mischief);
        let client = client(BUSYBOX)
            .engine(engine)
            .label("sandbar.test", "crooked")
            .label("sandbar.step", format!("{mischief:?}"));
        match soon(client.create(MachineSpec::default())).await {
            Ok(machine) => {
                // The changed answer was true: the engine had processed the request.
                assert_eq!(run(&*machine, &["echo", "well"]).await.0, "well\n", "{mischief:?}");
                soon(machine.stop()).await.expect("stop");
            }
            Err(error) => assert!(matches!(error.code(), "start" | "invalid"), "{mischief:?}: {error}"),
        }
        place
    });
    // The directories stay until the end: late removals use the same sockets.
    let _places: Vec<tempfile::TempDir> =
        futures::StreamExt::collect(futures::StreamExt::buffer_unordered(futures::stream::iter(tried), 8)).await;
    nothing_left("sandbar.test=crooked").await;
}
