//! Runs as values: resumed after a crash, refused if damaged, cancelled, and executed concurrently.
#![allow(clippy::expect_used, reason = "a test")]

use std::{sync::Arc, time::Duration};

use sandbar_agent::{
    Agent, App, BoxError, FunctionTool, Item, ModelError, RunEvent, RunState, ScriptedModel, Step, Stop, ToolContext,
    ToolExt as _, Turn, run,
};
use serde_json::{Value, json};

fn open_schema() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": true })
}

fn tool(name: &str) -> FunctionTool {
    FunctionTool::raw(name, "Works.", open_schema(), |call: ToolContext, _: Value| async move {
        Ok::<_, BoxError>(format!("{} of {}", call.tool(), call.call_id()))
    })
    .lenient()
}

fn hanging() -> FunctionTool {
    FunctionTool::raw("hang", "Hangs.", open_schema(), |_: ToolContext, _: Value| async {
        futures::future::pending::<()>().await;
        Ok::<_, BoxError>("never")
    })
    .lenient()
}

fn call(id: &str, name: &str) -> Vec<Item> {
    vec![Item::function_call(id, name, "{}")]
}

#[tokio::test(start_paused = true)]
async fn cancelling_now_keeps_the_last_finished_step() {
    let model = ScriptedModel::new([call("c1", "work"), call("c2", "hang"), vec![Item::assistant("I see.")]]);
    let agent = Agent::new("a").tool(tool("work")).tool(hanging()).model(model);
    let mut stream = run(&agent, "go").stream();
    while let Some(event) = stream.next().await {
        if let RunEvent::Item { name: "tool_called", item } = &event
            && item.raw.call_id() == Some("c2")
        {
            stream.cancel_now();
        }
    }
    let result = stream.result().await.expect("a cancelled run is no failure");
    assert_eq!(*result.stop(), Stop::Cancelled);
    assert_eq!(result.final_output(), "work of c1");

    // The call was never begun, so the resumed run makes it; this tool returns.
    let agent = Agent::new("a")
        .tool(tool("work"))
        .tool(tool("hang"))
        .model(ScriptedModel::new([vec![Item::assistant("I see.")]]));
    let result = run(&agent, result.to_state()).await.expect("it goes on");
    assert_eq!(result.final_output(), "I see.");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_interrupted_is_not_made_again_but_told() {
    let model = ScriptedModel::new([call("c1", "hang"), vec![Item::assistant("I will check.")]]);
    let agent = Agent::new("a").tool(hanging()).model(model.clone());
    let mut stream = run(&agent, "go").stream();
    let cancel = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    tokio::select! {
        _ = async { while stream.next().await.is_some() {} } => unreachable!("it hangs"),
        () = cancel => stream.cancel_now(),
    }
    let result = stream.result().await.expect("cancelled");
    assert_eq!(*result.stop(), Stop::Cancelled);
    let state = RunState::from_json(&result.to_state().to_json().expect("saved")).expect("loaded");
    let result = run(&agent, state).await.expect("it goes on");
    let answer = result.new_items().iter().find(|item| item.raw.is_answer()).expect("an answer");
    assert!(answer.raw.text_field("output").is_some_and(|text| text.contains("not known whether it took effect")));
    assert_eq!((model.left(), result.final_output().as_str()), (0, "I will check."));
}

#[tokio::test]
async fn cancelling_after_the_turn_lets_the_turn_finish() {
    let model = ScriptedModel::new([call("c1", "work"), vec![Item::assistant("later")]]);
    let agent = Agent::new("a").tool(tool("work")).model(model);
    let stream = run(&agent, "go").stream();
    stream.cancel_after_turn();
    let result = stream.result().await.expect("cancelled");
    assert_eq!((result.stop(), result.final_output().as_str()), (&Stop::Cancelled, "work of c1"));
    assert_eq!(result.to_state().run().next(), Step::CallModel);
    let result = run(&agent, result.to_state()).await.expect("it goes on");
    assert_eq!(result.final_output(), "later");
}

#[tokio::test]
async fn a_stream_tells_things_in_the_order_they_happen() {
    let model = ScriptedModel::new([
        call("c1", "work"),
        call("c2", "transfer_to_b"),
        vec![Item::assistant("Hello "), Item::assistant("there.")],
    ]);
    let agent = Agent::new("a").tool(tool("work")).handoff(Agent::new("b").model(model.clone())).model(model);
    let mut stream = run(&agent, "go").stream();
    let mut told = Vec::new();
    while let Some(event) = stream.next().await {
        told.push(match &event {
            RunEvent::Model(raw) => raw.text_delta().map(|text| format!("text {text:?}")),
            RunEvent::Item { name, .. } => Some((*name).to_owned()),
            RunEvent::Agent(agent) => Some(format!("agent {agent}")),
            _ => None,
        });
    }
    let told: Vec<String> = told.into_iter().flatten().collect();
    assert_eq!(
        told,
        [
            "tool_called",
            "tool_output",
            "handoff_requested",
            "handoff_occured",
            "agent b",
            "text \"Hello \"",
            "text \"there.\"",
            "message_output_created",
            "message_output_created",
        ]
    );
    assert_eq!(stream.result().await.expect("it finishes").final_output(), "there.");
}

#[tokio::test]
async fn what_was_shown_is_never_asked_for_again() {
    let shown =
        serde_json::from_value(json!({ "type": "response.output_text.delta", "delta": "Hel" })).expect("an event");
    let broken = || ModelError::Network { host: "h".to_owned(), reason: "cut".to_owned() };
    let model = ScriptedModel::new([Turn::Broken(vec![shown], broken()), Turn::Items(vec![Item::assistant("again")])]);
    let mut settings = sandbar_agent::ModelSettings::new();
    settings.retry = Some(sandbar_agent::Retry { max_retries: 5, ..Default::default() });
    let agent = Agent::new("a").settings(settings).model(model.clone());
    let error = run(&agent, "go").await.expect_err("it fails");
    assert_eq!((error.error().code(), model.left()), ("model", 1));
    // The run itself is intact and can be resumed.
    assert_eq!(run(&agent, error.state()).await.expect("it goes on").final_output(), "again");
}

#[test]
fn a_run_can_be_made_without_a_runtime() {
    let agent = Agent::new("a").model(ScriptedModel::new([vec![Item::assistant("hi")]]));
    assert_eq!(run(&agent, "go").blocking().expect("it runs").final_output(), "hi");
}

#[tokio::test]
async fn blocking_inside_a_runtime_is_refused() {
    let agent = Agent::new("a").model(ScriptedModel::new([vec![Item::assistant("hi")]]));
    assert_eq!(run(&agent, "go").blocking().expect_err("refused").error().code(), "misuse");
}

#[tokio::test]
async fn one_agent_can_be_in_many_runs_at_once() {
    let turns = (0..100).map(|_| vec![Item::assistant("hi")]);
    let agent = Agent::new("a").model(ScriptedModel::new(turns));
    let runs = futures::future::join_all((0..100).map(|number| {
        let agent = agent.clone();
        tokio::spawn(async move { run(&agent, format!("run {number}")).await.map(|result| result.final_output()) })
    }));
    for result in runs.await {
        assert_eq!(result.expect("no panic").expect("it runs"), "hi");
    }
}

#[tokio::test]
async fn what_the_caller_gives_along_reaches_tools_and_is_never_saved() {
    struct Account {
        key: String,
    }
    let pay = FunctionTool::raw("pay", "Pays.", open_schema(), |call: ToolContext, _: Value| async move {
        let account = call.app::<Account>().ok_or("there is no account")?;
        Ok::<_, BoxError>(format!("paid with a key of {} letters", account.key.len()))
    });
    let model = ScriptedModel::new([call("c1", "pay"), vec![Item::assistant("paid")]]);
    let agent = Agent::new("a").tool(pay.lenient().needs_approval()).model(model);
    let account = || App::new(Account { key: "hunter2-hunter2".to_owned() });
    let paused = run(&agent, "go").app(account()).await.expect("it waits");
    let mut state = paused.to_state();
    assert!(!state.to_json().expect("saved").contains("hunter2"));
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    let result = run(&agent, state).app(account()).await.expect("it finishes");
    let answer = result.new_items().iter().find(|item| item.raw.is_answer()).expect("an answer");
    assert_eq!(answer.raw.text_field("output"), Some("paid with a key of 15 letters"));
}

#[tokio::test]
async fn a_saved_run_that_is_not_one_is_refused_without_repeating_it() {
    let agent = Agent::new("a").model(ScriptedModel::new([vec![Item::assistant("private words")]]));
    let whole = run(&agent, "go").await.expect("it runs").to_state().to_json().expect("saved");
    let newer = whole.replacen("\"sandbar_run\":1", "\"sandbar_run\":999", 1);
    let broken_range = whole.replacen("\"to\":1", "\"to\":9", 1);
    for (text, says) in [
        ("", "damaged at line 1"),
        ("{}", "not a saved run"),
        ("[1,2]", "damaged"),
        (&whole[..whole.len() - 9], "damaged"),
        (&newer, "newer version of sandbar (format 999"),
        (&broken_range, "names items that are not there"),
    ] {
        let error = RunState::from_json(text).expect_err(says).to_string();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("private"), "{error}");
    }
}

