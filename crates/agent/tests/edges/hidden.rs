//! Values of the environment's secrets: hidden in the outputs and errors of tools, and replaced by references in saved runs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use sandbar_agent::{
    Agent, AgentError, BoxError, FunctionTool, Kit, OnFailure, RunConfig, RunEnvironment, RunState, ToolContext,
    ToolExt as _,
    environment::{Ending, Entering, EnvironmentSession, HidingStream, KnownSecrets},
    run,
};
use serde_json::Value;

use crate::scene::{calls, open_schema, says, script};

const VALUE: &str = "hunter22-hunter22";

/// Secrets that are recognised only in clear.
#[derive(Clone, Debug)]
struct Vault(BTreeMap<String, String>);

fn vault(name: &str, value: &str) -> Vault {
    Vault(BTreeMap::from([(name.to_owned(), value.to_owned())]))
}

impl KnownSecrets for Vault {
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.0.values().find(|value| text.contains(*value)) {
            Some(value) => text.replace(value, "[secret]").into(),
            None => text.into(),
        }
    }

    fn stream(&self) -> Box<dyn HidingStream> {
        Box::new(Whole(self.clone(), String::new()))
    }

    fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)> {
        let (name, value) = self.0.iter().find(|(_, value)| text.contains(*value))?;
        Some((text.replace(value, &format!("<{mark}:{name}>")), BTreeSet::from([name.clone()])))
    }

    fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String> {
        let Some((_, rest)) = text.split_once(&format!("<{mark}:")) else { return Ok(None) };
        let name = rest.split('>').next().unwrap_or_default();
        let value = self.0.get(name).ok_or(name)?;
        Ok(Some(text.replace(&format!("<{mark}:{name}>"), value)))
    }
}

/// A stream that holds all text back until the end.
struct Whole(Vault, String);

impl HidingStream for Whole {
    fn push(&mut self, piece: &str) -> String {
        self.1.push_str(piece);
        String::new()
    }

    fn finish(&mut self) -> String {
        self.0.hide(&std::mem::take(&mut self.1)).into_owned()
    }
}

#[derive(Debug)]
struct VaultEnvironment(Vault);

struct Visit;

#[async_trait]
impl RunEnvironment for VaultEnvironment {
    async fn open(&self, _run: &str, _saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError> {
        Ok(Box::new(Visit))
    }

    fn secrets(&self) -> Option<Arc<dyn KnownSecrets>> {
        Some(Arc::new(self.0.clone()))
    }
}

#[async_trait]
impl EnvironmentSession for Visit {
    async fn enter(&mut self, _entering: Entering<'_>) -> Result<Kit, BoxError> {
        Ok(Kit::default())
    }

    async fn leave(self: Box<Self>, _ending: Ending) -> Result<Option<Value>, BoxError> {
        Ok(None)
    }
}

fn knowing(vault: Vault) -> RunConfig {
    RunConfig::new().environment(Arc::new(VaultEnvironment(vault)))
}

/// A tool that emits its arguments in two pieces and then returns them.
fn tells() -> FunctionTool {
    FunctionTool::raw("tells", "Tells.", open_schema(), |call: ToolContext, arguments: Value| async move {
        call.tell("hunter22-").await;
        call.tell("hunter22").await;
        match arguments["fail"].as_bool() {
            Some(true) => Err::<String, BoxError>(format!("no {VALUE}").into()),
            _ => Ok(format!("it is {VALUE}; {}", arguments["text"])),
        }
    })
    .lenient()
}

#[tokio::test]
async fn answers_failures_and_pieces_are_shown_without_values() {
    let model = script([calls([("c1", "tells", "{}"), ("c2", "tells", r#"{"fail":true}"#)]), says("done")]);
    let agent = Agent::new("a").tool(tells()).model(model.clone());
    let mut stream = run(&agent, "go").config(knowing(vault("T", VALUE))).stream();
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        told.push(format!("{event:?}"));
    }
    stream.result().await.expect("it runs");
    let told = told.join("\n");
    assert!(!told.contains(VALUE) && told.contains("it is [secret]") && told.contains("no [secret]"), "{told}");
    assert_eq!(told.matches(r#"text: "[secret]""#).count(), 2, "what was held back is told at the end: {told}");
    assert!(!format!("{:?}", model.requests()).contains(VALUE));
}

#[tokio::test]
async fn a_failure_that_ends_the_run_is_told_without_values() {
    let model = script([calls([("c1", "tells", r#"{"fail":true}"#)])]);
    let agent = Agent::new("a").tool(tells().on_failure(OnFailure::Raise)).model(model);
    let error = run(&agent, "go").config(knowing(vault("T", VALUE))).await.expect_err("raised");
    let cause = std::error::Error::source(&error).expect("a cause").to_string();
    assert_eq!(cause, "no [secret]");
}

#[tokio::test]
async fn a_nested_run_keeps_references_of_its_own() {
    let ask = format!(r#"{{"text":"{VALUE}"}}"#);
    let worker = || {
        let model = script([calls([("i1", "tells", &ask)]), says("inner")]);
        Agent::new("worker").tool(tells().needs_approval()).model(model)
    };
    let boss = |model| Agent::new("boss").tool(worker().as_tool("helper", "Helps.")).model(model);
    let go = script([calls([("o1", "helper", r#"{"input":"x"}"#)]), says("done")]);
    let paused =
        run(boss(go.clone()), format!("use {VALUE}")).config(knowing(vault("T", VALUE))).await.expect("it pauses");
    let json = paused.to_state().to_json().expect("written");
    assert!(!json.contains(VALUE), "{json}");
    assert_eq!(json.matches(r#""names":["T"]"#).count(), 2, "{json}");
    let approved = |json: &str| {
        let mut state = RunState::from_json(json).expect("read");
        let [call] = &state.interruptions()[..] else { panic!("one call waits") };
        assert!(!call.arguments.contains(VALUE) && call.arguments.contains(":T>"), "{call:?}");
        state.approve(&call.clone()).expect("it waits");
        state
    };
    // A run that is saved again without the secrets still contains the references.
    let json = approved(&json).to_json().expect("written");
    assert!(!json.contains(VALUE), "{json}");
    let state = RunState::from_json(&json).expect("read");
    for config in [RunConfig::new(), knowing(vault("OTHER", VALUE))] {
        let refused = run(boss(go.clone()), state.clone()).config(config).await.expect_err("refused");
        assert!(matches!(refused.error(), AgentError::SecretNotGiven(names) if names == &["T"]), "{refused}");
        assert_eq!(refused.state().to_json().expect("written"), json);
    }
    let given = vault("T", "another-value");
    // The script of the worker begins again, so its output differs; the run continues with the new value.
    let input = match run(boss(script([says("done")])), state).config(knowing(given)).await {
        Ok(result) => format!("{:?}", result.input()),
        Err(error) => format!("{:?}", error.run().input()),
    };
    assert!(input.contains("use another-value"), "{input}");
}
