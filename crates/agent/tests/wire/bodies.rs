//! Request bodies of every kind, checked by a server that refuses what a real server would refuse.

use std::sync::Arc;

use sandbar_agent::{
    Grammar, Item, Model, ModelRequest, ModelSettings, OutputFormat, Part, Prompt, Reasoning, Responses, ToolChoice,
    ToolKind, ToolSpec,
};
use sandbar_mock::{Events, MockServer, Script, Turn, item};
use serde_json::{Value, json};

use crate::asking::{ask, chat, endpoint, hello, responses};

fn schema() -> Value {
    let number = json!({ "type": "number" });
    json!({
        "type": "object", "properties": { "a": number, "b": number },
        "required": ["a", "b"], "additionalProperties": false,
    })
}

fn add() -> ToolSpec {
    ToolSpec::function("add", "Adds two numbers.", schema())
}

fn patch(grammar: Option<Grammar>) -> ToolSpec {
    ToolSpec { name: "patch".to_owned(), description: "Patches.".to_owned(), kind: ToolKind::Custom { grammar } }
}

fn format() -> OutputFormat {
    OutputFormat { name: "final_output".to_owned(), schema: schema(), strict: true }
}

fn settings() -> ModelSettings {
    let mut settings = ModelSettings::new();
    settings.temperature = Some(0.5);
    settings.top_p = Some(0.5);
    settings.max_tokens = Some(100);
    settings.truncation = Some("auto".to_owned());
    settings.verbosity = Some("low".to_owned());
    settings.reasoning = Some(Reasoning { effort: Some("none".to_owned()), summary: Some("auto".to_owned()) });
    settings.metadata = Some([("k".to_owned(), "v".to_owned())].into());
    settings.store = Some(false);
    settings.include = vec!["reasoning.encrypted_content".to_owned()];
    settings.top_logprobs = Some(1);
    settings.parallel_tool_calls = Some(true);
    settings.context_management = Some(json!([{ "type": "compaction", "compact_threshold": 1000 }]));
    settings.prompt_cache_retention = Some("24h".to_owned());
    settings
}

fn choosing(choice: ToolChoice) -> ModelSettings {
    let mut settings = ModelSettings::new();
    settings.tool_choice = Some(choice);
    settings
}

fn requests() -> Vec<(&'static str, ModelRequest)> {
    let lark = Grammar { syntax: "lark".to_owned(), definition: "start: \"x\"".to_owned() };
    let parts = [Part::text("look"), Part::image_url("data:image/png;base64,AA=="), Part::file("f.txt", "QQ==")];
    let tools: Arc<[ToolSpec]> = Arc::new([add(), patch(Some(lark))]);
    let with_tools = |settings| ModelRequest { tools: Arc::clone(&tools), settings, ..hello() };
    vec![
        ("plain", hello()),
        ("instructions", ModelRequest { instructions: Some("Be kind.".to_owned()), ..hello() }),
        ("every setting", ModelRequest { settings: settings(), tools: Arc::new([add()]), ..hello() }),
        ("tools", with_tools(ModelSettings::new())),
        ("no grammar", ModelRequest { tools: Arc::new([patch(None)]), ..hello() }),
        ("required", with_tools(choosing(ToolChoice::Required))),
        ("none", with_tools(choosing(ToolChoice::None))),
        ("this function", with_tools(choosing(ToolChoice::Named("add".to_owned())))),
        ("structured", ModelRequest { output: Some(Arc::new(format())), ..hello() }),
        ("parts", ModelRequest { input: vec![Item::user_parts(parts)].into(), ..hello() }),
        ("tools without any", ModelRequest { settings: choosing(ToolChoice::Required), ..hello() }),
        ("family defaults", ModelRequest { settings: ModelSettings::defaults_for("gpt-5.5"), ..hello() }),
    ]
}

fn talking() -> MockServer {
    MockServer::start(Script::new().turn(item::text("ok"))).expect("a server")
}

#[tokio::test]
async fn no_request_breaks_a_rule_of_the_responses_api() {
    let server = talking();
    let (model, _) = responses(&server);
    let prompt = Prompt { id: "pmpt_1".to_owned(), ..Prompt::default() };
    let custom = ModelRequest {
        tools: Arc::new([patch(None)]),
        settings: choosing(ToolChoice::Named("patch".to_owned())),
        ..hello()
    };
    let own = [("prompt", ModelRequest { prompt: Some(prompt), ..hello() }), ("custom", custom)];
    for (name, request) in requests().into_iter().chain(own) {
        assert_eq!(ask(&model, request).await.summary(), "ok", "{name}");
    }
    assert_eq!(server.problems(), []);
}

