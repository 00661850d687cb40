//! Tools from `#[tool]`: their specification, their calls, and compiler errors.

use std::time::Duration;

use sandbar_agent::{
    Agent, App, Approval, IntoToolOutput, Item, Json, Part, ScriptedModel, Tool, ToolContext, ToolExt as _, ToolOutput,
    run, tool,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Looks up the weather.
///
/// Takes its time.
#[tool]
async fn weather(
    call: &ToolContext,
    /// The city's name,
    /// in English.
    city: String,
    days: Option<u8>,
) -> Result<String, std::io::Error> {
    if city == "Atlantis" {
        return Err(std::io::Error::other("it sank"));
    }
    Ok(format!("{}: sunny in {city} for {} days", call.tool(), days.unwrap_or(1)))
}

#[derive(Deserialize, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Metre,
    Mile,
}

/// Measures.
///
/// # Arguments
/// - `lengths`: what was measured
#[tool(name = "measure-it", description = "Measures a length.", needs_approval, timeout = "250ms")]
#[allow(clippy::unused_async)]
pub(crate) async fn measure(
    call: ToolContext,
    r#type: &str,
    #[serde(rename = "in", default = "metre")] unit: Unit,
    mut lengths: Vec<f64>,
) -> Json<Value> {
    lengths.reverse();
    Json(json!({ "call": call.call_id(), "type": r#type, "unit": unit, "lengths": lengths }))
}

fn metre() -> Unit {
    Unit::Metre
}

/// Says nothing at all.
#[tool]
async fn nothing() {}

/// Keeps labels.
///
/// # Arguments
/// * `labels` - what to keep
#[tool(lenient)]
async fn label(labels: std::collections::BTreeMap<String, String>) -> usize {
    labels.len()
}

mod inner {
    //! A module with names that would break unhygienic code of a macro.

    use super::tool;

    #[derive(Debug)]
    pub(super) struct Result;
    #[derive(Debug)]
    pub(super) struct String;

    /// Answers.
    #[tool(crate = "sandbar_agent")]
    pub(super) async fn answer(__unusual: u8, call: u8, arguments: u8, rules: bool) -> u64 {
        let _names = (Result, String);
        u64::from(__unusual + call + arguments) + u64::from(rules)
    }
}

async fn answer(tool: &dyn Tool, arguments: &str) -> Result<ToolOutput, String> {
    let call = ToolContext::for_test("t", App::default());
    tool.call(&call, arguments).await.map_err(|error| error.to_string())
}

fn parameters(tool: &dyn Tool) -> Value {
    tool.spec().wire()["parameters"].clone()
}

#[test]
fn the_model_sees_the_doc_comments_and_the_signature() {
    let expected = json!({
        "type": "function", "name": "weather", "description": "Looks up the weather.\n\nTakes its time.", "strict": true,
        "parameters": {
            "type": "object",
            "properties": {
                "city": { "description": "The city's name,\nin English.", "type": "string" },
                "days": { "type": ["integer", "null"], "minimum": 0, "maximum": 255 },
            },
            "required": ["city", "days"],
            "additionalProperties": false,
        },
    });
    assert_eq!(weather.spec().wire(), expected);
}

#[test]
fn options_change_what_is_seen_and_by_which_rules_it_is_called() {
    let spec = measure.spec();
    assert_eq!((spec.name.as_str(), spec.description.as_str()), ("measure-it", "Measures a length."));
    assert!(matches!(measure.rules().approval, Approval::Always));
    assert_eq!(measure.rules().timeout, Some(Duration::from_millis(250)));
    assert!(matches!(weather.rules().approval, Approval::Never));
    assert_eq!(parameters(&measure)["required"], json!(["type", "in", "lengths"]));
    let labels = label.spec().wire();
    assert_eq!(labels["strict"], false);
    assert_eq!(labels["description"], "Keeps labels.");
    assert_eq!(labels["parameters"]["properties"]["labels"]["description"], "what to keep");
    assert_eq!(parameters(&nothing)["properties"], json!({}));
    assert!(matches!(nothing.needs_approval().rules().approval, Approval::Always));
}

#[tokio::test]
async fn a_call_reaches_the_function_or_says_what_was_wrong() {
    let cases: [(&dyn Tool, &str, Result<ToolOutput, &str>); 9] = [
        (&weather, r#"{"city":"Oslo","days":2}"#, Ok(text("t: sunny in Oslo for 2 days"))),
        (&weather, r#"{"city":"Oslo"}"#, Ok(text("t: sunny in Oslo for 1 days"))),
        (&weather, r#"{"city":"Atlantis"}"#, Err("it sank")),
        (&weather, r#"{"city":"Oslo","days":"two"}"#, Err("argument /days: invalid type: string \"two\", expected u8")),
        (&weather, "", Err("missing field `city`")),
        (
            &measure,
            r#"{"type":"short","lengths":[1,2.5]}"#,
            Ok(ToolOutput::Json(
                json!({ "call": "call_test", "type": "short", "unit": "metre", "lengths": [2.5, 1.0] }),
            )),
        ),
        (
            &measure,
            r#"{"type":"short","in":"inch","lengths":[]}"#,
            Err("argument /in: unknown variant `inch`, expected `metre` or `mile`"),
        ),
        (&nothing, "", Ok(text(""))),
        (&inner::answer, r#"{"__unusual":1,"call":2,"arguments":3,"rules":true}"#, Ok(ToolOutput::Json(json!(7)))),
    ];
    for (tool, arguments, expected) in cases {
        assert_eq!(answer(tool, arguments).await, expected.map_err(str::to_owned), "{arguments}");
    }
}

#[tokio::test]
async fn the_function_itself_can_still_be_called() {
    let call = ToolContext::for_test("w", App::default());
    assert_eq!(weather::direct(&call, "Rome".to_owned(), None).await.unwrap(), "w: sunny in Rome for 1 days");
    assert_eq!(inner::answer::direct(1, 1, 1, false).await, 3);
}

#[tokio::test]
async fn a_tool_can_be_made_inside_a_function_and_return_parts() {
    /// Draws.
    #[tool]
    async fn draw(title: &str) -> Vec<Part> {
        vec![Part::text(title)]
    }
    assert_eq!(
        answer(&draw, r#"{"title":"cat"}"#).await,
        vec![Part::text("cat")].into_tool_output().map_err(|_| String::new())
    );
}

#[tokio::test]
async fn an_agent_takes_the_function_by_its_name() {
    let call = Item::function_call("c1", "weather", r#"{"city":"Oslo","days":3}"#);
    let script = [vec![call], vec![Item::assistant("Sunny.")]];
    let model = ScriptedModel::new(script);
    let agent = Agent::new("guide").model(model.clone()).tool(weather).tool(measure).tool(label);
    let result = run(&agent, "How is Oslo?").await.unwrap();
    assert_eq!(result.final_output(), "Sunny.");
    let told = serde_json::to_string(&model.requests()[1].input).unwrap();
    assert!(told.contains("weather: sunny in Oslo for 3 days"), "{told}");
    assert_eq!(model.requests()[0].tools.len(), 3);
}

fn text(text: &str) -> ToolOutput {
    ToolOutput::Text(text.to_owned())
}

#[test]
#[ignore = "slow: it builds all dependencies again; `cargo xtask test --all`"]
fn the_compiler_says_what_is_wrong_where_it_is_wrong() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
