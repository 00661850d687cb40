//! Stored conversations and compacted transcripts.

use sandbar_mock::{Fault, Script, Turn, item};
use serde_json::{Value, json};

use super::wire::{call, output, request, said, serve, user};

fn script() -> Script {
    Script::new()
        .turn(item::function_call("f", json!({})))
        .turn(Turn::new([item::text("one")]).fault(Fault::status(500)).fault(Fault::CutAfterEvents(2)))
        .turn(item::text("two"))
}

#[test]
fn a_conversation_remembers_what_was_said_and_nothing_that_failed() {
    let (server, mut client) = serve(script());
    let id =
        client.post("/conversations", &json!({"metadata": {"a": "b"}, "items": [user("before")]})).json()["id"].clone();
    let path = format!("/conversations/{}", id.as_str().unwrap());
    assert_eq!(client.get(&path).json()["metadata"], json!({"a": "b"}));
    let body = |input: Value| json!({"model": "m", "input": input, "conversation": {"id": id}});
    assert_eq!(client.ask(&body(json!("hi"))).said(), "f({})");
    assert_eq!(client.ask(&body(json!([output("call_0_0")]))).status, 500);
    assert_eq!(super::wire::Client::new(&server).ask(&body(json!([output("call_0_0")]))).end, super::wire::End::Cut);
    assert_eq!(client.ask(&body(json!([output("call_0_0")]))).said(), "one");
    assert_eq!(client.ask(&json!({"model": "m", "input": "?", "conversation": id})).said(), "two");

    let kinds = |answer: &Value| -> Vec<String> {
        let say = |item: &Value| item["role"].as_str().or(item["type"].as_str()).unwrap().to_owned();
        answer["data"].as_array().unwrap().iter().map(say).collect()
    };
    let items = client.get(&format!("{path}/items?order=asc&limit=3")).json();
    assert_eq!(kinds(&items), ["user", "user", "function_call"]);
    assert_eq!((&items["has_more"], &items["last_id"]), (&json!(true), &json!("fc_0_0")));
    let rest = client.get(&format!("{path}/items?order=asc&after=fc_0_0")).json();
    assert_eq!(kinds(&rest), ["function_call_output", "assistant", "user", "assistant"]);
    assert_eq!(kinds(&client.get(&format!("{path}/items?limit=1")).json()), ["assistant"]);

    let item = rest["data"][3]["id"].as_str().unwrap().to_owned();
    assert_eq!(client.get(&format!("{path}/items/{item}")).json()["content"][0]["text"], "two");
    assert_eq!(client.send("DELETE", &format!("{path}/items/{item}"), "", b"").status, 200);
    assert_eq!(client.get(&format!("{path}/items/{item}")).status, 404);
    let added = client.post(&format!("{path}/items"), &json!({"items": [user("more")]})).json();
    assert_eq!(added["data"][0]["content"], json!([{"type": "input_text", "text": "more"}]));
    assert_eq!(client.send("DELETE", &path, "", b"").json()["deleted"], true);
    assert_eq!(client.get(&path).status, 404);
    assert_eq!(client.ask(&body(json!("hi"))).status, 404);
}

#[test]
fn an_unanswered_call_of_a_conversation_is_missed() {
    let (_server, mut client) = serve(script());
    let id = client.post("/conversations", &json!({})).json()["id"].clone();
    let body = json!({"model": "m", "input": "hi", "conversation": id});
    client.ask(&body);
    assert!(client.ask(&body).said().contains("No tool output found for function call call_0_0."));
    let wrong = client.post("/conversations", &json!({"items": [{"role": "x"}]}));
    assert!(wrong.said().starts_with("items[0].role: "));
}

#[test]
fn a_transcript_made_small_still_says_how_far_it_is() {
    let (server, mut client) =
        serve(Script::new().turn(item::function_call("f", json!({}))).turn(item::text("one")).turn(item::text("two")));
    let input = json!([user("hi"), call("call_0_0"), output("call_0_0"), said("one"), user("more")]);
    let small = client.post("/responses/compact", &request(input)).json();
    assert_eq!(small["object"], "response.compaction");
    let output = small["output"].as_array().unwrap();
    assert_eq!(
        output.iter().map(|item| item["type"].as_str().unwrap()).collect::<Vec<_>>(),
        ["message", "message", "compaction"]
    );
    assert_eq!(client.ask(&request(small["output"].clone())).said(), "two");
    let only = json!([output[2], user("?")]);
    assert_eq!(client.ask(&request(only)).said(), "two");
    let by_id = client.post("/responses/compact", &json!({"model": "m", "previous_response_id": "resp_0_1"})).json();
    assert_eq!(client.ask(&request(by_id["output"].clone())).said(), "two");
    assert_eq!(
        client.post("/responses/compact", &json!({"input": "x"})).said(),
        "model: Missing required parameter: 'model'."
    );
    assert_eq!(server.problems().len(), 1);
}
