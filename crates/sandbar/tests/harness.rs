//! The harness as users of this crate alone see it: names, tools, a run that is saved.

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

mod elsewhere {
    //! The same attribute by its other paths.

    /// Waits.
    #[sandbar::tool]
    pub(super) async fn wait() {}

    /// Rests.
    #[sandbar::agent::tool]
    pub(super) async fn rest() {}
}

#[tokio::test]
async fn a_tool_needs_no_other_crate_and_a_run_survives_being_saved() {
    let script =
        Script::new().turn(item::function_call("deploy", json!({ "target": "moon" }))).turn(item::text("It is up."));
    let server = MockServer::start(script).expect("a server");
    let agent = Agent::new("ops")
        .model(Responses::new("m").base_url(server.base_url()))
        .tool(deploy)
        .tool(elsewhere::wait)
        .tool(elsewhere::rest);

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
fn where_both_halves_have_a_name_the_bare_one_is_the_machines() {
    let same = |a: TypeId, b: TypeId| assert_eq!(a, b);
    same(TypeId::of::<sandbar::Endpoint>(), TypeId::of::<sandbar_machine::Endpoint>());
    same(TypeId::of::<sandbar::Environment>(), TypeId::of::<sandbar_sandbox::Environment>());
    same(TypeId::of::<sandbar::Result<()>>(), TypeId::of::<Result<(), MachineError>>());
    same(TypeId::of::<sandbar::BoxError>(), TypeId::of::<sandbar::agent::BoxError>());
}
