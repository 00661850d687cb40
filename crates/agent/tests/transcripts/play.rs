//! The stage: plays a scene in one go, streamed, and cut at every step, and records the transcript.

use std::{fmt::Write as _, sync::Arc};

use parking_lot::Mutex;
use sandbar_agent::{
    Agent, BoxError, FunctionTool, Hooks, Item, ModelRequest, RunBuilder, RunConfig, RunError, RunEvent, RunInput,
    RunItemKind, RunResult, RunState, ScriptedModel, Stop, Tool, ToolContext, View, run,
};
use serde_json::Value;

/// Log of the tools, hooks and guardrails of a scene.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn line(&self, text: impl Into<String>) {
        self.0.lock().push(text.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    fn text(&self) -> String {
        self.lines().iter().map(|line| format!("  {line}\n")).collect()
    }
}

type Decide = Arc<dyn Fn(&mut RunState) + Send + Sync>;

/// A scene: an agent, its models, and the decisions about waiting calls.
pub(crate) struct Scene {
    agent: Agent,
    models: Vec<ScriptedModel>,
    input: RunInput,
    config: RunConfig,
    hooks: Option<Arc<dyn Fn(RunBuilder) -> RunBuilder + Send + Sync>>,
    decisions: Vec<Decide>,
    log: Log,
}

impl Scene {
    pub(crate) fn new(agent: Agent, model: ScriptedModel) -> Self {
        Self {
            agent,
            models: vec![model],
            input: RunInput::from("go"),
            config: RunConfig::new(),
            hooks: None,
            decisions: Vec::new(),
            log: Log::default(),
        }
    }

    pub(crate) fn input(mut self, input: impl Into<RunInput>) -> Self {
        self.input = input.into();
        self
    }

    /// Adds a model whose requests are recorded.
    pub(crate) fn model(mut self, model: ScriptedModel) -> Self {
        self.models.push(model);
        self
    }

    pub(crate) fn config(mut self, config: RunConfig) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn log(mut self, log: Log) -> Self {
        self.log = log;
        self
    }

    pub(crate) fn hooks<H: Hooks + Clone + 'static>(mut self, hooks: H) -> Self {
        self.hooks = Some(Arc::new(move |run: RunBuilder| run.hooks(hooks.clone())));
        self
    }

    /// Adds the decisions for one pause of the run.
    pub(crate) fn decide(mut self, decide: impl Fn(&mut RunState) + Send + Sync + 'static) -> Self {
        self.decisions.push(Arc::new(decide));
        self
    }

    fn run(&self, input: RunInput) -> RunBuilder {
        let run = run(&self.agent, input).config(self.config.clone()).id("run_test");
        match &self.hooks {
            Some(hooks) => hooks(run),
            None => run,
        }
    }
}

/// Manner in which a scene is played.
#[derive(Clone, Copy, Debug)]
enum Manner {
    Straight,
    Streamed,
    /// Saved and loaded once, after this many steps.
    CutAfter(usize),
    /// Saved and loaded after every step.
    CutAlways,
}

/// Plays a scene in every manner. Played in one go, the transcript must match the snapshot; in all other manners it must be
/// the same.
pub(crate) async fn check(name: &str, scene: impl Fn() -> Scene) {
    let (straight, _) = play(scene(), Manner::Straight).await;
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name.to_owned(), &straight);
    });
    for manner in [Manner::Streamed, Manner::CutAlways] {
        assert_eq!(play(scene(), manner).await.0, straight, "{name} played {manner:?}");
    }
    let mut cut = 0;
    loop {
        let (text, was_cut) = play(scene(), Manner::CutAfter(cut)).await;
        assert_eq!(text, straight, "{name} saved and loaded after {cut} steps");
        if !was_cut {
            break;
        }
        cut += 1;
    }
    assert!(cut > 0, "nothing was cut");
}

/// Plays until no decisions are left; returns whether the run was cut.
async fn play(scene: Scene, manner: Manner) -> (String, bool) {
    let mut text = String::new();
    let mut decisions = scene.decisions.iter();
    let mut input = scene.input.clone();
    let mut cut = match manner {
        Manner::CutAfter(steps) => Some(steps),
        _ => None,
    };
    let mut was_cut = false;
    let outcome = loop {
        let run = scene.run(input);
        let outcome = match (manner, cut) {
            (Manner::Streamed, _) => stream(run).await,
            (Manner::CutAlways, _) => run.steps(1).await,
            (_, Some(steps)) => run.steps(steps).await,
            _ => run.await,
        };
        match &outcome {
            Ok(result) if *result.stop() == Stop::Paused => {
                (was_cut, cut) = (true, None);
                input = reload(result).into();
            }
            Ok(result) if *result.stop() == Stop::Interrupted => {
                for waiting in result.interruptions() {
                    let inside =
                        if waiting.inside.is_empty() { String::new() } else { format!(" inside {:?}", waiting.inside) };
                    writeln!(text, "waits: {}({}) #{}{inside}", waiting.tool, waiting.arguments, waiting.call_id)
                        .expect("text");
                }
                let Some(decide) = decisions.next() else { break outcome };
                let mut state = reload(result);
                decide(&mut state);
                input = state.into();
            }
            _ => break outcome,
        }
    };
    text += &written(&scene, &outcome);
    (text, was_cut)
}

