//! Environments: entered before the first turn, left at every end of a run, and opened again by a resumed run.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_agent::{
    Agent, BoxError, Kit, RunConfig, RunEnvironment, RunState, ToolExt as _,
    environment::{Ending, Entering, EnvironmentSession},
    run,
};
use serde_json::{Value, json};

use crate::play::{Log, Scene, calls, check, echo, says, script};

/// An environment that logs when agents enter and runs leave.
#[derive(Clone)]
struct Workshop(Log);

impl std::fmt::Debug for Workshop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Workshop")
    }
}

struct Visit(Log, u64);

#[async_trait]
impl RunEnvironment for Workshop {
    async fn open(&self, _run: &str, saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError> {
        let visits = saved.and_then(|saved| saved["visits"].as_u64()).unwrap_or(0);
        Ok(Box::new(Visit(self.0.clone(), visits + 1)))
    }
}

#[async_trait]
impl EnvironmentSession for Visit {
    async fn enter(&mut self, entering: Entering<'_>) -> Result<Kit, BoxError> {
        let mut kit = Kit::default();
        kit.tools.push(Arc::new(echo(&format!("hammer_of_{}", entering.agent.name()), &self.0)));
        kit.instructions = Some(Arc::new(|own| {
            Box::pin(async move { Ok(format!("You are in a workshop. {}", own.unwrap_or_default())) })
        }));
        Ok(kit)
    }

    async fn leave(self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError> {
        self.0.line(format!("visit {} ends: {ending:?}", self.1));
        Ok((ending != Ending::Finished).then(|| json!({ "visits": self.1 })))
    }
}

#[tokio::test(start_paused = true)]
async fn an_environment_adds_tools_and_instructions_to_each_agent() {
    // The log is not compared here: a run that is saved and loaded enters more often.
    check("environment", || {
        let quiet = Log::default();
        let model = script([
            calls([("c1", "hammer_of_a", "{}")]),
            calls([("c2", "transfer_to_b", "{}")]),
            calls([("c3", "hammer_of_b", "{}")]),
            says("built"),
        ]);
        let b = Agent::new("b").instructions("Be b.").model(model.clone());
        let a = Agent::new("a").instructions("Be a.").handoff(b).model(model.clone());
        Scene::new(a, model).config(RunConfig::new().environment(Arc::new(Workshop(quiet))))
    })
    .await;
}

#[tokio::test]
async fn an_environment_is_left_at_every_end_and_opened_again_by_a_resumed_run() {
    let log = Log::default();
    let config = RunConfig::new().environment(Arc::new(Workshop(log.clone())));
    let model = script([calls([("c1", "deploy", "{}")]), says("done")]);
    let agent = Agent::new("a").tool(echo("deploy", &log).needs_approval()).model(model);
    let paused = run(&agent, "go").config(config.clone()).await.expect("it waits");
    let mut state = RunState::from_json(&paused.to_state().to_json().expect("saved")).expect("loaded");
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    run(&agent, state).config(config.clone()).await.expect("it finishes");

    let failing = Agent::new("a").model(script([calls([("c1", "nope", "{}")])]));
    run(&failing, "go").config(config).await.expect_err("it fails");
    let lines = log.lines();
    let visits: Vec<&str> = lines.iter().map(String::as_str).filter(|line| line.starts_with("visit")).collect();
    assert_eq!(visits, ["visit 1 ends: Paused", "visit 2 ends: Finished", "visit 1 ends: Failed"]);
}
