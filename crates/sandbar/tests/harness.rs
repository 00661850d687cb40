//! The harness for users who depend only on this crate: names, tools, a saved run.

#![allow(clippy::expect_used, reason = "a test")]

use std::any::TypeId;

use sandbar::{
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;

/// Deploys.
#[tool(needs_approval)]
async fn deploy(call: &ToolContext, target: String) -> Result<String, BoxError> {
    Ok(format!("{} by {}", target, call.agent()))
}

mod other_paths {
    //! The attribute by its other paths.

    /// Waits.
    #[sandbar::tool]
    pub(super) async fn wait() {}

    /// Rests.
    #[sandbar::agent::tool]
    pub(super) async fn rest() {}
}

#[tokio::test]
async fn a_tool_needs_no_other_crate_and_a_run_can_be_saved_and_resumed() {
    let script =
        Script::new().turn(item::function_call("deploy", json!({ "target": "moon" }))).turn(item::text("It is up."));
    let server = MockServer::start(script).expect("a server");
    let agent = Agent::new("ops")
        .model(Responses::new("m").base_url(server.base_url()))
        .tool(deploy)
        .tool(other_paths::wait)
        .tool(other_paths::rest);

    let paused = run(&agent, "Deploy.").await.expect("it pauses");
    assert_eq!(*paused.stop(), Stop::Interrupted);
    let saved = paused.to_state().to_json().expect("it can be written");
    let mut state = RunState::from_json(&saved).expect("it can be read");
    for call in state.interruptions() {
        state.approve(&call).expect("it waits");
    }
    assert_eq!(run(&agent, state).await.expect("it goes on").final_output(), "It is up.");
    assert_eq!(server.problems(), []);
}

#[test]
fn a_name_of_both_agent_and_machine_means_the_machines() {
    let same = |a: TypeId, b: TypeId| assert_eq!(a, b);
    same(TypeId::of::<sandbar::machine::Endpoint>(), TypeId::of::<sandbar_machine::Endpoint>());
    same(TypeId::of::<sandbar::sandbox::Environment>(), TypeId::of::<sandbar_sandbox::Environment>());
    same(TypeId::of::<sandbar::machine::Result<()>>(), TypeId::of::<Result<(), MachineError>>());
    same(TypeId::of::<sandbar::BoxError>(), TypeId::of::<sandbar::agent::BoxError>());
}