#[tokio::test]
async fn a_saved_run_of_an_agent_that_is_gone_says_which_agents_there_are() {
    let agent =
        Agent::new("old").model(ScriptedModel::new([call("c1", "work"), vec![]])).tool(tool("work").needs_approval());
    let mut state = run(&agent, "go").await.expect("it waits").to_state();
    state.approve(&state.interruptions()[0].clone()).expect("it waits");
    let other = Agent::new("new").model(ScriptedModel::new([vec![Item::assistant("hi")]]));
    let error = run(&other, state).await.expect_err("refused").to_string();
    assert!(error.contains("there is no agent \"old\" here; there are new"), "{error}");
}

#[tokio::test]
async fn deciding_about_a_call_that_does_not_wait_is_refused() {
    let agent =
        Agent::new("a").model(ScriptedModel::new([call("c1", "work"), vec![]])).tool(tool("work").needs_approval());
    let mut state = run(&agent, "go").await.expect("it waits").to_state();
    let mut call = state.interruptions()[0].clone();
    call.call_id = "c9".to_owned();
    assert!(state.approve(&call).is_err());
    call.inside = vec!["o1".to_owned()];
    assert!(state.approve(&call).is_err());
}

#[tokio::test]
async fn input_can_be_added_between_turns_only() {
    let model = ScriptedModel::new([call("c1", "work"), vec![Item::assistant("both")]]);
    let agent = Agent::new("a").tool(tool("work")).model(model.clone());
    let paused = run(&agent, "first").steps(2).await.expect("paused");
    let mut busy = paused.to_state();
    assert!(busy.add_input([Item::user("second")]).is_err(), "a call waits for its answer");
    let paused = run(&agent, busy).steps(2).await.expect("paused");
    let mut state = paused.to_state();
    state.add_input([Item::user("second")]).expect("between turns");
    run(&agent, state).await.expect("it finishes");
    let sent = model.requests().pop().expect("asked").input;
    assert_eq!(sent.last(), Some(&Item::user("second")));
}

