//! Every failure is an error within a bounded time, and leaves nothing behind.

use std::{
    path::Path,
    process::{Command as Program, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use bollard::query_parameters::KillContainerOptions;
use sandbar_clients::docker::Engine;
use sandbar_machine::{Command, ExitReason, Machine, MachineSpec, Output, SandboxClient};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::watch,
    time::{sleep, timeout},
};

use crate::bench::{DEBIAN, EMPTY, client, engine, has_engine, left, nothing_left, sh, soon};

fn container(machine: &dyn Machine) -> String {
    machine.handle().state.get("container").and_then(|name| name.as_str()).expect("a name").to_owned()
}

/// A socket on which every connection gets the same answer.
fn fake(place: &Path, answer: &'static [u8], then: Then) -> Engine {
    let socket = place.join("engine.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = [0; 64];
                let _asked = stream.read(&mut asked).await;
                let _gone = stream.write_all(answer).await;
                if then == Then::Wait {
                    sleep(Duration::from_secs(600)).await;
                }
            });
        }
    });
    Engine::at(&format!("unix://{}", socket.display())).expect("an address").patience(Duration::from_secs(1))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Close,
    Wait,
}

#[tokio::test]
async fn an_engine_that_sends_garbage_is_an_error_soon() {
    let table: [(&'static [u8], Then); 6] = [
        (b"", Then::Close),
        (b"", Then::Wait),
        (b"\0\xffgarbage\r\n\r\n", Then::Close),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\": [", Then::Close),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 70\r\n\r\n{\"a\": [", Then::Wait),
        (b"HTTP/1.1 500 Internal\r\nContent-Length: 3\r\n\r\nwhy", Then::Close),
    ];
    for (answer, then) in table {
        let place = tempfile::tempdir().expect("a directory");
        let client = client(EMPTY).engine(fake(place.path(), answer, then));
        let begun = Instant::now();
        let error = soon(client.create(MachineSpec::default())).await.map(drop).expect_err("an error");
        assert_eq!(error.code(), "start", "{answer:?}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(50), "{answer:?}");
    }
}

#[tokio::test]
async fn an_engine_that_an_agent_may_not_use_says_what_to_do() {
    // Root may open every socket, so the test must run as another user.
    if rustix::process::getuid().is_root() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let engine = fake(place.path(), b"", Then::Close);
    std::fs::set_permissions(place.path().join("engine.sock"), std::os::unix::fs::PermissionsExt::from_mode(0o000))
        .expect("closed");
    let error = client(EMPTY).engine(engine).create(MachineSpec::default()).await.map(drop).expect_err("closed");
    assert!(error.to_string().contains("group `docker`"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_container_is_gone_and_nothing_is_left() {
    if !has_engine().await {
        return;
    }
    let machine =
        soon(client(DEBIAN).label("sandbar.test", "killed").create(MachineSpec::default())).await.expect("create");
    let mut process = soon(machine.spawn(Command::new(["sleep", "1000"]))).await.expect("spawn");
    let kill = KillContainerOptions { signal: "KILL".to_owned() };
    soon(engine().kill_container(&container(&*machine), Some(kill))).await.expect("kill");
    let ended = soon(async {
        loop {
            match process.output.recv().await {
                Some(Err(error)) => break Some(error),
                Some(Ok(Output::Exit(exit))) => panic!("{exit:?}"),
                Some(Ok(_)) => {}
                None => break None,
            }
        }
    })
    .await;
    assert!(ended.is_some_and(|error| matches!(error.code(), "gone" | "transport")));
    let after = soon(machine.spawn(Command::new(["true"]))).await.map(drop).expect_err("gone");
    assert!(matches!(after.code(), "gone" | "transport"), "{after}");
    soon(machine.stop()).await.expect("stopping what is gone is fine");
    nothing_left("sandbar.test=killed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_container_can_be_stopped_dropped_and_deleted() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "paused");
    for way in 0..3 {
        let machine = soon(client.create(MachineSpec::default())).await.expect("create");
        soon(engine().pause_container(&container(&*machine))).await.expect("pause");
        match way {
            0 => soon(machine.stop()).await.expect("stop"),
            1 => drop(machine),
            _ => soon(client.delete(&machine.handle())).await.expect("delete"),
        }
        nothing_left("sandbar.test=paused").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_container_answers_nothing_and_says_so() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "silent");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    soon(engine().pause_container(&container(&*machine))).await.expect("pause");
    let error = timeout(Duration::from_secs(120), machine.spawn(Command::new(["true"]))).await.expect("an end");
    assert_eq!(error.map(drop).expect_err("silence").code(), "transport");
    drop(machine);
    nothing_left("sandbar.test=silent").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_holds_in_a_container_that_is_paused() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "overdue");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    let command = Command::new(["sh", "-c", "echo begun; exec sleep 1000"]).deadline(Duration::from_secs(2));
    let mut process = soon(machine.spawn(command)).await.expect("spawn");
    assert!(matches!(soon(process.output.recv()).await, Some(Ok(Output::Stdout(_)))), "it runs");
    soon(engine().pause_container(&container(&*machine))).await.expect("pause");
    let Some(Ok(Output::Exit(exit))) = soon(process.output.recv()).await else { panic!("an exit") };
    assert_eq!(exit.reason, ExitReason::Deadline);
    nothing_left("sandbar.test=overdue").await;
}

/// A relay to the engine that can stop forwarding.
fn relay(place: &Path) -> (Engine, watch::Sender<bool>) {
    let socket = place.join("relay.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let (freeze, frozen) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let far = UnixStream::connect("/var/run/docker.sock").await.expect("the engine");
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            tokio::spawn(carry(near_in, far_out, frozen.clone()));
            tokio::spawn(carry(far_in, near_out, frozen.clone()));
        }
    });
    let engine = Engine::at(&format!("unix://{}", socket.display())).expect("an address");
    // Long enough for a busy engine.
    (engine.patience(Duration::from_secs(10)), freeze)
}

async fn carry(
    mut from: tokio::net::unix::OwnedReadHalf,
    mut to: tokio::net::unix::OwnedWriteHalf,
    mut frozen: watch::Receiver<bool>,
) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let Ok(count) = from.read(&mut bytes).await else { return };
        // The sender is dropped at the end of the test: then every connection is closed.
        if frozen.wait_for(|frozen| !frozen).await.is_err()
            || count == 0
            || to.write_all(&bytes[..count]).await.is_err()
        {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_stops_answering_blocks_no_caller() {
    if !has_engine().await {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let (engine, freeze) = relay(place.path());
    let client = client(DEBIAN).engine(engine).label("sandbar.test", "frozen");
    let machine = soon(client.create(MachineSpec::default())).await.expect("create");
    assert_eq!(sh(&*machine, "echo well").await, "well\n");
    freeze.send(true).expect("frozen");
    let begun = Instant::now();
    let stopped = soon(machine.stop()).await.expect_err("the engine cannot confirm the removal");
    assert_eq!(stopped.code(), "transport", "{stopped}");
    let created = soon(client.create(MachineSpec::default())).await.map(drop).expect_err("no answer");
    assert_eq!(created.code(), "start", "{created}");
    assert!(begun.elapsed() < Duration::from_secs(90));
    // The client closed its stream, so the machine ends as soon as the engine sees that.
    freeze.send(false).expect("thawed");
    soon(machine.stop()).await.expect("the second try");
    drop(machine);
    nothing_left("sandbar.test=frozen").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_is_given_up_leaves_nothing() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "cancelled");
    drop(soon(client.create(MachineSpec::default())).await.expect("create"));
    let mut given_up = 0;
    for step in 0..24 {
        let patience = Duration::from_millis(step * 25 + step * step % 17);
        match timeout(patience, client.create(MachineSpec::default())).await {
            Ok(made) => drop(made.expect("create")),
            Err(_given_up) => given_up += 1,
        }
    }
    assert!(given_up > 3, "all were too quick");
    nothing_left("sandbar.test=cancelled").await;
    // The container must not appear later either.
    sleep(Duration::from_secs(1)).await;
    nothing_left("sandbar.test=cancelled").await;
}

/// Set for the process that will be killed: the file that it creates when its machine is ready.
const VICTIM: &str = "SANDBAR_TEST_VICTIM";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_harness_leaves_nothing() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "orphan");
    if let Some(ready) = std::env::var_os(VICTIM) {
        let machine: Arc<dyn Machine> = soon(client.create(MachineSpec::default())).await.expect("create");
        std::fs::write(ready, "").expect("a file");
        sleep(Duration::from_secs(120)).await;
        drop(machine);
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let ready = place.path().join("ready");
    let mut victim = Program::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "faults::a_killed_harness_leaves_nothing"])
        .env(VICTIM, &ready)
        .stdout(Stdio::null())
        .spawn()
        .expect("another harness");
    // Until the container runs, only the engine's list shows it.
    soon(async {
        while !ready.exists() {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(!left("sandbar.test=orphan").await.is_empty());
    victim.kill().expect("kill -9");
    victim.wait().expect("reaped");
    nothing_left("sandbar.test=orphan").await;
}
