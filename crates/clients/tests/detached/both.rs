//! Promises of every machine that outlives its creator, on this host and in containers.

use std::{fs, process::Child, time::Duration};

use sandbar_machine::{Features, MachineHandle, collect};

use super::bench::{Bench, Where, detached, file, hear, printed, soon, stop};
use crate::docker::has_engine;

/// Runs each test in both places.
macro_rules! both {
    ($($name:ident),* $(,)?) => {
        mod on_this_host {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                super::$name(Bench::new()).await;
            })*
        }

        mod in_containers {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                if has_engine().await {
                    super::$name(Bench::at(Where::Containers)).await;
                }
            })*
        }
    };
}

both![
    a_machine_made_by_a_process_that_ended_is_found_used_and_deleted,
    processes_use_a_machine_side_by_side_and_a_killed_one_takes_only_its_own_with_it,
    a_maker_killed_at_any_moment_leaves_nothing_or_a_whole_machine,
    a_create_that_is_cancelled_leaves_nothing,
    deleting_is_prompt_while_others_hold_the_machine,
];

async fn a_machine_made_by_a_process_that_ended_is_found_used_and_deleted(bench: Bench) {
    assert!(bench.play("make").wait().expect("wait").success());
    let made = fs::read(bench.0.path().join("made")).expect("a handle");
    let (handle, features): (MachineHandle, Features) = serde_json::from_slice(&made).expect("json");
    // Another client: the handle contains everything that it needs.
    let client = bench.any_client();
    let one = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    let two = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    assert_eq!((one.handle(), one.features()), (handle.clone(), &features));
    let bytes = soon(collect(soon(one.read(&file("note"))).await.expect("read"), 100)).await.expect("collect");
    assert_eq!(bytes, "from another process");
    let both = tokio::join!(printed(&*one, "cat note; sleep 0.2"), printed(&*two, "echo $DECLARED; sleep 0.2"));
    assert_eq!(both, ("from another process".to_owned(), "remembered\n".to_owned()));
    soon(client.delete(&handle)).await.expect("delete");
    assert_eq!(bench.left().await, Vec::<String>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    assert!(!mounts.contains(&bench.state().display().to_string()));
    assert!(soon(client.attach(&handle)).await.expect("attach").is_none());
}

async fn processes_use_a_machine_side_by_side_and_a_killed_one_takes_only_its_own_with_it(bench: Bench) {
    let client = bench.any_client();
    let handle = soon(client.create(detached())).await.expect("create").handle();
    bench.save(&handle);
    let mut holder = bench.play("hold");
    hear(&mut holder, "holding");
    let runners: Vec<Child> = (0..4).map(|_| bench.play("run")).collect();
    for mut runner in runners {
        assert!(runner.wait().expect("wait").success());
    }
    holder.kill().expect("kill -9");
    holder.wait().expect("wait");
    let machine = soon(client.attach(&handle)).await.expect("attach").expect("it lives on");
    let size = || async { soon(machine.stat(&file("beat"))).await.expect("stat").expect("it ran").size };
    let mut sizes = vec![size().await];
    while sizes.len() < 120 && !sizes.ends_with(&[size().await; 2]) {
        tokio::time::sleep(Duration::from_millis(500)).await;
        sizes.push(size().await);
    }
    assert!(sizes.len() < 120, "the killed process's command still runs: {sizes:?}");
    soon(machine.stop()).await.expect("stop");
    assert_eq!(bench.left().await, Vec::<String>::new());
}

async fn a_maker_killed_at_any_moment_leaves_nothing_or_a_whole_machine(bench: Bench) {
    let mut whole = 0;
    for delay in [1, 5, 10, 15, 20, 25, 30, 40, 60, 120, 180, 240, 400, 60_000] {
        let mut maker = bench.play("make");
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(delay) && maker.try_wait().expect("wait").is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _ended_already = maker.kill();
        maker.wait().expect("wait");
        tokio::time::sleep(Duration::from_millis(100)).await;
        let made = bench.0.path().join("made");
        if made.exists() {
            let (handle, _): (MachineHandle, Features) =
                serde_json::from_slice(&fs::read(&made).expect("read")).expect("json");
            let client = bench.any_client();
            soon(client.delete(&handle)).await.expect("delete");
            assert!(soon(client.attach(&handle)).await.expect("attach").is_none());
            fs::remove_file(&made).expect("it goes");
            whole += 1;
        }
        // No process has the handle of a machine that was just ready, and an engine retains a container that never ran.
        bench.is_empty_once_swept().await;
    }
    assert!(whole > 0, "no maker was given enough time");
}

async fn a_create_that_is_cancelled_leaves_nothing(bench: Bench) {
    let client = bench.any_client();
    let begun = std::time::Instant::now();
    let first = soon(client.create(detached())).await.expect("create");
    soon(first.stop()).await.expect("stop");
    let all = begun.elapsed();
    let mut cancelled = 0;
    for part in 1..=10 {
        match tokio::time::timeout(all * part / 15, client.create(detached())).await {
            Ok(made) => soon(client.delete(&made.expect("create").handle())).await.expect("delete"),
            Err(_late) => cancelled += 1,
        }
    }
    // The first create may have been much slower than all others.
    let mut patience = all / 15;
    while cancelled == 0 {
        patience /= 2;
        match tokio::time::timeout(patience, client.create(detached())).await {
            Ok(made) => soon(client.delete(&made.expect("create").handle())).await.expect("delete"),
            Err(_late) => cancelled += 1,
        }
    }
    bench.is_empty().await;
}

async fn deleting_is_prompt_while_others_hold_the_machine(bench: Bench) {
    let client = bench.any_client();
    let mut maker = bench.play("stay");
    hear(&mut maker, "staying");
    let handle = bench.saved();
    let mut holder = bench.play("hold");
    hear(&mut holder, "holding");
    let visitor = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    // Neither of these processes can detach.
    for process in [&maker, &holder] {
        stop(process.id());
    }
    let begun = std::time::Instant::now();
    for _ in 0..2 {
        soon(client.delete(&handle)).await.expect("delete");
    }
    println!("deleted in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    assert_eq!(bench.left().await, Vec::<String>::new());
    assert!(soon(client.attach(&handle)).await.expect("attach").is_none());
    for mut process in [maker, holder] {
        process.kill().expect("kill -9");
        process.wait().expect("wait");
    }
    soon(visitor.stop()).await.expect("stopping what is gone is fine");
}
