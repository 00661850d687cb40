//! Promises about ending a process together with everything it started.

use std::time::Duration;

use super::rig::{Rig, daemon, exit, finish, pause, shell, signal, soon, until};
use crate::{Command, ExitReason, Limits, MachineSpec, Process, SandboxClient, Signal};

/// A program may handle a signal and exit as it likes.
pub async fn a_signal_can_be_handled(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for (which, name) in [(Signal::Terminate, "TERM"), (Signal::User1, "USR1"), (Signal::Interrupt, "INT")] {
        let script = format!("trap 'exit 9' {name}; echo ready; while :; do sleep 0.1; done");
        let mut process = rig.spawn(shell(&script)).await;
        until(&mut process, "ready").await;
        signal(&process, which).await;
        // A sleep that the same signal ended is not an error to the loop, so the trap decides.
        let ended = exit(&mut process).await;
        assert_eq!((ended.code, ended.reason), (9, ExitReason::Exited), "{name}");
    }
}

/// A signal reaches the command and every process that the command started.
pub async fn a_signal_reaches_the_whole_tree(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let wait = "while :; do sleep 0.1; done";
    let script = format!(
        "trap 'echo parent >>got; exit' TERM; ( trap 'echo child >>got; exit' TERM; echo up >>up; {wait} ) & \
         while [ ! -s up ]; do sleep 0.05; done; echo ready; {wait}"
    );
    let mut process = rig.spawn(shell(&script)).await;
    until(&mut process, "ready").await;
    signal(&process, Signal::Terminate).await;
    exit(&mut process).await;
    soon("parent and child to receive the signal", async {
        while rig.stat("got").await.is_none_or(|entry| entry.size < "parent\nchild\n".len() as u64) {
            pause(50).await;
        }
    })
    .await;
    let got = rig.get("got").await;
    let mut lines: Vec<&str> = std::str::from_utf8(&got).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child", "parent"]);
}

/// A running command that has started a daemon.
async fn with_daemon(rig: &Rig) -> Process {
    let mut process = rig.spawn(shell(&format!("{}; echo ready; sleep 1000", daemon("beat")))).await;
    until(&mut process, "ready").await;
    rig.appears("beat").await;
    process
}

/// A kill also reaches a process that has left the command's session and its parent.
pub async fn a_kill_reaches_daemons(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = with_daemon(&rig).await;
    signal(&process, Signal::Kill).await;
    assert_eq!(exit(&mut process).await.code, 137);
    rig.stops_growing("beat").await;
}

/// While a growing process tree is killed, the other commands continue, including those that start processes all the time.
pub async fn a_kill_holds_up_nobody_else(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let busy = "while :; do (:) & (:) & wait; echo x >>beat; done";
    let others = [rig.spawn(shell(busy)).await, rig.spawn(shell(&busy.replace("beat", "heart"))).await];
    for _ in 0..6 {
        let script = "for i in 1 2 3 4 5 6 7 8; do (while :; do (:); done) & done; echo ready; wait";
        let mut grows = rig.spawn(shell(script)).await;
        until(&mut grows, "ready").await;
        drop(grows);
        for beat in ["beat", "heart"] {
            let before = rig.stat(beat).await.map_or(0, |entry| entry.size);
            soon("the other commands to continue", async {
                while rig.stat(beat).await.map_or(0, |entry| entry.size) < before + 20 {
                    pause(10).await;
                }
            })
            .await;
        }
    }
    drop(others);
}

/// A kill ends its own command and no other.
pub async fn a_kill_spares_the_other_commands(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut processes = Vec::new();
    for _ in 0..12 {
        let mut process = rig.spawn(shell("echo ready; while [ ! -e go ]; do sleep 0.1; done; exit 7")).await;
        until(&mut process, "ready").await;
        processes.push(process);
    }
    // The second one: the numbers of some later ones begin with its number, however commands are numbered.
    let killed = processes.remove(1);
    signal(&killed, Signal::Kill).await;
    assert_eq!(finish(killed).await.exit.reason, ExitReason::Signaled);
    rig.put("go", "").await;
    for process in processes {
        assert_eq!(finish(process).await.exit.code, 7);
    }
}

/// Dropping the last [`Process::control`] kills the process and its daemons.
pub async fn dropping_control_kills_the_tree(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let Process { control, mut output, .. } = with_daemon(&rig).await;
    drop(control);
    soon("the end of the output", async { while output.recv().await.is_some() {} }).await;
    rig.stops_growing("beat").await;
    // The same when everything is dropped at once, as a cancelled task does.
    soon("remove", rig.machine.remove(&rig.at("beat"))).await.expect("it is removed");
    drop(with_daemon(&rig).await);
    rig.stops_growing("beat").await;
}

/// A daemon survives the exit of the command that started it.
pub async fn a_daemon_outlives_its_command(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    assert!(finish(rig.spawn(shell(&daemon("beat"))).await).await.exit.success());
    rig.appears("beat").await;
    let before = rig.stat("beat").await.expect("it was there").size;
    soon("the daemon's next beat", async {
        while rig.stat("beat").await.is_none_or(|entry| entry.size <= before) {
            pause(50).await;
        }
    })
    .await;
}

/// At its deadline, a command and its daemons are killed, and the exit says why.
pub async fn a_deadline_kills_the_tree(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = format!("trap '' TERM INT HUP; {}; echo ready; sleep 1000", daemon("beat"));
    let mut process = rig.spawn(shell(&script).deadline(Duration::from_secs(3))).await;
    assert_eq!(exit(&mut process).await.reason, ExitReason::Deadline);
    rig.stops_growing("beat").await;
}

/// A command has its own deadline, or else the deadline of its machine.
pub async fn the_deadline_of_a_machine_is_for_every_command(client: &dyn SandboxClient) {
    let limits = Limits::default().time(Duration::from_secs(2));
    let rig = Rig::with(client, MachineSpec::default().limits(limits)).await;
    let mut process = rig.spawn(shell("sleep 1000")).await;
    assert_eq!(exit(&mut process).await.reason, ExitReason::Deadline);
    let ran = rig.run(shell("sleep 3; echo done").deadline(Duration::from_secs(50))).await;
    assert!(ran.exit.success() && ran.text() == "done\n", "{ran:?}");
}

/// A command that ends before its deadline ends as it would without one.
pub async fn a_command_within_its_deadline_is_left_alone(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let ran = rig.run(Command::new(["echo", "in time"]).deadline(Duration::from_secs(50))).await;
    assert!(ran.exit.success() && ran.text() == "in time\n", "{ran:?}");
}
