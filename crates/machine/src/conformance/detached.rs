//! Promises about machines that outlive the process that made them. A client that cannot keep them refuses to make such machines.

use parking_lot::Mutex;

use super::rig::{Rig, daemon, pause, shell, soon, until};
use crate::{Lifetime, MachineError, MachineHandle, MachineSpec, SandboxClient};

/// A detached machine.
pub(super) async fn detached(client: &dyn SandboxClient, spec: MachineSpec) -> Rig {
    Rig::with(client, spec.lifetime(Lifetime::Detached)).await
}

pub(super) async fn attach(client: &dyn SandboxClient, handle: &MachineHandle) -> Rig {
    let saved = serde_json::to_string(handle).expect("a handle can be saved");
    let handle = serde_json::from_str(&saved).expect("and loaded");
    let machine = soon("attach", client.attach(&handle)).await.expect("no error").expect("it lives");
    Rig { machine }
}

pub(super) async fn is_gone(client: &dyn SandboxClient, handle: &MachineHandle) -> bool {
    soon("attach", client.attach(handle)).await.expect("gone is no error").is_none()
}

/// A detached machine survives a time without any holder and is unchanged afterwards.
pub async fn a_detached_machine_outlives_its_maker(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    rig.put("file", "still here").await;
    let (handle, features) = (rig.machine.handle(), rig.machine.features().clone());
    drop(rig);
    pause(700).await;
    for _ in 0..3 {
        let again = attach(client, &handle).await;
        assert_eq!(again.machine.handle(), handle);
        assert_eq!(again.machine.features(), &features);
        assert_eq!(again.get("file").await, "still here");
    }
    soon("delete", client.delete(&handle)).await.expect("it is deleted");
    assert!(is_gone(client, &handle).await);
}

/// The handle of a machine is recorded before the machine can outlive its creator; if recording fails, no machine is left.
pub async fn a_detached_machine_is_recorded_before_it_stays(client: &dyn SandboxClient) {
    let spec = || MachineSpec::default().lifetime(Lifetime::Detached);
    let recorded = Mutex::new(Vec::new());
    let note = |handle: &MachineHandle| recorded.lock().push(handle.clone());
    let record = |handle: &MachineHandle| {
        note(handle);
        Ok(())
    };
    let machine = soon("create", client.create_recorded(spec(), &record)).await.expect("a machine");
    let handle = machine.handle();
    let told = std::mem::take(&mut *recorded.lock());
    assert!(!told.is_empty() && told.iter().all(|one| *one == handle), "{told:?}");
    drop(machine);
    drop(attach(client, &handle).await);
    soon("delete", client.delete(&handle)).await.expect("it is deleted");
    let refuse = |handle: &MachineHandle| {
        note(handle);
        Err(MachineError::invalid("record", "is refused"))
    };
    let refused = soon("create", client.create_recorded(spec(), &refuse)).await;
    assert_eq!(refused.map(|_| ()).expect_err("refused").to_string(), "record: is refused");
    let handle = recorded.lock().pop().expect("a handle");
    assert!(is_gone(client, &handle).await);
}

/// A detached machine can have several holders; one that drops it does not affect the others.
pub async fn a_detached_machine_can_have_several_holders(client: &dyn SandboxClient) {
    let first = detached(client, MachineSpec::default()).await;
    let handle = first.machine.handle();
    let (second, third) = (attach(client, &handle).await, attach(client, &handle).await);
    first.put("file", "of the first").await;
    assert_eq!(second.get("file").await, "of the first");
    drop(first);
    second.put("file", vec![b'2'; 3 << 20]).await;
    drop(second);
    assert_eq!(third.get("file").await.len(), 3 << 20);
}

/// Stopping a machine ends it for every holder; deleting a machine that does not exist any more succeeds.
pub async fn a_stopped_detached_machine_is_gone_for_everyone(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let handle = rig.machine.handle();
    let other = attach(client, &handle).await;
    soon("stop", other.machine.stop()).await.expect("it stops");
    assert!(is_gone(client, &handle).await);
    soon("the other holder to notice the stop", async {
        while rig.machine.stat(&rig.at("")).await.is_ok() {
            pause(50).await;
        }
    })
    .await;
    soon("stop", rig.machine.stop()).await.expect("it is stopped");
    for _ in 0..2 {
        soon("delete", client.delete(&handle)).await.expect("it is deleted");
    }
}

/// A command ends with the holder that started it; its daemons stay, and so do the commands of other holders.
pub async fn commands_end_with_their_holder_and_daemons_stay(client: &dyn SandboxClient) {
    let rig = detached(client, MachineSpec::default()).await;
    let other = attach(client, &rig.machine.handle()).await;
    let mut others = other.spawn(shell("echo ready; read line; echo got $line").stdin()).await;
    until(&mut others, "ready").await;
    rig.sh(&daemon("background")).await;
    let beat = "echo ready; while :; do echo x >>foreground; sleep 0.05; done";
    let mut process = rig.spawn(shell(beat)).await;
    until(&mut process, "ready").await;
    rig.appears("foreground").await;
    rig.appears("background").await;
    // The process is dropped as well: its output would keep the connection open.
    drop((rig, process));
    other.stops_growing("foreground").await;
    let before = other.stat("background").await.expect("it is there").size;
    soon("the daemon to go on", async {
        while other.stat("background").await.is_none_or(|entry| entry.size <= before) {
            pause(50).await;
        }
    })
    .await;
    super::rig::send(&others, "this\n").await;
    until(&mut others, "got this").await;
}

/// Holders run commands side by side and receive the output of their own; a holder that does not read delays no other.
pub async fn holders_run_commands_side_by_side(client: &dyn SandboxClient) {
    let env = [("DECLARED", "yes")];
    let first = detached(client, MachineSpec::default().env(env)).await;
    let second = attach(client, &first.machine.handle()).await;
    let mut deaf = first.spawn(shell("echo ready; yes")).await;
    until(&mut deaf, "ready").await;
    let words = |rig: Rig, word: &'static str| async move {
        for turn in 0..20 {
            let said = rig.sh(&format!("echo {word} {turn} $DECLARED")).await.text();
            assert_eq!(said, format!("{word} {turn} yes\n"));
        }
    };
    tokio::join!(words(first.clone(), "one"), words(second, "two"));
    drop(deaf);
}
