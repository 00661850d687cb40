//! Promises about machines coming and going, none of which needs a command.

use super::rig::{Rig, soon};
use crate::{Demand, MachineSpec, Result, SandboxClient, once};

/// Gone is an answer.
pub async fn a_deleted_machine_is_gone_not_an_error(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let handle = rig.machine.handle();
    soon("delete", client.delete(&handle)).await.expect("it is deleted");
    assert!(soon("attach", client.attach(&handle)).await.expect("gone is no error").is_none());
}

/// Deleting what is gone is fine.
pub async fn deleting_twice_is_fine(client: &dyn SandboxClient) {
    let handle = Rig::new(client).await.machine.handle();
    for _ in 0..2 {
        soon("delete", client.delete(&handle)).await.expect("it is deleted");
    }
}

/// Stopping what is stopped is fine, and so is deleting it.
pub async fn stopping_twice_is_fine(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for _ in 0..2 {
        soon("stop", rig.machine.stop()).await.expect("it stops");
    }
    soon("delete", client.delete(&rig.machine.handle())).await.expect("it is deleted");
}

fn is_over<T>(result: Result<T>) {
    match result.map(|_| ()) {
        Err(error) if matches!(error.code(), "gone" | "transport") => {}
        other => panic!("{other:?}"),
    }
}

/// A stopped machine says so at once, whatever it is asked.
pub async fn after_a_stop_everything_fails_promptly(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "x").await;
    soon("stop", rig.machine.stop()).await.expect("it stops");
    is_over(soon("spawn", rig.machine.spawn(crate::Command::new(["true"]))).await);
    is_over(rig.read(&rig.at("file")).await);
    is_over(soon("write", rig.machine.write(&rig.at("file"), once("y"))).await);
    is_over(soon("stat", rig.machine.stat(&rig.at("file"))).await);
    is_over(soon("list", rig.machine.list(&rig.at(""))).await);
}

/// A machine that lives can be found by its handle, which survives being saved.
pub async fn a_live_machine_can_be_attached(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.put("file", "the same machine").await;
    let handle = rig.machine.handle();
    assert_eq!(handle.client, client.id());
    let saved = serde_json::to_string(&handle).expect("a handle can be saved");
    let handle = serde_json::from_str(&saved).expect("and loaded");
    let found = soon("attach", client.attach(&handle)).await.expect("no error").expect("it lives");
    assert_eq!(found.handle(), handle);
    assert_eq!(Rig { machine: found }.get("file").await, "the same machine");
}

/// What one machine writes, another does not see.
pub async fn two_machines_do_not_share_files(client: &dyn SandboxClient) {
    let (one, two) = (Rig::new(client).await, Rig::new(client).await);
    assert_ne!(one.machine.handle(), two.machine.handle());
    one.put("file", "mine").await;
    assert_eq!(two.stat("file").await, None);
    two.put("file", "yours").await;
    assert_eq!(one.get("file").await, "mine");
    soon("delete", client.delete(&two.machine.handle())).await.expect("it is deleted");
    assert_eq!(one.get("file").await, "mine");
}

/// A machine is as isolated as was demanded, and its workspace is there.
pub async fn features_tell_the_truth(client: &dyn SandboxClient) {
    let rig = Rig::with(client, MachineSpec::default().isolation(Demand::Full)).await;
    let features = rig.machine.features();
    assert!(Demand::Full.is_met_by(features.isolation), "{features:?}");
    assert!(rig.stat("").await.is_some(), "the workspace is there");
}
