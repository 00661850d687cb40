//! Promises about ending a process together with everything it started.

use std::time::Duration;

use super::rig::{Rig, daemon, exit, finish, pause, shell, signal, soon, until};
use crate::{Command, ExitReason, Process, SandboxClient, Signal};

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

/// A signal is for the command and for everything it started.
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
    soon("both to have got it", async {
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

/// A command that started a daemon and runs on.
async fn with_daemon(rig: &Rig) -> Process {
    let mut process = rig.spawn(shell(&format!("{}; echo ready; sleep 1000", daemon("beat")))).await;
    until(&mut process, "ready").await;
    rig.appears("beat").await;
    process
}

/// Leaving its session and its parent does not save a process from a kill.
pub async fn a_kill_reaches_daemons(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = with_daemon(&rig).await;
    signal(&process, Signal::Kill).await;
    assert_eq!(exit(&mut process).await.code, 137);
    rig.stops_growing("beat").await;
}

/// While a tree that grows is killed, everybody else goes on, also who starts processes all the time.
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
            soon("everybody else to go on", async {
                while rig.stat(beat).await.map_or(0, |entry| entry.size) < before + 20 {
                    pause(10).await;
                }
            })
            .await;
        }
    }
    drop(others);
}

/// Nobody holding `control` any more means nobody wants the process: it and its daemons die.
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

/// What a command leaves behind when it exits stays.
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

/// Past its deadline, a command and its daemons are killed, and the exit says why.
pub async fn a_deadline_kills_the_tree(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let script = format!("trap '' TERM INT HUP; {}; echo ready; sleep 1000", daemon("beat"));
    let mut process = rig.spawn(shell(&script).deadline(Duration::from_secs(3))).await;
    assert_eq!(exit(&mut process).await.reason, ExitReason::Deadline);
    rig.stops_growing("beat").await;
}

/// A deadline that did not pass changes nothing.
pub async fn a_command_within_its_deadline_is_left_alone(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let ran = rig.run(Command::new(["echo", "in time"]).deadline(Duration::from_secs(50))).await;
    assert!(ran.exit.success() && ran.text() == "in time\n", "{ran:?}");
}
