//! A Chat Completions stream, converted to a Responses stream.

use sandbar_agent::{Chat, Item, ModelEndpoint, ModelRequest};
use sandbar_mock::{MockServer, Script, Turn, item};
use serde_json::json;

use crate::asking::{Notes, ask, chat, hello, saying};

#[tokio::test]
async fn the_stream_is_one_of_responses() {
    let turn = Turn::new([item::text("Hi."), item::function_call("add", json!({ "a": 1 }))]).tokens(7, 3);
    let server = MockServer::start(Script::new().turn(turn)).expect("a server");
    let (model, _) = chat(&server);
    let heard = ask(&model, hello()).await;
    let mut kinds = heard.kinds();
    kinds.dedup();
    assert_eq!(kinds.first(), Some(&"response.created"));
    assert_eq!(kinds.last(), Some(&"response.completed"));
    for kind in ["response.output_text.delta", "response.function_call_arguments.delta", "response.output_item.done"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let reply = heard.reply();
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.requests), (7, 3, 1));
    assert_eq!(reply.output.iter().map(Item::kind).collect::<Vec<_>>(), ["message", "function_call"]);
}

#[tokio::test]
async fn servers_with_habits_of_their_own_are_understood() {
    for (habit, body, expected) in [
        (
            "no mark at the end, no usage, no id",
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"},\"finish_reason\":\"stop\"}]}\n\n",
            "Hi.",
        ),
        (
            "a role first, nulls everywhere",
            "data: {\"id\":null,\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"tool_calls\":null},\
             \"finish_reason\":null,\"logprobs\":null}],\"usage\":null}\n\n\
             data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi.\"}}]}\n\ndata: [DONE]\n\n",
            "Hi.",
        ),
        (
            "usage in every chunk, choices empty at the end",
            "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"}}],\"usage\":{\"prompt_tokens\":1}}\n\n\
             data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"eos\"}]}\n\ndata: {\"choices\":[]}\n\ndata: [DONE]\n\n",
            "Hi.",
        ),
        ("an error in the stream", "data: {\"error\":\"model is loading\"}\n\n", "Failed -"),
        ("cut", "data: {\"choices\":[{\"delta\":{\"content\":\"Hi.\"}}]}\n\n", "AfterOutput Network"),
    ] {
        let model = Chat::new("m", ModelEndpoint::new(saying(body)).patience(Notes::default()));
        let heard = ask(&model, hello()).await;
        assert_eq!(heard.summary(), expected, "{habit}: {:?}", heard.end);
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_refused_before_anything_is_sent() {
    let server = MockServer::start(Script::new()).expect("a server");
    let (model, _) = chat(&server);
    let request = ModelRequest { previous_response_id: Some("resp_1".to_owned()), ..hello() };
    let error = ask(&model, request).await.end.expect_err("refused").to_string();
    assert!(error.contains("previous_response_id") && error.contains("Chat Completions"), "{error}");
    assert_eq!(server.requests(), []);
}
