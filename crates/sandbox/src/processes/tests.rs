//! Tests of the table on a scripted machine, with a paused clock that only advances when every task waits.

mod ends;
mod output;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use sandbar_machine::{
    ByteStream, Command, Control, Exit, Features, Machine, MachineError, MachineHandle, MemoryMachine, Output, Process,
    Signal, Target, TerminalSize,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use super::*;

/// The machine's side of a process.
struct Puppet {
    stdin: mpsc::Receiver<Bytes>,
    control: mpsc::Receiver<Control>,
    output: mpsc::Sender<sandbar_machine::Result<Output>>,
}

impl Puppet {
    async fn print(&self, bytes: impl Into<Bytes>) {
        self.output.send(Ok(Output::Stdout(bytes.into()))).await.unwrap();
    }

    async fn exit(&self, code: i32) {
        self.output.send(Ok(Output::Exit(Exit::code(code)))).await.unwrap();
    }
}

/// A machine whose processes are simulated by the test.
#[derive(Debug)]
struct Stage {
    features: Features,
    puppets: mpsc::UnboundedSender<Puppet>,
    spawning: Duration,
}

#[async_trait]
impl Machine for Stage {
    fn handle(&self) -> MachineHandle {
        MemoryMachine::new().handle()
    }

    fn features(&self) -> &Features {
        &self.features
    }

    async fn spawn(&self, command: Command) -> sandbar_machine::Result<Process> {
        sleep(self.spawning).await;
        let (stdin, stdin_end) = mpsc::channel(2);
        let (control, control_end) = mpsc::channel(4);
        let (output_end, output) = mpsc::channel(16);
        let puppet = Puppet { stdin: stdin_end, control: control_end, output: output_end };
        self.puppets.send(puppet).map_err(|_| MachineError::Gone)?;
        Ok(Process { id: None, stdin: command.tty.map(|_| stdin), control, output })
    }

    async fn read(&self, _target: &Target) -> sandbar_machine::Result<ByteStream> {
        Err(MachineError::Unsupported("read"))
    }

    async fn write(&self, _target: &Target, _data: ByteStream) -> sandbar_machine::Result<()> {
        Err(MachineError::Unsupported("write"))
    }

