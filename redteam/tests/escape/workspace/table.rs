//! Attacks by a process of a session's table: floods, staying alive, input after its end, access from another session.

use std::time::{Duration, Instant};

use futures::future::join_all;
use sandbar_sandbox::{
    Exec, Manifest, SandboxSession,
    processes::{ExecCommandArgs, Update, WriteStdinArgs},
};
use tokio::time::sleep;

use super::stage::{brief, open, prompt, refused, soon};
use crate::escape::{
    lifetime::{a_daemon_survives, rss},
    rig::{Rig, until},
    tally::Tally,
};

/// The guest, the shell that counts, and one or two that are just ending.
const IDLE: usize = 4;

pub(super) async fn run(rig: &Rig, tally: &mut Tally) {
    tally.control("D29", a_daemon_survives(rig), "on the host a daemon outlives the process that started it");
    let session = open(rig, Manifest::new(), &rig.dir("table-workspace")).await.expect("a session");
    let other = open(rig, Manifest::new(), &rig.dir("table-other")).await.expect("a session");
    flood(&session, tally).await;
    for (name, command) in [
        ("D30.table-ignore-every-signal", "/probe/probe stubborn"),
        ("D29.table-daemonise", "/probe/probe daemon stay=yes"),
        (
            "D29.table-daemonise-and-leave",
            "setsid sh -c '(setsid sleep 1000 &) ; (trap \"\" HUP TERM; sleep 1000) &' ; sleep 1000",
        ),
    ] {
        terminated(&session, tally, name, command).await;
    }
    timed_out(&session, tally).await;
    after_the_end(&session, tally).await;
    of_another_session(&session, &other, tally).await;
    crowd(&session, tally).await;
    soon(other.delete()).await.expect("delete");
    let start = Instant::now();
    let deleted = prompt(session.delete()).await;
    tally.expect("D29.table-ends-with-its-session", deleted.is_ok(), format!("after {:?}", start.elapsed()));
}

async fn start(session: &SandboxSession, command: &str) -> Update {
    let args = ExecCommandArgs::new(command).yield_time_ms(250);
    soon(session.processes().exec_command(args)).await.expect("the command starts")
}

async fn count(session: &SandboxSession) -> usize {
    let ran = soon(session.exec(Exec::shell("set -- /proc/[0-9]*; echo $#"))).await.expect("it counts");
    ran.stdout_text().trim().parse().unwrap_or(usize::MAX)
}

/// Whether hardly anything is left, as soon as what was killed is gone.
async fn quiet(session: &SandboxSession) -> (bool, usize) {
    let mut left = 0;
    let calm = until(async || {
        left = count(session).await;
        left <= IDLE
    })
    .await;
    (calm, left)
}

async fn flood(session: &SandboxSession, tally: &mut Tally) {
    let before = rss();
    let updates = join_all((0..4).map(|_| start(session, "/probe/probe flood"))).await;
    sleep(Duration::from_secs(2)).await;
    let grown = rss().saturating_sub(before) >> 10;
    let answered = prompt(session.exec(Exec::new(["true"]))).await;
    let longest = updates.iter().map(|update| update.output.len()).max().unwrap_or(0);
    let held = grown < 128 && answered.is_ok() && longest <= 64 << 10;
    tally.expect(
        "J75.table-flood",
        held,
        format!("{grown} MiB more, at most {longest} bytes told, {}", brief(&answered)),
    );
    for id in updates.iter().filter_map(|update| update.process_id) {
        soon(session.processes().terminate(id)).await.expect("it ends");
    }
    let (calm, left) = quiet(session).await;
    tally.expect("J75.table-flood-ends", calm, format!("{left} processes left"));
}

async fn terminated(session: &SandboxSession, tally: &mut Tally, name: &str, command: &str) {
    let update = start(session, command).await;
    let before = count(session).await;
    let ended = match update.process_id {
        Some(id) => prompt(session.processes().terminate(id)).await,
        None => Err(format!("it ended by itself: {}", update.output)),
    };
    let (calm, left) = quiet(session).await;
    tally.expect(name, ended.is_ok() && calm, format!("{}, {before} processes before, {left} after", brief(&ended)));
}

