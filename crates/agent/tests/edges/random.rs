//! Random scenes, played in one go and with a save and a load after every step: both must have the same transcript.

use std::num::NonZeroUsize;

use proptest::prelude::*;
use sandbar_agent::{
    Agent, BoxError, Budget, FunctionTool, Handoff, HookContext, Hooks, Item, ModelError, ModelReply, OnFailure,
    Recovery, RunConfig, RunState, ScriptedModel, Stop, Tool, ToolContext, ToolExt as _, ToolOutput, Turn, Usage,
    agent::ToolUse,
    guardrail::{Finding, InputGuardrail, OutputGuardrail, ToolOutputGuardrail, ToolVerdict},
    handoff::InputFilter,
    run,
};
use serde_json::{Value, json};

use crate::scene::{Log, echo, open_schema, reload};

/// Random numbers from a seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[derive(Clone)]
struct LoggedHooks(Log);

#[async_trait::async_trait]
impl Hooks for LoggedHooks {
    async fn on_agent_start(&self, at: &HookContext) -> Result<(), BoxError> {
        self.0.line(format!("start {}", at.agent));
        Ok(())
    }
    async fn on_agent_end(&self, at: &HookContext, output: &Value) -> Result<(), BoxError> {
        self.0.line(format!("end {} {output}", at.agent));
        Ok(())
    }
    async fn on_llm_start(&self, at: &HookContext, _: Option<&str>, input: &[Item]) -> Result<(), BoxError> {
        self.0.line(format!("asks {} {}", at.turn, input.len()));
        Ok(())
    }
    async fn on_llm_end(&self, at: &HookContext, reply: &ModelReply) -> Result<(), BoxError> {
        self.0.line(format!("heard {} {}", at.turn, reply.output.len()));
        Ok(())
    }
    async fn on_tool_start(&self, _: &HookContext, call: &ToolContext) -> Result<(), BoxError> {
        self.0.line(format!("calls {}", call.call_id()));
        Ok(())
    }
    async fn on_tool_end(&self, _: &HookContext, call: &ToolContext, _: &ToolOutput) -> Result<(), BoxError> {
        self.0.line(format!("called {}", call.call_id()));
        Ok(())
    }
    async fn on_handoff(&self, _: &HookContext, from: &str, to: &str) -> Result<(), BoxError> {
        self.0.line(format!("{from} to {to}"));
        Ok(())
    }
}

fn reply(dice: &mut Dice, names: &[&str], prefix: &str, turn: u64) -> Turn {
    if dice.roll(14) == 0 {
        return Turn::Error(ModelError::Failed { code: None, message: "broken".to_owned() });
    }
    let mut output = Vec::new();
    for place in 0..dice.roll(4) {
        let id = match dice.roll(12) {
            0 => format!("{prefix}{}_{place}", turn.saturating_sub(1)),
            _ => format!("{prefix}{turn}_{place}"),
        };
        let name = names[dice.roll(names.len() as u64) as usize];
        output.push(match dice.roll(10) {
            0 => Item::from_value(json!({ "type": "reasoning", "id": format!("rs_{id}"), "summary": [] })).unwrap(),
            1 => Item::from_value(json!({ "type": "compaction", "id": format!("cmp_{id}"), "encrypted_content": "x" }))
                .unwrap(),
            2 => Item::assistant("thinking aloud").with("id", format!("msg_{}", dice.roll(3))),
            3 => {
                Item::from_value(json!({ "type": "web_search_call", "id": format!("ws_{id}"), "status": "completed" }))
                    .unwrap()
            }
            _ => Item::function_call(id, name, r#"{"input":"x"}"#),
        });
    }
    if output.is_empty() || dice.roll(5) == 0 {
        output.push(Item::assistant(if dice.roll(6) == 0 { "hunter2" } else { "done" }));
    }
    let tokens = dice.roll(50);
    let usage = Usage { requests: 1, output_tokens: tokens, total_tokens: tokens, ..Usage::default() };
    Turn::Reply(ModelReply { output, usage, response_id: Some(format!("resp_{prefix}{turn}")), request_id: None })
}

fn model(dice: &mut Dice, names: &[&str], prefix: &str, turns: u64) -> ScriptedModel {
    ScriptedModel::new((0..turns).map(|turn| reply(dice, names, prefix, turn)).collect::<Vec<_>>())
}

fn failing(name: &str, raises: bool, log: &Log) -> impl Tool + 'static {
    let log = log.clone();
    let tool = FunctionTool::raw(name, "Fails.", open_schema(), move |call: ToolContext, _: Value| {
        log.line(format!("fails {}", call.call_id()));
        async { Err::<String, BoxError>("broken".into()) }
    });
    tool.lenient().on_failure(if raises { OnFailure::Raise } else { OnFailure::Tell })
}

