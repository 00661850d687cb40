//! Hooks.

use async_trait::async_trait;
use sandbar_agent::{Agent, HookContext, Hooks, Item, ModelReply, ToolContext, ToolExt as _, ToolOutput, hooks::Told};
use serde_json::Value;

use crate::play::{Log, Scene, calls, check, echo, says, script};

/// Hooks that log every call.
#[derive(Clone)]
struct Scribe(&'static str, Log);

impl Scribe {
    fn write(&self, at: &HookContext, what: &str) -> Told {
        self.1.line(format!("{}: {what} of {} in turn {}", self.0, at.agent, at.turn));
        Ok(())
    }
}

#[async_trait]
impl Hooks for Scribe {
    async fn on_agent_start(&self, at: &HookContext) -> Told {
        self.write(at, "start")
    }

    async fn on_agent_end(&self, at: &HookContext, output: &Value) -> Told {
        self.write(at, &format!("end with {output}"))
    }

    async fn on_llm_start(&self, at: &HookContext, instructions: Option<&str>, input: &[Item]) -> Told {
        self.write(at, &format!("asking {} items by {instructions:?}", input.len()))
    }

    async fn on_llm_end(&self, at: &HookContext, reply: &ModelReply) -> Told {
        self.write(at, &format!("reply of {} items", reply.output.len()))
    }

    async fn on_tool_start(&self, at: &HookContext, call: &ToolContext) -> Told {
        self.write(at, &format!("calling {} #{}", call.tool(), call.call_id()))
    }

    async fn on_tool_end(&self, at: &HookContext, call: &ToolContext, output: &ToolOutput) -> Told {
        self.write(at, &format!("{} #{} answered {}", call.tool(), call.call_id(), output.wire()))
    }

    async fn on_handoff(&self, at: &HookContext, from: &str, to: &str) -> Told {
        self.write(at, &format!("handoff from {from} to {to}"))
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_of_the_run_and_of_the_agent_are_called_for_every_event() {
    check("hooks", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")]), calls([("c2", "transfer_to_b", "{}")]), says("done")]);
        let b = Agent::new("b").instructions("Be b.").model(model.clone()).hooks(Scribe("b's", log.clone()));
        let a = Agent::new("a").tool(echo("look", &log)).handoff(b).hooks(Scribe("a's", log.clone()));
        Scene::new(a.model(model.clone()), model).hooks(Scribe("run's", log.clone())).log(log)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn no_tool_hook_is_called_for_a_rejected_call() {
    check("hooks_of_refused_calls", || {
        let log = Log::default();
        let model = script([calls([("c1", "deploy", "{}")]), says("fine")]);
        let agent = Agent::new("a").tool(echo("deploy", &log).needs_approval()).model(model.clone());
        Scene::new(agent, model)
            .hooks(Scribe("run's", log.clone()))
            .decide(|state| state.reject(&state.interruptions()[0].clone()).expect("it waits"))
            .log(log)
    })
    .await;
}

/// Hooks that fail before a tool call.
#[derive(Clone)]
struct Strict;

#[async_trait]
impl Hooks for Strict {
    async fn on_tool_start(&self, _at: &HookContext, _call: &ToolContext) -> Told {
        Err("not on my watch".into())
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_ends_the_run() {
    check("hook_fails", || {
        let log = Log::default();
        let model = script([calls([("c1", "look", "{}")])]);
        Scene::new(Agent::new("a").tool(echo("look", &log)).model(model.clone()), model).hooks(Strict).log(log)
    })
    .await;
}
