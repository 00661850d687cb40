//! Tests of how processes and the table end, and that nothing outlives them.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_full_table_ends_the_oldest_exited_then_the_oldest() {
    let options = TableOptions { max_processes: 5, protected: 2, ..TableOptions::default() };
    let (table, mut stage) = stage(options);
    let mut puppets = Vec::new();
    for _ in 0..5 {
        let update = table.start(pipes()).await.unwrap();
        assert!(update.output.is_empty() && update.evicted.is_empty());
        puppets.push(stage.recv().await.unwrap());
    }
    puppets[1].exit(0).await;
    tokio::task::yield_now().await;
    let ids = |table: &ProcessTable| {
        let mut ids: Vec<u64> = table.list().iter().map(|info| info.id).collect();
        ids.sort_unstable();
        ids
    };
    let update = table.start(pipes()).await.unwrap();
    assert_eq!(
        (update.output.as_str(), &update.evicted[..]),
        ("[session 1001 was ended to make room: at most 5 are kept]\n", &[1001][..])
    );
    assert_eq!(ids(&table), [1000, 1002, 1003, 1004, 1005]);
    // 1000 is used again, so 1002 is the oldest now, and its command is killed.
    table.write(1000, Write::new("")).await.unwrap();
    table.start(pipes()).await.unwrap();
    assert_eq!(ids(&table), [1000, 1003, 1004, 1005, 1006]);
    assert_eq!(puppets[2].control.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_a_call_waits_for_is_never_evicted() {
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
async fn a_dropped_start_kills_its_command() {
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
async fn a_machine_that_does_not_confirm_a_kill_delays_callers_only_for_the_timeout() {
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
async fn terminate_all_also_ends_a_process_that_is_being_started() {
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
    // After `terminate_all` the table still starts processes.
    assert!(table.start(pipes()).await.unwrap().process_id.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_never_ends_delays_terminate_all_only_for_the_timeout() {
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
    // The yield time is long enough that no start returns before the end.
    let patient = || pipes().yield_time(Duration::from_secs(30));
    let starts: Vec<_> = (0..200)
        .map(|_| (table.clone(), patient()))
        .map(|(table, start)| tokio::spawn(async move { table.start(start).await }))
        .collect();
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
async fn a_dropped_table_kills_its_processes_and_ends_its_tasks() {
    let (table, mut stage) = stage(TableOptions::default());
    table.start(pipes()).await.unwrap();
    let mut puppet = stage.recv().await.unwrap();
    drop(table);
    assert_eq!(puppet.control.recv().await, None);
    puppet.output.closed().await;
}