fn guard(log: &Log) -> OutputGuardrail {
    let log = log.clone();
    OutputGuardrail::new("no secrets", move |check| {
        log.line("output is checked");
        async move {
            let secret = check.output.to_string().contains("hunter2");
            Ok(if secret { Finding::trip("secret") } else { Finding::pass() })
        }
    })
}

struct Play {
    agent: Agent,
    models: Vec<ScriptedModel>,
    config: RunConfig,
    log: Log,
}

fn scene(seed: u64, filter: &InputFilter) -> Play {
    let mut dice = Dice(seed);
    let log = Log::default();
    let tools = ["look", "gate", "oops", "helper", "transfer_to_b", "transfer_to_a", "boom", "unknown"];
    let outer = model(&mut dice, &tools, "o", 8);
    let inner = model(&mut dice, &["look", "gate", "deeper", "oops", "unknown"], "i", 12);
    let deepest = model(&mut dice, &["gate", "look"], "d", 8);
    let deep =
        Agent::new("deep").tool(echo("gate", &log).needs_approval()).tool(echo("look", &log)).model(deepest.clone());
    let worker = Agent::new("worker")
        .tool(echo("look", &log))
        .tool(echo("gate", &log).needs_approval())
        .tool(failing("oops", false, &log))
        .tool(deep.as_tool("deeper", "Deeper."))
        .model(inner.clone());
    let helper = worker.as_tool("helper", "Helps.").hooks(LoggedHooks(log.clone()));
    let rejecting = ToolOutputGuardrail::new("odd", |call, _| async move {
        Ok(if call.call_id().ends_with("_1") { ToolVerdict::Reject("odd".to_owned()) } else { ToolVerdict::Allow })
    });
    let dress = |agent: Agent, dice: &mut Dice| {
        let agent = agent
            .tool(echo("look", &log).output_guardrail(rejecting.clone()))
            .tool(echo("gate", &log).needs_approval())
            .tool(failing("oops", false, &log))
            .tool(failing("boom", true, &log));
        let agent =
            if dice.roll(2) == 0 { agent.tool(helper.clone()) } else { agent.tool(helper.clone().needs_approval()) };
        let agent = match dice.roll(4) {
            0 => agent.tool_use(ToolUse::StopOnFirst),
            1 => agent.tool_use(ToolUse::StopAt(vec!["gate".to_owned()])),
            _ => agent,
        };
        if dice.roll(3) == 0 { agent.output_guardrail(guard(&log)) } else { agent }
    };
    let b = dress(Agent::new("b").handoff(Handoff::to_named("a")), &mut dice).model(outer.clone());
    let to_b = if dice.roll(2) == 0 { Handoff::to(b).filter(filter.clone()) } else { Handoff::to(b) };
    let a = dress(Agent::new("a").handoff(to_b), &mut dice).model(outer.clone());
    let checked = log.clone();
    let a = a.input_guardrail(InputGuardrail::new("looks", move |_| {
        checked.line("input is checked");
        async { Ok(Finding::pass()) }
    }));
    let mut config = RunConfig::new().max_turns(Some(2 + dice.roll(6) as u32));
    if dice.roll(4) != 0 {
        config = config.tell_unknown_tools();
    }
    if dice.roll(3) == 0 {
        config = config.budget(Budget::new().tokens(60 + dice.roll(100)));
    }
    // One call at a time: concurrent nested runs would take turns of the same script in a random order.
    config = config.tool_concurrency(NonZeroUsize::MIN);
    if dice.roll(3) == 0 {
        config = config.on_max_turns(|_| async { Some(Recovery::with("out of turns")) });
    }
    Play { agent: a, models: vec![outer, inner, deepest], config, log }
}

/// A filter that keeps only the first item, which may be a call without its output.
fn short() -> InputFilter {
    InputFilter::new(|mut seen| {
        seen.before.truncate(1);
        seen
    })
}

/// Decides about some waiting calls, by their names.
fn decide(state: &mut RunState, round: usize) {
    for call in state.interruptions() {
        let hash: usize = call.call_id.bytes().map(usize::from).sum::<usize>() + call.inside.len() + round;
        let decided = match hash % 6 {
            0 | 1 => state.approve(&call),
            2 => state.reject(&call),
            3 => state.approve_always(&call),
            4 => state.reject_always(&call, Some("never".to_owned())),
            _ if round.is_multiple_of(2) => Ok(()),
            _ => state.approve(&call),
        };
        // An earlier decision may cover this call.
        decided.expect("it waits");
    }
}