#[tokio::test]
async fn no_request_breaks_a_rule_of_chat_completions() {
    let server = talking();
    let (model, _) = chat(&server);
    for (name, request) in requests() {
        assert_eq!(ask(&model, request).await.summary(), "ok", "{name}");
    }
    assert_eq!(server.problems(), []);
}

/// Plays a conversation of several turns by hand: whatever the model says goes back as it came.
async fn play(model: &dyn Model, output: impl Fn(&Item) -> Item) -> (String, Vec<Item>) {
    let tools: Arc<[ToolSpec]> = Arc::new([add(), patch(None)]);
    let mut input = vec![Item::user("Go.")];
    loop {
        let request =
            ModelRequest { input: input.clone().into(), tools: Arc::clone(&tools), ..ModelRequest::default() };
        let heard = ask(model, request).await;
        let reply = match heard.end {
            Ok(reply) => reply,
            Err(error) => panic!("{error}"),
        };
        let answers: Vec<Item> = reply.output.iter().filter(|item| item.is_call()).map(&output).collect();
        input.extend(reply.output.iter().cloned());
        if answers.is_empty() {
            return (reply.output.iter().map(crate::asking::text).collect(), input);
        }
        input.extend(answers);
    }
}

fn answered(call: &Item) -> Item {
    let id = call.call_id().expect("a call");
    if call.kind() == "custom_tool_call" { Item::custom_output(id, "done") } else { Item::function_output(id, "3") }
}

fn conversation(events: Events) -> Script {
    Script::new()
        .events(events)
        .turn(Turn::new([
            item::reasoning("I should add."),
            item::text("Adding."),
            item::function_call("add", json!({ "a": 1, "b": 2 })),
            item::function_call("add", json!({ "a": 3, "b": 4 })),
        ]))
        .turn(item::function_call("add", json!({ "a": 5, "b": 6 })))
        .turn(item::text("Done."))
}

#[tokio::test]
async fn a_conversation_goes_back_to_the_server_as_it_came() {
    for events in [Events::Full, Events::Minimal] {
        let script = conversation(events).turn(item::text("unreached"));
        let server = MockServer::start(script).expect("a server");
        let (model, _) = responses(&server);
        let (text, input) = play(&model, answered).await;
        assert_eq!(text, "Done.");
        assert_eq!(input.len(), 10);
        assert_eq!(server.problems(), []);
    }
}

#[tokio::test]
async fn freeform_calls_are_made_and_answered() {
    let script = || Script::new().turn(item::custom_tool_call("patch", "*** Begin \"x\"\n")).turn(item::text("Done."));
    let server = MockServer::start(script()).expect("a server");
    let (model, _) = responses(&server);
    let (text, input) = play(&model, answered).await;
    assert_eq!((text.as_str(), input[1].text_field("input")), ("Done.", Some("*** Begin \"x\"\n")));
    assert_eq!(server.problems(), []);
}

#[tokio::test]
async fn a_conversation_over_chat_is_the_same_conversation() {
    let server = MockServer::start(conversation(Events::Full)).expect("a server");
    let (model, _) = chat(&server);
    let (text, input) = play(&model, answered).await;
    assert_eq!(text, "Done.");
    let calls: Vec<_> = input.iter().filter(|item| item.is_call()).map(|item| item.text_field("arguments")).collect();
    let parsed: Vec<Value> =
        calls.iter().map(|text| serde_json::from_str(text.expect("text")).expect("json")).collect();
    assert_eq!(parsed, [json!({ "a": 1, "b": 2 }), json!({ "a": 3, "b": 4 }), json!({ "a": 5, "b": 6 })]);
    assert_eq!(server.problems(), []);
}

#[tokio::test]
async fn a_conversation_begun_over_chat_goes_on_over_responses() {
    let server = MockServer::start(conversation(Events::Full)).expect("a server");
    let (other, _) = chat(&server);
    let (_, mut input) = play(&other, answered).await;
    let after = MockServer::start(Script::new().turn(item::text("Hello again."))).expect("a server");
    let (endpoint, _) = endpoint(&after);
    input.push(Item::user("And now?"));
    let request = ModelRequest { input: input.into(), tools: Arc::new([add()]), ..ModelRequest::default() };
    assert_eq!(ask(&Responses::new("m").at(endpoint), request).await.summary(), "Hello again.");
    assert_eq!(after.problems(), []);
}
