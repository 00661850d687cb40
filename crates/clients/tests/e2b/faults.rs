//! A service that refuses, breaks off, is slow, or answers with garbage.

use std::{error::Error as _, sync::Arc, time::Duration};

use sandbar_clients::E2b;
use sandbar_fakes::{Fault, On, e2b::Server};
use sandbar_machine::{
    Command, Lifetime, Machine, MachineError, MachineSpec, Output, Process, SandboxClient, Target, collect, once,
};

use crate::bench::{client, eventually, run};

const START: &str = "/process.Process/Start";

async fn machine(server: &Server) -> Arc<dyn Machine> {
    client(server).create(MachineSpec::default()).await.expect("a machine")
}

/// A machine that every client may attach to.
async fn detached(server: &Server) -> Arc<dyn Machine> {
    client(server).create(MachineSpec::default().lifetime(Lifetime::Detached)).await.expect("a machine")
}

async fn create_fails(client: &E2b) -> MachineError {
    client.create(MachineSpec::default()).await.map(|_| ()).expect_err("it is refused")
}

/// An error with its causes.
fn words(error: &MachineError) -> String {
    let (mut words, mut cause) = (error.to_string(), error.source());
    while let Some(because) = cause {
        words = format!("{words}: {because}");
        cause = because.source();
    }
    words
}

#[tokio::test]
async fn a_refused_key_is_named_and_never_repeated() {
    let server = Server::start().unwrap();
    let key = "e2b_0123456789abcdef";
    let wrong = client(&server).key(key);
    let echo = format!("{{\"code\":401,\"message\":\"no such key: {key}\"}}");
    server.fault(On::post("/sandboxes"), Fault::Status(401, echo), 1);
    for _ in 0..2 {
        let error = create_fails(&wrong).await;
        assert_eq!(error.code(), "invalid");
        let said = words(&error);
        assert!(said.starts_with("E2B_API_KEY: was refused (") && said.contains("e2b.dev/dashboard"), "{said}");
        assert!(!format!("{error:?} {said} {wrong:?}").contains(key), "{said}");
    }
    let machine = detached(&server).await;
    let attached = wrong.attach(&machine.handle()).await.map(|_| ());
    assert_eq!(attached.expect_err("refused").code(), "invalid");
    assert!(!format!("{machine:?}").contains(server.key()));
}

#[tokio::test]
async fn an_unknown_template_is_named() {
    let server = Server::start().unwrap();
    let client = E2b::template("nothing").key(server.key()).api_url(server.url());
    let error = create_fails(&client).await;
    assert_eq!(error.code(), "invalid");
    assert!(words(&error).contains("template \"nothing\": is not there"), "{}", words(&error));
}

#[tokio::test]
async fn a_busy_service_is_asked_again() {
    let server = Server::start().unwrap();
    server.fault(On::post("/sandboxes"), Fault::RetryAfter(429, 1), 1);
    let machine = detached(&server).await;
    server.fault(On::post("/sandboxes/*/connect"), Fault::Status(503, String::new()), 1);
    assert!(client(&server).attach(&machine.handle()).await.unwrap().is_some());
    server.fault(On::delete("/sandboxes/*"), Fault::LoseReply, 1);
    machine.stop().await.unwrap();
    assert!(server.sandboxes().is_empty());
}

#[tokio::test]
async fn a_service_that_stays_busy_is_a_temporary_error_with_its_reason() {
    let server = Server::start().unwrap();
    server.fault(On::post("/sandboxes"), Fault::Status(500, "{\"code\":500,\"message\":\"no room\"}".into()), 1);
    server.fault(On::post("/sandboxes"), Fault::RetryAfter(429, 3600), 1);
    for reason in ["no room", "429"] {
        let error = create_fails(&client(&server)).await;
        assert!(error.retryable() && error.code() == "transport", "{error:?}");
        assert!(words(&error).contains(reason), "{}", words(&error));
    }
    assert!(server.sandboxes().is_empty());
}

