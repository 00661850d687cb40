//! The input of model requests.

use sandbar_agent::{Agent, Handoff, Item, ModelRequest, handoff::InputFilter, run};
use serde_json::json;

use crate::scene::{Log, calls, echo, says, script};

fn item(value: serde_json::Value) -> Item {
    Item::from_value(value).expect("an object")
}

fn seen(request: &ModelRequest) -> Vec<String> {
    let name = |item: &Item| match item.call_id() {
        Some(id) => format!("{} {id}", item.kind()),
        None => item.kind().to_owned(),
    };
    request.input.iter().map(name).collect()
}

#[tokio::test]
async fn ids_that_stand_for_none_do_not_merge_items() {
    for id in ["", "__fake_id__"] {
        let log = Log::default();
        let call = |call_id| vec![Item::function_call(call_id, "look", "{}").with("id", id)];
        let model = script([call("c1"), call("c2"), says("done")]);
        let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
        run(&agent, "go").await.expect("it runs");
        assert_eq!(
            seen(&model.requests()[2]),
            ["message", "function_call c1", "function_call_output c1", "function_call c2", "function_call_output c2"],
            "ids {id:?}"
        );
    }
}

#[tokio::test]
async fn ids_that_a_server_counts_anew_in_each_response_do_not_merge_different_calls() {
    let log = Log::default();
    let call = |call_id| vec![Item::function_call(call_id, "look", "{}").with("id", "fc_0")];
    let model = script([call("c1"), call("c2"), says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    run(&agent, "go").await.expect("it runs");
    let calls: Vec<String> =
        seen(&model.requests()[2]).into_iter().filter(|name| name.starts_with("function_call ")).collect();
    assert_eq!(calls, ["function_call c1", "function_call c2"]);
}

#[tokio::test]
async fn a_compaction_holds_also_after_a_handoff_with_a_filter() {
    let log = Log::default();
    let compaction = item(json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "x" }));
    let mut second = vec![compaction];
    second.extend(calls([("c2", "transfer_to_b", "{}")]));
    let model = script([calls([("c1", "look", "{}")]), second, says("done")]);
    let b = Agent::new("b").model(model.clone());
    let agent = Agent::new("a")
        .tool(echo("look", &log))
        .handoff(Handoff::to(b).filter(InputFilter::new(|seen| seen)))
        .model(model.clone());
    run(&agent, "go").await.expect("it runs");
    assert_eq!(seen(&model.requests()[2]), ["compaction", "function_call c2", "function_call_output c2"]);
}

#[tokio::test]
async fn a_compaction_in_what_a_run_starts_with_holds() {
    let input = vec![
        Item::user("old"),
        item(json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "x" })),
        Item::user("new"),
    ];
    let model = script([says("done")]);
    run(Agent::new("a").model(model.clone()), input).await.expect("it runs");
    assert_eq!(seen(&model.requests()[0]), ["compaction", "message"]);
}

#[tokio::test]
async fn thoughts_of_a_chat_server_can_still_be_told_from_those_of_a_responses_server() {
    let log = Log::default();
    let mut first = vec![item(json!({
        "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }],
        "provider_data": { "api": "chat" },
    }))];
    first.extend(calls([("c1", "look", "{}")]));
    let model = script([first, says("done")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    run(&agent, "go").await.expect("it runs");
    // The adapter omits reasoning with a mark; here the mark was removed and the reasoning was not.
    let thought = model.requests()[1].input.iter().find(|item| item.kind() == "reasoning").cloned();
    assert!(thought.is_none_or(|thought| thought.fields().contains_key("provider_data")));
}

#[tokio::test]
async fn what_a_run_gives_to_the_next_one_begins_at_its_last_compaction() {
    let log = Log::default();
    let mut second = vec![item(json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "x" }))];
    second.extend(says("done"));
    let model = script([calls([("c1", "look", "{}")]), second, says("again")]);
    let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
    let mut input = run(&agent, "go").await.expect("it runs").to_input_list();
    input.push(Item::user("more"));
    run(&agent, input).await.expect("it runs");
    assert_eq!(seen(&model.requests()[2]), ["compaction", "message", "message"], "all of it is sent again");
}
