//! The process table on a real machine of this host.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use std::{sync::Arc, time::Duration};

use sandbar_clients::UnixLocal;
use sandbar_machine::{Command, Machine, MachineSpec, SandboxClient, TerminalSize};
use sandbar_sandbox::processes::{Ids, ProcessTable, Start, TableOptions, Update, Write, model_env, shell_argv};

const SOON: Duration = Duration::from_secs(60);
/// The longest wait there is for an answer or an end that comes at once on a calm host.
const LONG: Duration = Duration::from_secs(30);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, what).await.expect("took longer than a minute")
}

struct Rig {
    machine: Arc<dyn Machine>,
    table: ProcessTable,
}

impl Rig {
    async fn new() -> Self {
        let machine = soon(UnixLocal::new().create(MachineSpec::default())).await.expect("create");
        let options = TableOptions { ids: Ids::Sequential, ..TableOptions::default() };
        Self { table: ProcessTable::new(Arc::clone(&machine), options), machine }
    }

    async fn start(&self, command: Command) -> Update {
        soon(self.table.start(Start::new(command).yield_time(Duration::ZERO))).await.expect("start")
    }

    /// Runs a script to its end.
    async fn run(&self, script: &str) -> Update {
        self.finish(shell(script)).await
    }

    /// Runs a command to its end.
    async fn finish(&self, command: Command) -> Update {
        soon(self.table.start(Start::new(command).yield_time(LONG))).await.expect("start")
    }

    async fn write(&self, id: u64, chars: &str) -> Update {
        soon(self.table.write(id, Write::new(chars).yield_time(LONG))).await.expect("write")
    }

    /// Types, and looks until that was said: a program that is held up may have fallen silent before.
    async fn hears(&self, id: u64, chars: &str, words: &str) -> Update {
        let mut update = self.write(id, chars).await;
        soon(async {
            while !update.output.contains(words) && update.process_id.is_some() {
                let more = self.table.write(id, Write::new("")).await.expect("write");
                let output = update.output.clone() + &more.output;
                update = Update { output, ..more };
            }
        })
        .await;
        update
    }
}

fn shell(script: &str) -> Command {
    let command = Command::new(shell_argv(script, None, sandbar_sandbox::processes::Login::Unsaid));
    model_env().iter().fold(command, |command, (name, value)| command.env(*name, *value))
}