#[tokio::test]
async fn a_sandbox_whose_answer_was_lost_is_removed() {
    let server = Server::start().unwrap();
    for fault in [Fault::LoseReply, Fault::CutAfter(10)] {
        server.fault(On::post("/sandboxes"), fault, 1);
        let detached = MachineSpec::default().lifetime(Lifetime::Detached);
        let error = client(&server).create(detached).await.map(|_| ()).expect_err("there is no answer");
        assert_eq!(error.code(), "transport", "{error:?}");
        assert!(server.sandboxes().is_empty());
    }
}

#[tokio::test]
async fn a_machine_that_cannot_be_made_ready_is_not_left() {
    let server = Server::start().unwrap();
    for fault in [Fault::Status(500, String::new()), Fault::Garbage, Fault::LoseReply] {
        server.fault(On::post("/filesystem.Filesystem/MakeDir"), fault, 1);
        assert_eq!(create_fails(&client(&server)).await.code(), "transport");
        assert!(server.sandboxes().is_empty());
    }
}

#[tokio::test]
async fn garbage_is_an_error_and_no_panic() {
    let server = Server::start().unwrap();
    server.fault(On::post("/sandboxes"), Fault::Garbage, 1);
    assert_eq!(create_fails(&client(&server)).await.code(), "transport");
    let machine = detached(&server).await;
    server.fault(On::post("/sandboxes/*/connect"), Fault::Garbage, 1);
    assert_eq!(client(&server).attach(&machine.handle()).await.unwrap_err().code(), "transport");
    server.fault(On::post("/sandboxes/*/snapshots"), Fault::Garbage, 1);
    assert_eq!(machine.snapshots().unwrap().take().await.unwrap_err().code(), "transport");
    server.fault(On::post(START), Fault::Garbage, 1);
    assert_eq!(machine.spawn(Command::new(["true"])).await.unwrap_err().code(), "transport");
    server.fault(On::any("/files"), Fault::Status(200, "nonsense".to_owned()), 1);
    let target = Target::from(machine.features().workspace.join("file").unwrap());
    assert_eq!(machine.write(&target, once("x")).await.unwrap_err().code(), "transport", "nothing was uploaded");
    assert!(run(&*machine, Command::new(["true"])).await.1.success(), "and the machine works on");
}

