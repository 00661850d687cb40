//! The table on a scripted machine, on a clock that only moves when everything waits.

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

/// The other side of a process.
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

/// A machine whose processes are played by the test.
#[derive(Debug)]
struct Stage {
    puppets: mpsc::UnboundedSender<Puppet>,
    spawning: Duration,
}

#[async_trait]
impl Machine for Stage {
    fn handle(&self) -> MachineHandle {
        MemoryMachine::new().handle()
    }

    fn features(&self) -> Features {
        MemoryMachine::new().features()
    }

    async fn spawn(&self, command: Command) -> sandbar_machine::Result<Process> {
        sleep(self.spawning).await;
        let (stdin, stdin_end) = mpsc::channel(2);
        let (control, control_end) = mpsc::channel(4);
        let (output_end, output) = mpsc::channel(16);
        let puppet = Puppet { stdin: stdin_end, control: control_end, output: output_end };
        self.puppets.send(puppet).map_err(|_| MachineError::Gone)?;
        Ok(Process { stdin: command.tty.map(|_| stdin), control, output })
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
    (Arc::new(ProcessTable::new(Arc::new(Stage { puppets, spawning }), options)), stage)
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
async fn an_exit_returns_at_once_and_is_told_once() {
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
    // The child is neither held up nor heard.
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
async fn a_character_is_told_whole_whatever_the_pieces() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let poll = || async { table.write(1000, Write::new("")).await.unwrap().output };
    puppet.print(&b"a\xe2\x82"[..]).await;
    assert_eq!(poll().await, "a");
    puppet.output.send(Ok(Output::Stderr(Bytes::from_static("[é]".as_bytes())))).await.unwrap();
    puppet.print(&b"\xac\xff\xf0\x9f"[..]).await;
    assert_eq!(poll().await, "[é]€\u{fffd}");
    puppet.exit(0).await;
    assert_eq!(poll().await, "\u{fffd}");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_asked_for_is_cut_in_the_middle_and_counted() {
    let (table, mut stage) = stage(TableOptions { buffer: 20, ..TableOptions::default() });
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    for piece in ["0123456789", "abcdefghij", "ABCDEFGHIJ"] {
        puppet.print(piece).await;
    }
    let update = table.write(1000, Write::new("")).await.unwrap();
    assert_eq!(update.output, "0123456789\n... 10 bytes omitted ...\nABCDEFGHIJ");
    assert_eq!((update.omitted_bytes, update.original_token_count), (10, Some(8)));
    puppet.print("next").await;
    let update = table.write(1000, Write::new("")).await.unwrap();
    assert_eq!((update.output.as_str(), update.omitted_bytes, update.original_token_count), ("next", 0, None));
}

#[tokio::test(start_paused = true)]
async fn a_long_result_is_cut_to_ten_thousand_tokens_unless_told_otherwise() {
    let (table, mut stage) = stage(TableOptions::default());
    for max in [None, Some(50)] {
        let play = async {
            let puppet = stage.recv().await.unwrap();
            puppet.print(vec![b'x'; 100_000]).await;
            puppet.exit(0).await;
        };
        let (update, ()) = tokio::join!(table.start(Start { max_output_tokens: max, ..pipes() }), play);
        let update = update.unwrap();
        assert_eq!(update.output.len(), max.unwrap_or(10_000) * 4);
        assert_eq!(update.original_token_count, Some(25_000));
    }
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
    // A Ctrl-C does not wait behind it.
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
async fn whoever_waits_for_a_turn_learns_that_the_process_is_gone() {
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
async fn a_full_table_ends_the_oldest_exited_then_the_oldest() {
    let options = TableOptions { max_processes: 5, protected: 2, ..TableOptions::default() };
    let (table, mut stage) = stage(options);
    let mut puppets = Vec::new();
    for _ in 0..5 {
        table.start(pipes()).await.unwrap();
        puppets.push(stage.recv().await.unwrap());
    }
    puppets[1].exit(0).await;
    tokio::task::yield_now().await;
    let ids = |table: &ProcessTable| {
        let mut ids: Vec<u64> = table.list().iter().map(|info| info.id).collect();
        ids.sort_unstable();
        ids
    };
    table.start(pipes()).await.unwrap();
    assert_eq!(ids(&table), [1000, 1002, 1003, 1004, 1005]);
    // 1000 is used again, so 1002 is the oldest now, and its command is killed.
    table.write(1000, Write::new("")).await.unwrap();
    table.start(pipes()).await.unwrap();
    assert_eq!(ids(&table), [1000, 1003, 1004, 1005, 1006]);
    assert_eq!(puppets[2].control.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_a_call_waits_for_is_never_pushed_out() {
    let options = TableOptions { max_processes: 2, protected: 0, ..TableOptions::default() };
    let (table, mut stage) = stage(options);
    table.start(pipes()).await.unwrap();
    table.start(pipes()).await.unwrap();
    let _puppets = (stage.recv().await.unwrap(), stage.recv().await.unwrap());
    let third = async {
        sleep(Duration::from_secs(1)).await;
        table.start(pipes()).await
    };
    let poll = |id| table.write(id, Write::new(""));
    let (first, second, third) = tokio::join!(poll(1000), poll(1001), third);
    assert_eq!((first.unwrap().process_id, second.unwrap().process_id), (Some(1000), Some(1001)));
    assert_eq!(third.unwrap_err().code(), "exec_transport_error");
    assert!(stage.try_recv().is_err(), "nothing was started");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_start_kills_what_nobody_knows() {
    let (table, mut stage) = stage(TableOptions::default());
    let start = table.start(Start::new(Command::new(["x"])));
    assert!(tokio::time::timeout(Duration::from_secs(1), start).await.is_err());
    assert!(table.list().is_empty());
    assert_eq!(stage.recv().await.unwrap().control.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_write_loses_no_output() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    puppet.print("kept").await;
    let poll = table.write(1000, Write::new(""));
    assert!(tokio::time::timeout(Duration::from_secs(1), poll).await.is_err());
    assert_eq!(table.write(1000, Write::new("")).await.unwrap().output, "kept");
}

#[tokio::test(start_paused = true)]
async fn a_lost_machine_is_an_error_and_the_process_is_forgotten() {
    let (table, mut stage) = stage(TableOptions::default());
    for last in [Some(MachineError::Gone), None] {
        let id = table.start(pipes()).await.unwrap().process_id.unwrap();
        let puppet = stage.recv().await.unwrap();
        puppet.print("half").await;
        if let Some(error) = last {
            puppet.output.send(Err(error)).await.unwrap();
        }
        drop(puppet);
        assert_eq!(table.write(id, Write::new("")).await.unwrap_err().code(), "exec_transport_error");
        assert_eq!(table.write(id, Write::new("")).await.unwrap_err().code(), "pty_session_not_found");
    }
    let (table, _stage) = stage_with(TableOptions::default(), Duration::from_secs(3600));
    assert_eq!(table.start(pipes()).await.unwrap_err().code(), "exec_transport_error");
    assert!(table.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_leaves_no_trace() {
    let (table, stage) = stage(TableOptions { max_processes: 1, protected: 0, ..TableOptions::default() });
    drop(stage);
    for _ in 0..3 {
        let error = table.start(pipes()).await.unwrap_err();
        assert!(error.full_message().contains("the machine is gone"), "{}", error.full_message());
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_end_with_their_processes() {
    let (table, mut stage) = stage(TableOptions::default());
    for _ in 0..100 {
        let play = async { stage.recv().await.unwrap().exit(0).await };
        let (update, ()) = tokio::join!(table.start(pipes()), play);
        assert_eq!(update.unwrap().exit_code, Some(0));
    }
    assert!(table.tasks() <= 2, "{}", table.tasks());
}

#[tokio::test(start_paused = true)]
async fn terminating_does_not_wait_for_a_turn_and_the_waiting_call_gets_the_rest() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    puppet.print("last words").await;
    let play = async {
        assert_eq!(puppet.control.recv().await, Some(Control::Signal(Signal::Kill)));
        puppet.exit(137).await;
        drop(puppet);
    };
    let terminate = async {
        sleep(Duration::from_secs(1)).await;
        table.terminate(1000).await
    };
    let (update, terminated, ()) = tokio::join!(table.write(1000, Write::new("")), terminate, play);
    terminated.unwrap();
    let update = update.unwrap();
    assert_eq!((update.exit_code, update.output.as_str(), millis(update.wall_time)), (Some(137), "last words", 1_000));
    assert_eq!(table.terminate(1000).await.unwrap_err().code(), "pty_session_not_found");
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_does_not_confirm_a_kill_delays_nobody_for_ever() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    table.start(pipes()).await.unwrap();
    let mut puppets = (stage.recv().await.unwrap(), stage.recv().await.unwrap());
    assert_eq!(table.terminate(1000).await.unwrap_err().code(), "machine_error");
    table.terminate_all().await;
    assert!(table.list().is_empty());
    for puppet in [&mut puppets.0, &mut puppets.1] {
        assert_eq!(puppet.control.recv().await, Some(Control::Signal(Signal::Kill)));
        assert_eq!(puppet.control.recv().await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_being_started_when_everything_ends_ends_too() {
    let (table, mut stage) = stage_with(TableOptions::default(), Duration::from_millis(500));
    let end = async {
        sleep(Duration::from_millis(100)).await;
        table.terminate_all().await;
        Instant::now()
    };
    let play = async {
        let mut puppet = stage.recv().await.unwrap();
        assert_eq!(puppet.control.recv().await, Some(Control::Signal(Signal::Kill)));
        sleep(Duration::from_millis(100)).await;
        puppet.exit(137).await;
        Instant::now()
    };
    let (started, ended, killed) = tokio::join!(table.start(pipes()), end, play);
    let error = started.unwrap_err();
    assert_eq!((error.code(), error.to_string().contains("the session is stopping")), ("exec_transport_error", true));
    assert!(ended >= killed, "it waits for those");
    assert!(table.list().is_empty());
    // A stop is no end.
    assert!(table.start(pipes()).await.unwrap().process_id.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_never_ends_delays_an_end_only_for_its_time() {
    let (table, _stage) = stage_with(TableOptions::default(), Duration::from_secs(3600));
    let begun = Instant::now();
    let (started, ()) = tokio::join!(table.start(pipes()), async {
        sleep(Duration::from_secs(1)).await;
        table.terminate_all().await;
        assert_eq!(millis(begun.elapsed()), 11_000);
    });
    assert!(started.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_survives_an_end_among_many_starts() {
    let (table, mut stage) = stage_with(TableOptions { max_processes: 500, ..TableOptions::default() }, Duration::ZERO);
    let actors = tokio::spawn(async move {
        let mut live = Vec::new();
        while let Some(mut puppet) = stage.recv().await {
            live.push(tokio::spawn(async move {
                while puppet.control.recv().await.is_some_and(|told| told != Control::Signal(Signal::Kill)) {}
                puppet.exit(137).await;
            }));
        }
        for puppet in live {
            puppet.await.unwrap();
        }
    });
    let starts: Vec<_> =
        (0..200).map(|_| table.clone()).map(|table| tokio::spawn(async move { table.start(pipes()).await })).collect();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    table.close().await;
    assert!(table.list().is_empty());
    for start in starts {
        let ended = start.await.unwrap();
        assert!(
            ended
                .as_ref()
                .map_or_else(|error| error.to_string().contains("stopping"), |update| update.exit_code == Some(137)),
            "{ended:?}"
        );
    }
    drop(table);
    actors.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_table_starts_nothing() {
    let (table, mut stage) = stage(TableOptions::default());
    table.close().await;
    let error = table.start(pipes()).await.unwrap_err();
    assert_eq!(error.code(), "exec_transport_error");
    assert!(stage.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn times_without_end_are_no_error() {
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
async fn what_was_not_kept_is_counted_even_where_the_notice_is_cut_too() {
    let (table, mut stage) = stage(TableOptions { buffer: 4_000, ..TableOptions::default() });
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    for _ in 0..25 {
        puppet.print(vec![b'x'; 40_000]).await;
    }
    let update = table.write(1000, Write::new("").max_output_tokens(100)).await.unwrap();
    // All but what is shown: a million bytes, less the 340 or so of both ends.
    let shown = update.output.matches('x').count() as u64;
    let count = (1_000_000 - shown).div_ceil(4);
    assert!(update.output.contains(&format!("…{count} tokens truncated…")), "{}", update.output);
    assert_eq!((update.omitted_bytes, update.original_token_count), (996_000, Some(250_000)));
    assert!(update.output.len() <= 400 && shown > 300);
    // A gap that lies outside the cut keeps its own line.
    for limit in 1_000..1_040 {
        puppet.print(vec![b'x'; 40_000]).await;
        let update = table.write(1000, Write::new("").max_output_tokens(limit)).await.unwrap();
        let shown = update.output.matches('x').count() as u64;
        let total: u64 = 40_000 - shown;
        let said = update.output.contains("... 36000 bytes omitted ...\n")
            || update.output.contains(&format!("…{} tokens truncated…", total.div_ceil(4)));
        assert!(said && update.output.len() <= limit * 4, "{limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_table_kills_its_processes_and_ends_its_tasks() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    drop(table);
    assert_eq!(puppet.control.recv().await, None);
    puppet.output.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_sees_pieces_of_whole_characters_and_what_it_missed_is_counted() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let puppet = stage.recv().await.unwrap();
    let (mut quick, mut slow) = (table.subscribe(1000).unwrap(), table.subscribe(1000).unwrap());
    let text = "€".repeat(5_000);
    puppet.print(text.clone()).await;
    let mut seen = Vec::new();
    while seen.len() < text.len() {
        let piece = quick.next().await.unwrap();
        assert!(piece.len() <= 8192 && std::str::from_utf8(&piece).is_ok());
        seen.extend_from_slice(&piece);
    }
    assert_eq!(seen, text.as_bytes());
    for _ in 0..100 {
        puppet.print("x").await;
    }
    puppet.exit(0).await;
    drop(puppet);
    // Until everything has been pumped.
    sleep(Duration::from_millis(1)).await;
    let mut heard = 0;
    while slow.next().await.is_some() {
        heard += 1;
    }
    assert_eq!((heard, slow.missed()), (64, 102 - 64));
    // Watching took nothing away.
    let update = table.write(1000, Write::new("").max_output_tokens(1 << 20)).await.unwrap();
    assert_eq!(update.output.len(), text.len() + 100);
    assert!(table.subscribe(1000).is_err());
}

#[tokio::test(start_paused = true)]
async fn the_list_tells_what_there_is() {
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
    let machine = Arc::new(Stage { puppets, spawning: Duration::ZERO });
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