async fn timed_out(session: &SandboxSession, tally: &mut Tally) {
    for (name, argv) in [("D30.exec-ignore-every-signal", "stubborn"), ("D29.exec-daemonise", "daemon")] {
        let exec = Exec::new(["/probe/probe", argv, "stay=yes"]).timeout(Duration::from_millis(500));
        let got = prompt(session.exec(exec)).await;
        let (calm, left) = quiet(session).await;
        tally.expect(name, refused(&got) && calm, format!("{}, {left} processes left", brief(&got)));
    }
}

/// Input for a process that has ended is answered with its exit, and never reaches another process.
async fn after_the_end(session: &SandboxSession, tally: &mut Tally) {
    let args = ExecCommandArgs::new("until [ -e /workspace/go ]; do sleep 0.1; done; exit 7").tty().yield_time_ms(250);
    let update = soon(session.processes().exec_command(args)).await.expect("it starts");
    let Some(id) = update.process_id else {
        tally.expect("D30.table-stdin-after-exit", false, "it ended too soon");
        return;
    };
    soon(session.write("go", "x")).await.expect("it may end");
    let ended = || session.processes().list().iter().any(|process| process.id == id && process.exit_code.is_some());
    let ended = until(async || ended()).await;
    let type_to =
        || session.processes().write_stdin(WriteStdinArgs::new(id, "echo typed\n".repeat(10_000)).yield_time_ms(250));
    let first = prompt(type_to()).await;
    let second = prompt(type_to()).await;
    let told = first.as_ref().is_ok_and(|update| update.exit_code == Some(7)) || refused(&first);
    let detail = format!("ended: {ended}, {} then {}", brief(&first), brief(&second));
    tally.expect("D30.table-stdin-after-exit", ended && told && refused(&second), detail);
}

async fn of_another_session(session: &SandboxSession, other: &SandboxSession, tally: &mut Tally) {
    let args = ExecCommandArgs::new("cat").tty().yield_time_ms(250);
    let update = soon(session.processes().exec_command(args)).await.expect("it starts");
    let id = update.process_id.expect("it runs");
    // The echo may arrive later than the answer.
    let own = until(async || {
        let typed = soon(session.processes().write_stdin(WriteStdinArgs::new(id, "mine\n").yield_time_ms(250))).await;
        typed.is_ok_and(|update| update.output.contains("mine"))
    })
    .await;
    tally.control("D25", own, "its own session reaches the process");
    let wrote = prompt(other.processes().write_stdin(WriteStdinArgs::new(id, "not mine\n").yield_time_ms(250))).await;
    let ended = prompt(other.processes().terminate(id)).await;
    let followed = other.processes().follow(id).is_err();
    let lives = session.processes().list().iter().any(|process| process.id == id && process.exit_code.is_none());
    let detail = format!("{}; {}; it lives: {lives}", brief(&wrote), brief(&ended));
    tally.expect("D25.process-of-another-session", refused(&wrote) && refused(&ended) && followed && lives, detail);
    soon(session.processes().terminate(id)).await.expect("it ends");
}

/// More processes than the table holds: the oldest go, and are really gone.
async fn crowd(session: &SandboxSession, tally: &mut Tally) {
    for _ in 0..5 {
        join_all((0..20).map(|_| start(session, "exec sleep 1000"))).await;
    }
    let (mut listed, mut inside) = (0, 0);
    let held = until(async || {
        (listed, inside) = (session.processes().list().len(), count(session).await);
        listed <= 64 && inside <= 64 + IDLE
    })
    .await;
    tally.expect("D30.table-crowd", held, format!("of 100 started, {listed} are listed and {inside} run"));
    soon(session.stop()).await.expect("stop");
    let (calm, left) = quiet(session).await;
    tally.expect("D30.table-crowd-stops", calm, format!("{left} left"));
}
