//! Promises about commands in a session.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandbar_machine::{
    Lifetime, SandboxClient, Signal,
    conformance::{Need, Verdict},
};

use super::{detached, lacking, open};
use crate::{
    Exec, Manifest, SandboxSession, SessionOptions,
    processes::{ExecCommandArgs, Update, WriteStdinArgs},
};

/// How long a promise waits for output that arrives at once on an idle host, in milliseconds.
const LONG: u64 = 30_000;

/// Writes to the process, and polls until it prints `expected` or exits: on a busy host the output may be late, and the
/// previous holder may not have released the process yet.
async fn hears(session: &SandboxSession, id: u64, chars: &str, expected: &str) -> Update {
    let mut args = WriteStdinArgs::new(id, chars).yield_time_ms(LONG);
    let (mut output, mut omitted_bytes) = (String::new(), 0);
    loop {
        match session.processes().write_stdin(args.clone()).await {
            Ok(update) => {
                output.push_str(&update.output);
                omitted_bytes += update.omitted_bytes;
                if output.contains(expected) || update.process_id.is_none() {
                    return Update { output, omitted_bytes, ..update };
                }
                args = WriteStdinArgs::poll(id);
            }
            Err(error) if error.to_string().contains("another program") => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub(super) async fn a_command_says_how_it_ended(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new().file("d/x", "")).await;
    let result = session.exec(Exec::shell("cat; echo err >&2; exit 3").stdin("in")).await.unwrap();
    assert_eq!((result.stdout_text(), result.stderr_text()), ("in".to_owned(), "err\n".to_owned()));
    assert_eq!(result.exit.code, 3);
    assert_eq!(result.check().unwrap_err().code(), "exec_nonzero");
    let result = session.exec(Exec::new(["sh", "-c", "kill -KILL $$"])).await.unwrap();
    assert_eq!(result.exit.code, 128 + i32::from(Signal::Kill.number()));
    assert_eq!(session.exec(Exec::new(["no-such-program"])).await.unwrap().exit.code, 127);
    let result = session.exec(Exec::shell("pwd; echo $A").cwd("d").env("A", "b")).await.unwrap();
    assert_eq!(result.stdout_text(), format!("{}/d\nb\n", session.machine().features().workspace));
    assert_eq!(session.exec(Exec::new(["pwd"]).cwd("../..")).await.unwrap_err().code(), "invalid_manifest_path");
    session.delete().await.unwrap();
}

pub(super) async fn a_command_that_takes_too_long_is_killed(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let mut said = String::new();
    // On a busy host the command may not have printed anything before the timeout.
    for limit in [300, 3000, 30_000].map(Duration::from_millis) {
        let slow = Exec::shell("echo begun; sleep 1000 & sleep 1000").timeout(limit);
        let begun = Instant::now();
        let error = session.exec(slow).await.unwrap_err();
        if error.code() == "exec_transport_error" && begun.elapsed() > limit + Duration::from_secs(9) {
            // The machine itself was too slow to confirm the kill.
            continue;
        }
        assert_eq!((error.code(), error.retryable()), ("exec_timeout", Some(false)));
        said = error.context()["stdout"].as_str().unwrap().to_owned();
        if !said.is_empty() {
            break;
        }
    }
    assert_eq!(said, "begun\n");
    let look = || Exec::shell("cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '");
    while session.exec(look()).await.unwrap().stdout_text().contains("sleep 1000") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    session.delete().await.unwrap();
}

pub(super) async fn output_is_bounded(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let loud = Exec::shell("echo first; head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last").output_limit(10_000);
    let result = session.exec(loud).await.unwrap();
    let text = result.stdout_text();
    assert!(text.starts_with("first\n") && text.ends_with("last\n") && text.len() <= 10_000, "{} bytes", text.len());
    assert_eq!(result.stdout_omitted + result.stdout.len() as u64, 5_000_012);
    session.delete().await.unwrap();
}

pub(super) async fn a_background_child_does_not_hold_up_the_result(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let result = session.exec(Exec::shell("sleep 1000 & echo done").timeout(Duration::from_secs(60))).await.unwrap();
    assert_eq!(result.stdout_text(), "done\n");
    assert!(result.duration < Duration::from_secs(50), "{:?}", result.duration);
    session.delete().await.unwrap();
}

pub(super) async fn a_process_goes_on_between_looks(client: Arc<dyn SandboxClient>) {
    let session = open(&client, Manifest::new()).await;
    let args = ExecCommandArgs::new("echo one; while [ ! -e go ]; do sleep 0.02; done; echo two").yield_time_ms(300);
    let update = session.processes().exec_command(args).await.unwrap();
    let id = update.process_id.expect("it still runs");
    match update.output.as_str() {
        "" => assert_eq!(hears(&session, id, "", "one\n").await.output, "one\n"),
        said => assert_eq!(said, "one\n"),
    }
    assert_eq!(session.processes().list().len(), 1);
    session.write("go", "").await.unwrap();
    let update = hears(&session, id, "", "an end").await;
    assert_eq!((update.output.as_str(), update.exit_code, update.process_id), ("two\n", Some(0), None));
    let gone = session.processes().write_stdin(WriteStdinArgs::poll(id)).await.unwrap_err();
    assert_eq!(gone.code(), "pty_session_not_found");
    session.delete().await.unwrap();
}

pub(super) async fn a_terminal_can_be_typed_into(client: Arc<dyn SandboxClient>) -> Verdict {
    let session = open(&client, Manifest::new()).await;
    if !session.machine().features().pty {
        return lacking(Need::Terminals);
    }
    let args = ExecCommandArgs::new("read word; echo \"got $word\"; read word").tty().yield_time_ms(250);
    let id = session.processes().exec_command(args).await.unwrap().process_id.expect("it waits");
    let update = hears(&session, id, "hello\n", "got hello").await;
    assert!(update.output.contains("got hello"), "{:?}", update.output);
    session.processes().terminate(id).await.unwrap();
    assert!(session.processes().list().is_empty());
    session.delete().await.unwrap();
    Verdict::Kept
}

pub(super) async fn commands_go_on_in_a_session_that_is_found_again(client: Arc<dyn SandboxClient>) -> Verdict {
    let options = SessionOptions::new(Manifest::new()).lifetime(Lifetime::Detached);
    let session = match detached(&client, options).await {
        Ok(session) => session,
        Err(lack) => return lack,
    };
    if session.machine().commands().is_none() {
        session.delete().await.unwrap();
        return lacking(Need::Kept);
    }
    let echo = "while read word; do echo \"got $word\"; done";
    let args = |cmd: &str| ExecCommandArgs::new(cmd).yield_time_ms(250);
    let terminal = session.processes().exec_command(args(echo).tty()).await.unwrap().process_id.expect("it waits");
    let beat = "while [ ! -e begin ]; do sleep 0.05; done; seq 1000000 1300000; touch flooded; \
                while [ ! -e go ]; do sleep 0.05; done; exit 3";
    let flood = session.processes().exec_command(args(beat)).await.unwrap().process_id.expect("it runs");
    let ended = session.processes().exec_command(args("sleep 1000")).await.unwrap().process_id.expect("it runs");
    let saved = serde_json::to_string(&session.state()).unwrap();
    session.processes().terminate(ended).await.unwrap();
    // Wait until the machine knows that the exit was reported; otherwise the next client gets it again.
    while session.machine().commands().unwrap().list().await.unwrap().len() > 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(session);
    let attach = || async {
        let state = serde_json::from_str(&saved).unwrap();
        SandboxSession::attach(client.clone(), state, SessionOptions::default()).await.unwrap().expect("it lives")
    };
    // A client that does not read output leaves it for the next one.
    let visitor = attach().await;
    assert_eq!(visitor.processes().list().len(), 2);
    let flooding = Exec::shell("touch begin; while [ ! -e flooded ]; do sleep 0.05; done");
    assert_eq!(visitor.exec(flooding).await.unwrap().exit.code, 0);
    let session = attach().await;
    let update = hears(&session, terminal, "hello\n", "got hello").await;
    assert!(update.output.contains("got hello"), "{:?}", update.output);
    assert_eq!(update.process_id, Some(terminal));
    let busy = visitor.processes().write_stdin(WriteStdinArgs::new(terminal, "x\n")).await.unwrap_err();
    assert!(busy.to_string().contains("another program"), "{busy}");
    drop(visitor);
    session.write("go", "").await.unwrap();
    let update = hears(&session, flood, "", "an end").await;
    assert!(update.output.contains("bytes omitted") && update.output.contains("1300000\n"), "{}", update.output);
    assert!(update.omitted_bytes > 1_000_000, "{}", update.omitted_bytes);
    assert_eq!(update.exit_code, Some(3));
    let gone = session.processes().write_stdin(WriteStdinArgs::poll(ended)).await.unwrap_err();
    assert_eq!(gone.code(), "pty_session_not_found");
    assert_eq!(session.state().processes.len(), 1);
    session.stop().await.unwrap();
    assert!(session.processes().list().is_empty() && session.state().processes.is_empty());
    session.delete().await.unwrap();
    Verdict::Kept
}