async fn play(seed: u64, saves: bool) -> String {
    let scene = scene(seed, &short());
    let mut next = run(&scene.agent, "go");
    let mut text = String::new();
    let (mut rounds, mut failures) = (0, 0);
    let last = loop {
        let made = next.config(scene.config.clone()).id("run_x").hooks(LoggedHooks(scene.log.clone()));
        let outcome = if saves { made.steps(1).await } else { made.await };
        let mut state = match outcome {
            Ok(result) => match result.stop() {
                Stop::Paused => result.to_state(),
                Stop::Interrupted if rounds < 8 => {
                    text += &format!(
                        "waits {:?}\n",
                        result.interruptions().iter().map(|call| &call.call_id).collect::<Vec<_>>()
                    );
                    let mut state = result.to_state();
                    decide(&mut state, rounds);
                    rounds += 1;
                    state
                }
                stop => {
                    text += &format!("{stop:?} {:?}\n", result.output());
                    break result.to_state();
                }
            },
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                text += &format!("{error} {cause:?}\n");
                failures += 1;
                if failures > 3 {
                    break error.state();
                }
                error.state()
            }
        };
        if saves {
            state = reload(&state);
        }
        next = run(&scene.agent, state);
    };
    for item in last.run().items() {
        text += &format!("{} {:?}\n", item.agent, item.raw);
    }
    for model in &scene.models {
        for request in model.requests() {
            text += &format!("asked {:?}\n", request.input);
        }
    }
    let usage = last.run().usage();
    // Concurrent calls can take turns in another order.
    let mut log = scene.log.lines();
    log.sort();
    text += &format!("{} turns, {usage:?}\n{}\n", last.run().turn(), log.join("\n"));
    // Only times may differ.
    let mut value: Value = serde_json::from_str(&last.to_json().unwrap()).unwrap();
    without_clock(&mut value);
    text + &value.to_string()
}

fn without_clock(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.shift_remove("elapsed");
            fields.values_mut().for_each(without_clock);
        }
        Value::Array(list) => list.iter_mut().for_each(without_clock),
        _ => {}
    }
}

/// Checks that every output in a request belongs to one earlier call, and that every call has one output.
async fn sound(seed: u64, filter: &InputFilter) {
    let scene = scene(seed, filter);
    let mut next = run(&scene.agent, "go");
    for round in 0..12 {
        let outcome = next.config(scene.config.clone()).await;
        let mut state = outcome.map_or_else(|error| error.state(), |result| result.to_state());
        decide(&mut state, round);
        next = run(&scene.agent, state);
    }
    for request in scene.models.iter().flat_map(ScriptedModel::requests) {
        let mut open = Vec::new();
        let mut ids = std::collections::HashSet::new();
        for item in &request.input {
            let id = item.call_id().unwrap_or_default();
            if item.is_answer() {
                assert!(open.contains(&id), "an output for {id} without an open call: {:?}", request.input);
                open.retain(|known| *known != id);
            } else if item.is_call() {
                open.push(id);
            }
            if let Some(id) = item.id() {
                assert!(ids.insert(id), "two items with the id {id}: {:?}", request.input);
            }
        }
        assert!(open.is_empty(), "{open:?} are not answered: {:?}", request.input);
    }
}

fn cases() -> u32 {
    option_env!("REVIEW_CASES").and_then(|text| text.parse().ok()).unwrap_or(200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn a_run_made_by_chance_is_the_same_straight_and_cut(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let (straight, cut) = runtime.block_on(async { (play(seed, false).await, play(seed, true).await) });
        if straight != cut {
            let differs = straight.lines().zip(cut.lines()).find(|(one, other)| one != other);
            panic!("seed {seed}: {differs:#?}");
        }
    }

    #[test]
    fn what_a_model_is_sent_is_always_sound(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let nothing = InputFilter::new(|mut seen| {
            seen.before.clear();
            seen.new.clear();
            seen
        });
        runtime.block_on(sound(seed, &nothing));
    }

    #[test]
    fn what_a_model_is_sent_is_sound_also_after_a_filter_that_keeps_all(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(sound(seed, &InputFilter::new(|seen| seen)));
    }

    #[test]
    fn what_a_model_is_sent_is_sound_also_after_a_filter_that_cuts(seed in any::<u64>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(sound(seed, &short()));
    }
}