fn reload(result: &RunResult) -> RunState {
    let json = result.to_state().to_json().expect("a run can be saved");
    let state = RunState::from_json(&json).expect("what was saved can be loaded");
    assert_eq!(state.to_json().expect("saved again"), json, "saving is loss-free");
    state
}

async fn stream(run: RunBuilder) -> Result<RunResult, RunError> {
    let mut stream = run.stream();
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        if let RunEvent::Item { item, .. } = event {
            told.push(item);
        }
    }
    let result = stream.result().await;
    if let Ok(result) = &result {
        let silent = [RunItemKind::Compaction, RunItemKind::Other];
        let audible = result.new_items().iter().filter(|item| !silent.contains(&item.kind));
        let all: Vec<_> = audible.cloned().collect();
        assert_eq!(told, all[all.len() - told.len()..], "the stream tells what the result holds");
    }
    result
}

fn written(scene: &Scene, outcome: &Result<RunResult, RunError>) -> String {
    let (state, ending) = match outcome {
        Ok(result) => {
            let output = result.output().map_or_else(|| "none".to_owned(), Value::to_string);
            (result.to_state(), format!("stop: {:?}\noutput: {output}\n", result.stop()))
        }
        Err(error) => {
            let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
            (error.state(), format!("error: {error}{cause}\n"))
        }
    };
    let mut text = "transcript:\n".to_owned();
    let run = state.run();
    for item in run.input() {
        writeln!(text, "  {}", line(item)).expect("text");
    }
    for item in run.items() {
        writeln!(text, "  [{}] {}", item.agent, line(&item.raw)).expect("text");
    }
    text += "requests:\n";
    for model in &scene.models {
        for request in model.requests() {
            writeln!(text, "  {}", asked(&request)).expect("text");
        }
    }
    let log = scene.log.text();
    if !log.is_empty() {
        write!(text, "log:\n{log}").expect("text");
    }
    let usage = run.usage();
    text += &ending;
    writeln!(
        text,
        "agent: {}, turns: {}, requests: {}, tokens: {}",
        run.agent(),
        run.turn(),
        usage.requests,
        usage.total_tokens
    )
    .expect("text");
    text
}

fn line(item: &Item) -> String {
    match item.view() {
        View::Message(message) => {
            let role = format!("{:?}", message.role).to_lowercase();
            match message.refusal() {
                Some(refusal) => format!("{role} refuses: {refusal}"),
                None => format!("{role}: {}", message.text()),
            }
        }
        View::FunctionCall(call) => format!("call {}({}) #{}", call.name, call.arguments, call.call_id),
        View::CustomCall(call) => format!("custom {}<{}> #{}", call.name, call.input, call.call_id),
        View::Answer(item) => {
            let output = item.fields().get("output").cloned().unwrap_or_default();
            let output = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
            format!("answer #{}: {output}", item.call_id().unwrap_or_default())
        }
        _ => format!("{} {}", item.kind(), item.id().unwrap_or_default()),
    }
}

fn asked(request: &ModelRequest) -> String {
    let tools: Vec<&str> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    let input: Vec<String> = request.input.iter().map(short).collect();
    let mut text = format!("[{}] {}", tools.join(" "), input.join(" | "));
    for (name, value) in [
        ("instructions", request.instructions.clone()),
        ("choice", request.settings.tool_choice.as_ref().map(|choice| format!("{choice:?}"))),
        ("previous", request.previous_response_id.clone()),
        ("conversation", request.conversation_id.clone()),
        ("prompt", request.prompt.as_ref().map(|prompt| prompt.id.clone())),
        ("output", request.output.as_ref().map(|output| output.schema.to_string())),
    ] {
        if let Some(value) = value {
            write!(text, "; {name}={value}").expect("text");
        }
    }
    text
}

fn short(item: &Item) -> String {
    match item.view() {
        View::Message(message) => message.text(),
        View::FunctionCall(call) => format!("call #{}", call.call_id),
        View::CustomCall(call) => format!("custom #{}", call.call_id),
        View::Answer(item) => format!("answer #{}", item.call_id().unwrap_or_default()),
        _ => item.kind().to_owned(),
    }
}

// Parts of scenes.

pub(crate) fn says(text: &str) -> Vec<Item> {
    vec![Item::assistant(text)]
}

pub(crate) fn calls<const N: usize>(calls: [(&str, &str, &str); N]) -> Vec<Item> {
    calls.into_iter().map(|(id, name, arguments)| Item::function_call(id, name, arguments)).collect()
}

pub(crate) fn script<const N: usize>(turns: [Vec<Item>; N]) -> ScriptedModel {
    ScriptedModel::new(turns)
}

/// A tool that logs its calls and returns its name and arguments.
pub(crate) fn echo(name: &str, log: &Log) -> impl Tool + Clone + 'static {
    let (log, known) = (log.clone(), name.to_owned());
    let schema = serde_json::json!({ "type": "object", "properties": {}, "additionalProperties": true });
    FunctionTool::raw(name, "Repeats.", schema, move |_: ToolContext, arguments: Value| {
        let (log, known) = (log.clone(), known.clone());
        async move {
            log.line(format!("{known} is called with {arguments}"));
            Ok::<_, BoxError>(format!("{known} {arguments}"))
        }
    })
    .lenient()
}