/// Number of bytes that a process prints, and its exit or error.
async fn ending(process: &mut Process) -> (usize, Result<Output, MachineError>) {
    let mut bytes = 0;
    loop {
        match process.output.recv().await.expect("an end") {
            Ok(Output::Stdout(piece)) => bytes += piece.len(),
            end => return (bytes, end),
        }
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_an_error_and_the_command_is_killed() {
    let server = Server::start().unwrap();
    let machine = machine(&server).await;
    server.fault(On::post(START), Fault::CutAfter(4000), 1);
    let beat = "while :; do echo 0123456789012345678901234567890123456789; echo x >>beat; sleep 0.02; done";
    let mut process = machine.spawn(Command::new(["sh", "-c", beat])).await.unwrap();
    let (bytes, end) = ending(&mut process).await;
    let error = end.expect_err("it was cut");
    assert!(error.code() == "transport" && bytes > 0, "{error:?} after {bytes} bytes");
    assert_eq!(process.output.recv().await.map(|_| ()), None, "nothing follows");
    // The caller still holds the process, which reports nothing any more.
    let size = async || run(&*machine, Command::new(["wc", "-c", "beat"])).await.0;
    let began = std::time::Instant::now();
    loop {
        let before = size().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        if before == size().await {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it runs on");
    }
    drop(process);
}

#[tokio::test]
async fn a_slow_stream_is_only_slow() {
    let server = Server::start().unwrap();
    let machine = machine(&server).await;
    server.fault(On::post(START), Fault::SlowBytes { at_once: 3, every: Duration::from_millis(1) }, 1);
    let mut process = machine.spawn(Command::new(["seq", "1", "200"])).await.unwrap();
    let (bytes, end) = ending(&mut process).await;
    assert!(matches!(end, Ok(Output::Exit(exit)) if exit.success()), "{end:?}");
    assert_eq!(bytes, 692);
}

#[tokio::test]
async fn input_that_is_lost_ends_the_command() {
    let server = Server::start().unwrap();
    let machine = machine(&server).await;
    let mut process = machine.spawn(Command::new(["cat"]).stdin()).await.unwrap();
    server.fault(On::post("/process.Process/SendInput"), Fault::LoseReply, 1);
    process.stdin.as_ref().unwrap().send("half of it".into()).await.unwrap();
    let (_, end) = ending(&mut process).await;
    assert_eq!(end.expect_err("its input is not known").code(), "transport");
    eventually("it is killed", || {
        let killed = |request: &sandbar_fakes::Request| request.path == "/process.Process/SendSignal";
        server.requests().iter().any(killed)
    })
    .await;
}

/// Waits until no process of the machine has this command line.
async fn ends(machine: &dyn Machine, words: &str) {
    let script = r#"for at in /proc/[0-9]*/cmdline; do tr '\0' ' ' <"$at"; echo; done 2>/dev/null | grep -cx "$1 ""#;
    let began = std::time::Instant::now();
    while run(machine, Command::new(["sh", "-c", script, "sh", words])).await.0 != b"0\n" {
        assert!(began.elapsed() < Duration::from_secs(60), "{words} runs on");
    }
}

#[tokio::test]
async fn a_command_whose_start_is_in_doubt_is_killed() {
    let server = Server::start().unwrap();
    let machine = machine(&server).await;
    let kills = || server.requests().iter().filter(|request| request.path == "/process.Process/SendSignal").count();
    server.fault(On::post(START), Fault::LoseReply, 1);
    let error = machine.spawn(Command::new(["sleep", "98767"])).await.unwrap_err();
    assert_eq!(error.code(), "transport");
    eventually("a kill", || kills() == 1).await;
    ends(&*machine, "sleep 98767").await;
    // The same if the caller gives up because the reply is slow.
    server.fault(On::post(START), Fault::SlowBytes { at_once: 1, every: Duration::from_secs(1) }, 1);
    let given_up = tokio::time::timeout(Duration::from_secs(1), machine.spawn(Command::new(["sleep", "98768"]))).await;
    assert!(given_up.is_err());
    eventually("a second kill", || kills() == 2).await;
    ends(&*machine, "sleep 98768").await;
    // But not if the service says that it started nothing.
    let missing = Command::new(["true"]).cwd(machine.features().workspace.join("missing").unwrap());
    assert_eq!(machine.spawn(missing).await.unwrap_err().code(), "not_found");
    assert_eq!(kills(), 2);
}

#[tokio::test]
async fn a_kill_is_tried_again() {
    let server = Server::start().unwrap();
    let machine = machine(&server).await;
    let process = machine.spawn(Command::new(["sh", "-c", "sleep 98766 & sleep 98766"])).await.unwrap();
    server.forget_requests();
    server.fault(On::post(START), Fault::LoseReply, 1);
    drop(process);
    eventually("two kills", || server.requests().iter().filter(|request| request.path == START).count() > 1).await;
    ends(&*machine, "sleep 98766").await;
}

#[tokio::test]
async fn a_sandbox_that_vanished_is_gone() {
    let server = Server::start().unwrap();
    let machine = detached(&server).await;
    client(&server).delete(&machine.handle()).await.unwrap();
    assert_eq!(machine.spawn(Command::new(["true"])).await.unwrap_err().code(), "gone");
    let target = Target::from(machine.features().workspace.join("file").unwrap());
    let read = async { collect(machine.read(&target).await?, 10).await };
    assert_eq!(read.await.unwrap_err().code(), "gone");
    assert_eq!(machine.write(&target, once("x")).await.unwrap_err().code(), "gone");
    assert_eq!(machine.snapshots().unwrap().take().await.unwrap_err().code(), "gone");
    assert!(client(&server).attach(&machine.handle()).await.unwrap().is_none());
    machine.stop().await.expect("stopping what is gone is fine");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named() {
    let nowhere = E2b::template("base").key("e2b_0123456789").api_url("http://127.0.0.1:9");
    let error = create_fails(&nowhere).await;
    assert_eq!(error.code(), "start");
    for part in ["cannot reach http://127.0.0.1:9", "cannot reach E2B at http://127.0.0.1:9", "E2B_API_URL"] {
        assert!(words(&error).contains(part), "{}", words(&error));
    }
}