#[tokio::test]
async fn two_tools_of_one_name_are_refused() {
    let agent =
        Agent::new("a").tool(tool("same")).tool(tool("same")).model(ScriptedModel::new([vec![Item::assistant("x")]]));
    let error = run(&agent, "go").await.expect_err("refused");
    assert!(error.to_string().contains("two tools or handoffs are called \"same\""), "{error}");
}

#[tokio::test]
async fn tools_can_come_and_go_between_turns() {
    let open = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let asked = Arc::clone(&open);
    let rule = sandbar_agent::Enabled::when(move |_, _| {
        let asked = Arc::clone(&asked);
        async move { asked.load(std::sync::atomic::Ordering::SeqCst) }
    });
    let opener = Arc::clone(&open);
    let open_door = FunctionTool::raw("open", "Opens.", open_schema(), move |_: ToolContext, _: Value| {
        opener.store(true, std::sync::atomic::Ordering::SeqCst);
        async { Ok::<_, BoxError>("open") }
    });
    let model = ScriptedModel::new([call("c1", "open"), vec![Item::assistant("ok")]]);
    let agent = Agent::new("a").tool(open_door.lenient()).tool(tool("door").enabled(rule)).model(model.clone());
    run(&agent, "go").await.expect("it runs");
    let offered: Vec<usize> = model.requests().iter().map(|request| request.tools.len()).collect();
    assert_eq!(offered, [1, 2]);
}

#[tokio::test]
async fn a_tool_without_a_strict_schema_is_refused_before_anything_is_asked() {
    let open =
        FunctionTool::raw("open", "Open.", open_schema(), |_: ToolContext, _: Value| async { Ok::<_, BoxError>("") });
    let model = ScriptedModel::new([vec![Item::assistant("x")]]);
    let error = run(Agent::new("a").tool(open.needs_approval()).model(model.clone()), "go").await.expect_err("refused");
    assert!(error.to_string().contains("tool open cannot be offered: the schema cannot be strict"), "{error}");
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_script_can_be_written_as_json() {
    let script = r#"{"turns": [
        {"output": [{"type": "function_call", "call_id": "c1", "name": "work", "arguments": "{}"}]},
        {"output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}],
         "usage": {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}}
    ]}"#;
    let agent = Agent::new("a").tool(tool("work")).model(ScriptedModel::from_json(script).expect("a script"));
    let result = run(&agent, "go").await.expect("it runs");
    assert_eq!((result.final_output().as_str(), result.usage().total_tokens), ("done", 9));
    for wrong in ["", "{}", r#"{"turns": [{"outputs": []}]}"#, r#"{"turns": [{"output": [1]}]}"#] {
        let error = ScriptedModel::from_json(wrong).expect_err(wrong).to_string();
        assert!(error.contains("the script of the model is wrong"), "{error}");
    }
}
