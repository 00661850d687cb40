//! Promises about what flows in and out of a process.

use std::time::Duration;

use bytes::Bytes;
use tokio::{sync::mpsc::error::SendTimeoutError, time::Instant};

use super::rig::{Rig, exit, finish, pause, send, shell, signal, soon};
use crate::{Command, Exit, ExitReason, Limits, MachineSpec, Output, SandboxClient, Signal};

/// The exit is the last word of the command itself.
pub async fn everything_printed_arrives_before_the_exit(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for _ in 0..5 {
        let mut process = rig.spawn(shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; exit 3")).await;
        let (mut stdout, mut stderr) = (0, 0);
        loop {
            match soon("output", process.output.recv()).await.expect("an exit").expect("the machine lives") {
                Output::Stdout(bytes) => stdout += bytes.len(),
                Output::Stderr(bytes) => stderr += bytes.len(),
                Output::Omitted(count) => panic!("{count} bytes were omitted"),
                Output::Exit(_) => break,
            }
        }
        assert_eq!((stdout, stderr), (300_000, 300_000));
    }
}

/// Standard output and standard error are two streams.
pub async fn output_and_errors_stay_apart(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let ran = rig.sh("echo out; echo err >&2; echo out; echo err >&2").await;
    assert_eq!((ran.stdout.as_ref(), ran.stderr.as_ref()), (b"out\nout\n".as_slice(), b"err\nerr\n".as_slice()));
}

/// Joined, they are one, and what was printed first comes first.
pub async fn joined_output_keeps_its_order(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = "i=0; while [ $i -lt 500 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; exit 3";
    let ran = finish(rig.spawn(shell(script).joined()).await).await;
    let expected: String = (0..500).map(|i| format!("out {i}\nerr {i}\n")).collect();
    assert_eq!((ran.text(), ran.stderr.as_ref(), ran.exit), (expected, b"".as_slice(), Exit::code(3)));
}

/// Output is bytes: zeros, newlines and invalid UTF-8 are not touched.
pub async fn every_byte_passes_through_output(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = r#"i=0; while [ $i -lt 256 ]; do printf "\\$(printf %03o $i)"; i=$((i+1)); done"#;
    assert_eq!(rig.sh(script).await.stdout, (0..=255u8).collect::<Vec<_>>());
}

/// A lot of output arrives without a byte missing, doubled or out of order.
pub async fn sixteen_megabytes_arrive_exactly(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let ran = rig.sh("seq 1 2400000").await;
    let expected: String = (1..=2_400_000).map(|number| format!("{number}\n")).collect();
    assert!(expected.len() > 16 << 20);
    assert_eq!(ran.stdout.len(), expected.len());
    assert!(ran.stdout == expected, "the right number of bytes, but not the right bytes");
}

/// What goes in comes out.
pub async fn a_megabyte_of_input_comes_back(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(Command::new(["cat"]).stdin()).await;
    let stdin = process.stdin.take().expect("it has input");
    let piece: Bytes = (0..=255u8).cycle().take(16 << 10).collect();
    let copy = piece.clone();
    let feed = async move {
        for _ in 0..64 {
            soon("stdin", stdin.send(copy.clone())).await.expect("cat takes input");
        }
    };
    let ((), ran) = futures::future::join(feed, finish(process)).await;
    assert!(ran.exit.success());
    assert!(ran.stdout == piece.repeat(64), "{} bytes came back, not the same", ran.stdout.len());
}

/// Dropping the sender is the end of the input, after everything that was sent.
pub async fn a_reader_ends_when_its_input_is_closed(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(shell("cat; echo done").stdin()).await;
    send(&process, "last words ").await;
    let ran = finish(process).await;
    assert_eq!(ran.text(), "last words done\n");
}

/// A command that was given no input does not wait for any.
pub async fn without_input_a_reader_sees_its_end_at_once(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(Command::new(["cat"])).await;
    assert!(process.stdin.is_none());
    let ran = finish(process).await;
    assert!(ran.exit.success() && ran.stdout.is_empty(), "{ran:?}");
}

/// A process that does not read its input can be killed, and its unread input is bounded.
pub async fn a_kill_is_not_queued_behind_input(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(Command::new(["sleep", "1000"]).stdin()).await;
    let stdin = process.stdin.clone().expect("it has input");
    let piece = Bytes::from(vec![0; 64 << 10]);
    let mut taken = 0;
    loop {
        match stdin.send_timeout(piece.clone(), Duration::from_secs(1)).await {
            Ok(()) => taken += piece.len(),
            Err(SendTimeoutError::Timeout(_)) => break,
            Err(SendTimeoutError::Closed(_)) => panic!("the input closed by itself"),
        }
        assert!(taken < 64 << 20, "unread input is hoarded without a bound");
    }
    signal(&process, Signal::Kill).await;
    let ended = exit(&mut process).await;
    assert_eq!((ended.code, ended.reason), (137, ExitReason::Signaled));
}

/// A process whose output is not read blocks no other operation.
pub async fn an_unread_process_holds_up_nobody_else(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut endless = rig.spawn(Command::new(["yes"])).await;
    pause(1000).await;
    assert_eq!(rig.sh("echo free").await.text(), "free\n");
    rig.put("file", "also free").await;
    assert_eq!(rig.get("file").await, "also free");
    let (mut read, begun) = (0, Instant::now());
    while read < 8 << 20 {
        match soon("output", endless.output.recv()).await.expect("more").expect("the machine lives") {
            Output::Stdout(bytes) => {
                assert!(bytes.iter().all(|byte| b"y\n".contains(byte)));
                read += bytes.len();
            }
            other => panic!("{other:?} after {read} bytes and {:?}", begun.elapsed()),
        }
    }
    signal(&endless, Signal::Kill).await;
    assert_eq!(exit(&mut endless).await.reason, ExitReason::Signaled);
}

/// A process whose output is not read has to wait: its unread output is bounded.
pub async fn unread_output_is_not_hoarded(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let process = rig.spawn(shell("while :; do head -c 1048576 /dev/zero; echo x >>megabytes; done")).await;
    rig.stops_growing("megabytes").await;
    let hoarded = rig.stat("megabytes").await.map_or(0, |entry| entry.size / 2);
    assert!(hoarded < 64, "{hoarded} MiB are waiting for a reader");
    drop(process);
}

/// The exit arrives when the command itself ends; later output of its children arrives after it.
pub async fn the_exit_does_not_wait_for_background_children(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = "(while ! test -e go; do sleep 0.05; done; echo late) & echo early; exit 4";
    let mut process = rig.spawn(shell(script)).await;
    let (mut before, mut after, mut ended) = (Vec::new(), Vec::new(), None);
    while let Some(output) = soon("output", process.output.recv()).await {
        match output.expect("the machine lives") {
            Output::Stdout(bytes) if ended.is_none() => before.extend_from_slice(&bytes),
            Output::Stdout(bytes) => after.extend_from_slice(&bytes),
            other @ (Output::Stderr(_) | Output::Omitted(_)) => panic!("{other:?}"),
            Output::Exit(exit) => {
                assert_eq!(ended.replace(exit.code), None, "the exit arrives once");
                rig.put("go", "").await;
            }
        }
    }
    assert_eq!((before.as_slice(), ended, after.as_slice()), (b"early\n".as_slice(), Some(4), b"late\n".as_slice()));
}

/// A command whose output exactly filled the buffer ends, although a silent child holds its streams.
pub async fn the_exit_comes_when_the_last_of_a_full_buffer_is_read(client: &dyn SandboxClient) {
    let limits = Limits::default().output_buffer(4096);
    let rig = Rig::with(client, MachineSpec::default().limits(limits)).await;
    let mut process = rig.spawn(shell("head -c 4096 /dev/zero; sleep 300 & exit 3")).await;
    pause(500).await;
    assert_eq!(soon("exit", exit(&mut process)).await.code, 3);
}

/// The end of a command's input does not wait for file work that happens to be under way.
pub async fn closed_input_is_closed_whatever_else_goes_on(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.sh("head -c 8000000 /dev/zero >big").await;
    let process = rig.spawn(Command::new(["cat"]).stdin()).await;
    let unread = soon("pack", rig.machine.pack(&rig.at(""), &[])).await.expect("it is packed");
    let ran = finish(process).await;
    assert!(ran.exit.success(), "{ran:?}");
    drop(unread);
}