    async fn stop(&self) -> sandbar_machine::Result<()> {
        Ok(())
    }
}

fn stage(options: TableOptions) -> (Arc<ProcessTable>, mpsc::UnboundedReceiver<Puppet>) {
    stage_with(options, Duration::ZERO)
}

fn stage_with(options: TableOptions, spawning: Duration) -> (Arc<ProcessTable>, mpsc::UnboundedReceiver<Puppet>) {
    let (puppets, stage) = mpsc::unbounded_channel();
    let options = TableOptions { ids: Ids::Sequential, ..options };
    (
        Arc::new(ProcessTable::new(
            Arc::new(Stage { features: MemoryMachine::new().features().clone(), puppets, spawning }),
            options,
        )),
        stage,
    )
}

fn pipes() -> Start {
    Start::new(Command::new(["thing"])).yield_time(Duration::ZERO)
}

fn terminal() -> Start {
    Start::new(Command::new(["thing"]).tty(TerminalSize::default())).yield_time(Duration::ZERO)
}

fn millis(time: Duration) -> u128 {
    time.as_millis()
}

#[tokio::test(start_paused = true)]
async fn waiting_times_are_kept_within_their_bounds() {
    let (table, mut stage) = stage(TableOptions::default());
    let table_of_starts = [(None, 10_000), (Some(0), 250), (Some(1_000), 1_000), (Some(86_400_000), 30_000)];
    for (wanted, expected) in table_of_starts {
        let start = Start { yield_time: wanted.map(Duration::from_millis), ..pipes() };
        assert_eq!(millis(table.start(start).await.unwrap().wall_time), expected);
    }
    table.start(terminal()).await.unwrap();
    let table_of_writes = [
        ("", None, 5_000),
        ("", Some(10), 5_000),
        ("", Some(60_000), 60_000),
        ("", Some(86_400_000), 300_000),
        ("x", None, 250),
        ("x", Some(0), 250),
        ("x", Some(86_400_000), 30_000),
    ];
    let mut puppets: Vec<Puppet> = Vec::new();
    while let Ok(puppet) = stage.try_recv() {
        puppets.push(puppet);
    }
    for (chars, wanted, expected) in table_of_writes {
        let write = Write { yield_time: wanted.map(Duration::from_millis), ..Write::new(chars) };
        let update = table.write(1004, write).await.unwrap();
        assert_eq!(millis(update.wall_time), expected, "{chars:?} {wanted:?}");
        while puppets[4].stdin.try_recv().is_ok() {}
    }
}

#[tokio::test(start_paused = true)]
async fn an_exit_returns_at_once_and_is_reported_once() {
    let (table, mut stage) = stage(TableOptions::default());
    let play = async {
        let puppet = stage.recv().await.unwrap();
        puppet.print("hello\n").await;
        sleep(Duration::from_millis(700)).await;
        puppet.exit(3).await;
    };
    let (update, ()) = tokio::join!(table.start(Start::new(Command::new(["x"]))), play);
    let update = update.unwrap();
    assert_eq!((update.exit_code, update.process_id, update.output.as_str()), (Some(3), None, "hello\n"));
    assert_eq!(millis(update.wall_time), 700);
    assert!(table.list().is_empty());
    assert_eq!(table.write(1000, Write::new("")).await.unwrap_err().code(), "pty_session_not_found");
}

#[tokio::test(start_paused = true)]
async fn streams_that_a_child_holds_open_cost_fifty_milliseconds() {
    let (table, mut stage) = stage(TableOptions::default());
    let play = async {
        let puppet = stage.recv().await.unwrap();
        puppet.exit(0).await;
        sleep(Duration::from_millis(20)).await;
        puppet.print("late").await;
        puppet
    };
    let (update, puppet) = tokio::join!(table.start(Start::new(Command::new(["x"]))), play);
    let update = update.unwrap();
    assert_eq!((update.output.as_str(), millis(update.wall_time)), ("late", 50));
    assert!(table.list().is_empty());
    // The child is not blocked, and its output is discarded.
    for _ in 0..1000 {
        puppet.print(vec![b'x'; 4096]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn input_returns_once_its_answer_has_been_silent_for_fifty_milliseconds() {
    let (table, mut stage) = stage(TableOptions::default());
    let first = table.start(terminal()).await.unwrap();
    assert_eq!(first.process_id, Some(1000));
    let mut puppet = stage.recv().await.unwrap();
    // Printed before the input: part of the result, but not an answer.
    puppet.print("banner\n").await;
    sleep(Duration::from_secs(1)).await;
    let play = async {
        assert_eq!(puppet.stdin.recv().await.unwrap(), "2+2\n");
        sleep(Duration::from_millis(100)).await;
        puppet.print("4").await;
        sleep(Duration::from_millis(40)).await;
        puppet.print("\n").await;
        puppet
    };
    let write = Write::new("2+2\n").yield_time(Duration::from_secs(10));
    let (update, puppet) = tokio::join!(table.write(1000, write), play);
    let update = update.unwrap();
    assert_eq!((update.output.as_str(), millis(update.wall_time)), ("banner\n4\n", 190));
    assert_eq!((update.exit_code, update.process_id), (None, Some(1000)));
    drop(puppet);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_falls_silent_ends_at_the_yield_time() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(terminal()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let chatter = async {
        loop {
            puppet.print("x").await;
            sleep(Duration::from_millis(30)).await;
        }
    };
    let update = tokio::select! {
        update = table.write(1000, Write::new("go").yield_time(Duration::from_secs(3))) => update.unwrap(),
        () = chatter => unreachable!(),
    };
    assert_eq!(millis(update.wall_time), 3_000);
}

#[tokio::test(start_paused = true)]
async fn output_without_input_does_not_end_a_poll() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let play = async {
        puppet.print("a").await;
        sleep(Duration::from_secs(4)).await;
        puppet.print("b").await;
    };
    let (update, ()) = tokio::join!(table.write(1000, Write::new("")), play);
    let update = update.unwrap();
    assert_eq!((update.output.as_str(), millis(update.wall_time)), ("ab", 5_000));
}

#[tokio::test(start_paused = true)]
async fn a_pipe_process_takes_an_interrupt_and_nothing_else() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    for chars in ["x", "\u{3}\u{3}", "\u{3}x", "\u{4}"] {
        let refused = table.write(1000, Write::new(chars)).await.unwrap_err();
        assert_eq!(refused.code(), "pty_stdin_unavailable", "{chars:?}");
    }
    let play = async {
        assert_eq!(puppet.control.recv().await, Some(Control::Signal(Signal::Interrupt)));
        puppet.exit(130).await;
        drop(puppet);
    };
    let (update, ()) = tokio::join!(table.write(1000, Write::new("\u{3}")), play);
    assert_eq!(update.unwrap().exit_code, Some(130));
}

#[tokio::test(start_paused = true)]
async fn a_terminal_gets_the_interrupt_as_a_character() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(terminal()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    table.write(1000, Write::new("\u{3}")).await.unwrap();
    assert_eq!(puppet.stdin.recv().await.unwrap(), "\u{3}");
    assert!(puppet.control.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn input_that_is_not_taken_is_reported_and_waits_no_longer_than_it_may() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(terminal()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    // The puppet's channel takes two pieces of 4096 bytes.
    let long = "x".repeat(10_000);
    let update = table.write(1000, Write::new(&long)).await.unwrap();
    assert_eq!((update.unaccepted_bytes, millis(update.wall_time)), (10_000 - 8192, 250));
    assert!(update.output.contains("1808 bytes"), "{}", update.output);
    // A Ctrl-C does not wait behind the queued input.
    table.write(1000, Write::new("\u{3}")).await.unwrap();
    assert_eq!(puppet.control.recv().await, Some(Control::Signal(Signal::Interrupt)));
}

#[tokio::test(start_paused = true)]
async fn calls_to_one_process_take_turns_and_calls_to_two_do_not() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    table.start(pipes()).await.unwrap();
    let _puppets = (stage.recv().await.unwrap(), stage.recv().await.unwrap());
    let begun = Instant::now();
    let poll = |id| table.write(id, Write::new(""));
    tokio::join!(async { poll(1000).await.unwrap() }, async { poll(1001).await.unwrap() });
    assert_eq!(millis(begun.elapsed()), 5_000);
    tokio::join!(async { poll(1000).await.unwrap() }, async { poll(1000).await.unwrap() });
    assert_eq!(millis(begun.elapsed()), 15_000);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_a_turn_fails_when_the_process_is_gone() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let play = async {
        sleep(Duration::from_secs(1)).await;
        puppet.exit(0).await;
        drop(puppet);
    };
    let poll = || table.write(1000, Write::new(""));
    let (first, second, ()) = tokio::join!(poll(), poll(), play);
    assert_eq!(first.unwrap().exit_code, Some(0));
    assert_eq!(second.unwrap_err().code(), "pty_session_not_found");
}

#[tokio::test(start_paused = true)]
async fn infinite_times_are_no_error() {
    let ever = Duration::MAX;
    let (table, mut stage) = stage(TableOptions {
        yield_min: ever,
        yield_max: ever,
        poll_min: ever,
        poll_max: ever,
        start_yield: ever,
        write_yield: ever,
        silence: ever,
        linger: ever,
        patience: ever,
        kill_patience: ever,
        ..TableOptions::default()
    });
    let play = async {
        let mut puppet = stage.recv().await.unwrap();
        sleep(Duration::from_secs(7)).await;
        puppet.print("x").await;
        puppet.control.recv().await
    };
    let start = tokio::time::timeout(Duration::from_secs(9), table.start(terminal().yield_time(ever)));
    let (update, control) = tokio::join!(start, play);
    assert!(update.is_err() && control.is_none());
    let play = async {
        let puppet = stage.recv().await.unwrap();
        sleep(Duration::from_secs(7)).await;
        puppet.exit(0).await;
    };
    let (update, ()) = tokio::join!(table.start(terminal().yield_time(ever)), play);
    assert_eq!(update.unwrap().exit_code, Some(0));
    table.terminate_all().await;
}

#[tokio::test(start_paused = true)]
async fn the_list_describes_every_process() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    table.start(terminal()).await.unwrap();
    let (first, _second) = (stage.recv().await.unwrap(), stage.recv().await.unwrap());
    first.print("12345").await;
    first.exit(9).await;
    tokio::task::yield_now().await;
    let list = table.list();
    assert_eq!(list.iter().map(|info| info.id).collect::<Vec<_>>(), [1001, 1000]);
    assert_eq!((list[1].exit_code, list[1].buffered, list[1].tty), (Some(9), 5, false));
    assert_eq!((list[0].exit_code, list[0].buffered, list[0].tty), (None, 0, true));
    assert_eq!(list[0].argv, ["thing"]);
    table.control(1001, Control::Resize(TerminalSize::new(40, 100))).await.unwrap();
}

#[tokio::test]
async fn random_numbers_are_in_their_range_and_unique() {
    let (puppets, mut stage) = mpsc::unbounded_channel();
    let machine =
        Arc::new(Stage { features: MemoryMachine::new().features().clone(), puppets, spawning: Duration::ZERO });
    let options = TableOptions { yield_min: Duration::ZERO, ..TableOptions::default() };
    let table = ProcessTable::new(machine, options);
    let mut kept = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..64 {
        let update = table.start(pipes()).await.unwrap();
        kept.push(stage.recv().await.unwrap());
        let id = update.process_id.unwrap();
        assert!((1000..100_000).contains(&id) && ids.insert(id));
        assert!(update.chunk_id.len() == 6 && update.chunk_id.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f')));
    }
    assert_eq!(table.list().len(), 64);
}