fn with_terminal(script: &str) -> Command {
    shell(script).tty(TerminalSize::default())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_ends_in_time_tells_its_output_and_its_exit_code() {
    let rig = Rig::new().await;
    let update = rig.run("echo out; echo err >&2; exit 7").await;
    assert_eq!((update.exit_code, update.process_id), (Some(7), None));
    let mut lines: Vec<&str> = update.output.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["err", "out"]);
    assert!(update.to_text().starts_with("Chunk ID: 000000\nWall time: "), "{}", update.to_text());
    assert_eq!(rig.run("kill -TERM $$").await.exit_code, Some(143));
    assert_eq!(rig.run("cat").await.exit_code, Some(0), "its input is empty");
    assert_eq!(rig.run("echo $TERM $NO_COLOR $PAGER").await.output, "dumb 1 cat\n");
    let missing = rig.finish(Command::new(["/no/such/program"])).await;
    assert_eq!(missing.exit_code, Some(127));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_on_a_terminal_can_be_talked_to() {
    let rig = Rig::new().await;
    let id = rig.start(with_terminal("while read line; do echo \"got $line\"; done; echo bye")).await.process_id;
    let id = id.expect("it waits");
    let update = rig.hears(id, "hällo\n", "got hällo\r\n").await;
    assert_eq!((update.output.as_str(), update.process_id), ("hällo\r\ngot hällo\r\n", Some(id)));
    assert!(update.wall_time < LONG, "an answer ends the wait");
    let update = rig.hears(id, "\u{4}", "an end").await;
    assert_eq!(update.exit_code, Some(0));
    assert!(update.output.ends_with("bye\r\n"), "{}", update.output);
    let gone = soon(rig.table.write(id, Write::new(""))).await.expect_err("it is gone");
    let text = rig.table.refusal(&gone, Duration::ZERO).to_text();
    assert!(text.ends_with("write_stdin failed: PTY session not found: 1000"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupt_reaches_pipes_and_terminals() {
    let rig = Rig::new().await;
    for command in [shell("sleep 1000"), with_terminal("sleep 1000")] {
        let id = rig.start(command).await.process_id.expect("it runs");
        assert_eq!(rig.hears(id, "\u{3}", "an end").await.exit_code, Some(130));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_does_not_read_can_be_written_to_and_still_interrupted() {
    let rig = Rig::new().await;
    let id = rig.start(with_terminal("read go; stty raw -echo; echo ready; sleep 1000")).await.process_id;
    let id = id.expect("it runs");
    rig.hears(id, "\n", "ready").await;
    let long = "x".repeat(4 << 20);
    let update = soon(rig.table.write(id, Write::new(&long))).await.expect("write");
    assert!(update.unaccepted_bytes > 0 && update.unaccepted_bytes < long.len(), "{}", update.unaccepted_bytes);
    assert_eq!(update.process_id, Some(id));
    assert_eq!(rig.hears(id, "\u{3}", "an end").await.exit_code, Some(130));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_child_delays_nothing_and_lives_on() {
    let rig = Rig::new().await;
    let update = rig.run("(while :; do echo noise; echo x >>beats; sleep 0.01; done) & echo started").await;
    assert_eq!(update.exit_code, Some(0));
    assert!(update.output.starts_with("started\n") || update.output.contains("\nstarted\n"), "{}", update.output);
    assert!(update.wall_time < LONG);
    assert!(rig.table.list().is_empty());
    let count =
        || async { rig.run("cat beats 2>/dev/null | wc -l").await.output.trim().parse::<u64>().expect("a number") };
    let before = count().await;
    soon(async { while count().await <= before {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endless_output_is_kept_at_both_ends_only() {
    let rig = Rig::new().await;
    let command = shell("echo first; yes | head -c 300000000; echo last; sleep 1000");
    let start = Start::new(command).yield_time(Duration::ZERO).max_output_tokens(1 << 20);
    let mut update = soon(rig.table.start(start)).await.expect("start");
    let id = update.process_id.expect("it runs");
    let (mut omitted, mut kept, mut updates, mut said) = (0, 0, 1, String::new());
    loop {
        assert!(update.output.len() <= (1 << 20) + 100);
        said.push_str(&update.output);
        omitted += update.omitted_bytes;
        let notice = format!("... {} bytes omitted ...\n", update.omitted_bytes);
        kept += update.output.replace(&notice, "").len() as u64;
        if said.ends_with("last\n") {
            break;
        }
        assert!(rig.table.list()[0].buffered <= 1 << 20);
        update = soon(rig.table.write(id, Write::new("").max_output_tokens(1 << 20))).await.expect("poll");
        updates += 1;
    }
    assert!(omitted > 100_000_000, "{omitted}");
    // A notice in the middle of a line comes with a line break.
    let printed = "first\n".len() as u64 + 300_000_000 + "last\n".len() as u64;
    assert!((printed..=printed + updates).contains(&(kept + omitted)), "{kept} and {omitted}");
    soon(rig.table.terminate(id)).await.expect("terminate");
    assert!(rig.table.list().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn terminating_kills_the_whole_tree() {
    let rig = Rig::new().await;
    for _ in 0..3 {
        rig.start(shell("sleep 4242 & sleep 4242")).await;
    }
    soon(rig.table.terminate_all()).await;
    assert!(rig.table.list().is_empty());
    let left = rig
        .run("for i in $(seq 1000); do grep -qsxz 4242 /proc/[0-9]*/cmdline || exit 0; sleep 0.02; done; exit 1")
        .await;
    assert_eq!(left.exit_code, Some(0), "nothing of it is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sixty_fifth_process_ends_the_oldest() {
    let rig = Rig::new().await;
    let starts = (0..64).map(|_| rig.start(shell("sleep 1000")));
    futures::future::join_all(starts).await;
    assert_eq!(rig.table.list().len(), 64);
    rig.start(shell("sleep 1000")).await;
    let mut ids: Vec<u64> = rig.table.list().iter().map(|info| info.id).collect();
    ids.sort_unstable();
    assert_eq!((ids.len(), ids.last()), (64, Some(&1064)));
    soon(rig.table.terminate_all()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_machine_ends_every_wait() {
    let rig = Rig::new().await;
    let id = rig.start(shell("sleep 1000")).await.process_id.expect("it runs");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        soon(rig.machine.stop()).await.expect("stop");
    };
    let patient = Write::new("").yield_time(Duration::from_secs(300));
    let (update, ()) = tokio::join!(soon(rig.table.write(id, patient)), stop);
    assert!(update.is_err() || update.is_ok_and(|update| update.exit_code.is_some()));
    assert!(soon(rig.table.start(Start::new(shell("true")))).await.is_err());
}

/// Says how long the two commonest calls take; it cannot fail by being slow.
#[tokio::test(flavor = "multi_thread")]
async fn how_long_calls_take() {
    let rig = Rig::new().await;
    let mut starts = Vec::new();
    for _ in 0..50 {
        let update = rig.finish(Command::new(["true"])).await;
        assert_eq!(update.exit_code, Some(0));
        starts.push(update.wall_time);
    }
    let id = rig.start(with_terminal("cat")).await.process_id.expect("it waits");
    let mut echoes = Vec::new();
    for _ in 0..10 {
        echoes.push(rig.write(id, "x\n").await.wall_time);
    }
    for (what, mut times) in [("start to exit of `true`", starts), ("echo of a terminal", echoes)] {
        times.sort_unstable();
        println!("{what}: median {:?}, worst {:?}", times[times.len() / 2], times[times.len() - 1]);
    }
}
