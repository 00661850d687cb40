//! Promises about processes and the end of the machine they run on.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use super::rig::{Rig, daemon, pause, shell, soon, until};
use crate::{Access, MachineSpec, SandboxClient, Workspace};

/// The processes of one machine are not there on another.
pub async fn two_machines_do_not_share_processes(client: &dyn SandboxClient) {
    let (one, two) = (Rig::new(client).await, Rig::new(client).await);
    let mut process = one.spawn(shell("echo ready; exec sleep 98765")).await;
    until(&mut process, "ready").await;
    let look = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '";
    let words = |text: String| text.contains("sleep 98765");
    soon("its own machine to see it", async { while !words(one.sh(look).await.text()) {} }).await;
    assert!(!words(two.sh(look).await.text()), "another machine's process is visible");
}

/// A workspace on the host, to look into from outside when the machine is no more.
struct HostWorkspace {
    path: PathBuf,
}

impl HostWorkspace {
    fn new(name: &str) -> Self {
        // Several clients may be tested in one program at once.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("sandbar-conformance-{name}-{process}-{number}"));
        fs::create_dir(&path).expect("a directory for the test");
        Self { path }
    }

    /// A machine that works in it.
    async fn rig(&self, client: &dyn SandboxClient) -> Rig {
        let workspace = Workspace::Host { path: self.path.clone(), access: Access::ReadWrite };
        Rig::with(client, MachineSpec::default().workspace(workspace)).await
    }

    fn beats(&self) -> u64 {
        fs::metadata(self.path.join("beat")).map_or(0, |metadata| metadata.len())
    }

    async fn beats_no_more(&self) {
        soon("what should have been killed still writes", async {
            let mut before = self.beats();
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let after = self.beats();
                if after == before {
                    return;
                }
                before = after;
            }
        })
        .await;
        assert!(self.beats() > 0);
    }
}

impl Drop for HostWorkspace {
    fn drop(&mut self) {
        let _left_to_the_system = fs::remove_dir_all(&self.path);
    }
}

/// Stopping a machine ends all its processes, including daemons, and keeps the workspace.
pub async fn stopping_ends_every_process(client: &dyn SandboxClient) {
    let workspace = HostWorkspace::new("stop");
    let rig = workspace.rig(client).await;
    rig.sh(&daemon("beat")).await;
    rig.appears("beat").await;
    soon("stop", rig.machine.stop()).await.expect("it stops");
    workspace.beats_no_more().await;
}

/// Dropping the last reference to a machine ends all its processes, including daemons.
pub async fn dropping_a_machine_ends_its_processes(client: &dyn SandboxClient) {
    let workspace = HostWorkspace::new("drop");
    let rig = workspace.rig(client).await;
    rig.sh(&daemon("beat")).await;
    rig.appears("beat").await;
    drop(rig);
    workspace.beats_no_more().await;
}

/// When a machine stops, the output of its processes ends, so that a reader does not wait.
pub async fn output_ends_when_the_machine_does(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let mut process = rig.spawn(shell("echo ready; sleep 1000")).await;
    until(&mut process, "ready").await;
    soon("stop", rig.machine.stop()).await.expect("it stops");
    soon("the end of the output", async { while process.output.recv().await.is_some() {} }).await;
    pause(1).await;
    drop(process);
}
