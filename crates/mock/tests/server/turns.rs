//! The choice of the next turn from the transcript.

use sandbar_mock::{Conversation, Script, Turn, When, item};
use serde_json::{Value, json};

use super::wire::{call, output, request, said, serve, user};

/// Two calls at once, a text, a call, a text; then the first text again.
fn script() -> Script {
    Script::new()
        .turn([item::text("first"), item::function_call("f", json!({})), item::function_call("f", json!({"n": 2}))])
        .turn(item::text("ok"))
        .turn(item::function_call("f", json!({})))
        .turn(item::text("ok"))
        .turn(item::text("end"))
}

#[test]
fn the_turn_after_the_last_one_shown_is_played_in_any_order_of_asking() {
    let (server, mut client) = serve(script());
    let first = [user("hi"), said("first"), call("call_0_1"), call("call_0_2"), output("call_0_2"), output("call_0_1")];
    let upto = |more: &[Value]| json!(first.iter().chain(more).cloned().collect::<Vec<_>>());
    for (input, expected) in [
        (upto(&[said("ok"), user("more"), call("call_2_0"), output("call_2_0")]), "ok"),
        (json!("hi"), "first, f({}), f({\"n\":2})"),
        (json!([user("hi")]), "first, f({}), f({\"n\":2})"),
        (upto(&[]), "ok"),
        (upto(&[]), "ok"),
        (upto(&[said("ok"), user("more")]), "f({})"),
        // The same words twice are two turns.
        (upto(&[said("ok"), user("more"), call("call_2_0"), output("call_2_0"), said("ok"), user("?")]), "end"),
        // Ids say more than words, and the beginning may be missing.
        (json!([{"type": "message", "id": "msg_1_0", "role": "assistant", "content": "changed"}, user("?")]), "f({})"),
        (json!([{"type": "item_reference", "id": "msg_1_0"}, user("?")]), "f({})"),
        (json!([call("call_2_0"), output("call_2_0")]), "ok"),
        // Texts that are not from the script do not matter.
        (json!([user("first"), said("never said"), user("ok")]), "first, f({}), f({\"n\":2})"),
    ] {
        assert_eq!(client.ask(&request(input.clone())).said(), expected, "{input}");
    }
    assert_eq!(server.problems(), []);
}

#[test]
fn an_answer_sent_back_as_it_came_leads_through_the_script() {
    let (server, mut client) = serve(script().closing("over"));
    let mut input = vec![user("hi")];
    let mut told = Vec::new();
    for _ in 0..7 {
        let answer = client.ask(&request(json!(input)));
        told.push(answer.said());
        for item in answer.json()["output"].as_array().unwrap() {
            input.push(item.clone());
        }
        let calls: Vec<Value> = answer.json()["output"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|item| item.get("call_id").cloned())
            .collect();
        input.extend(calls.iter().map(|id| output(id.as_str().unwrap())));
    }
    assert_eq!(told, ["first, f({}), f({\"n\":2})", "ok", "f({})", "ok", "end", "over", "over"]);
    assert_eq!(server.problems(), []);
}

#[test]
fn a_transcript_past_the_end_is_told_so() {
    let (server, mut client) =
        serve(Script::new().conversation(Conversation::new().name("small").turn(item::text("all"))));
    let answer = client.ask(&request(json!([user("a"), said("all"), user("b")])));
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.said(),
        "input: The transcript is past the end of \"small\": it has 1 turns, and none is number 1."
    );
    assert_eq!(answer.json()["error"]["code"], "script_exhausted");
    assert_eq!(server.problems()[0].code.as_deref(), Some("script_exhausted"));
}

#[test]
fn the_id_of_a_response_is_all_the_server_needs() {
    let (server, mut client) = serve(script());
    let mut body = request(json!("hi"));
    let mut told = Vec::new();
    let mut ids = Vec::new();
    for input in [
        json!([output("call_0_1"), output("call_0_2")]),
        json!("more"),
        json!([output("call_2_0")]),
        json!("?"),
        json!(""),
    ] {
        let answer = client.ask(&body);
        told.push(answer.said());
        ids.push(answer.json()["id"].as_str().unwrap().to_owned());
        body = json!({"model": "m", "input": input, "previous_response_id": ids.last()});
    }
    assert_eq!(told, ["first, f({}), f({\"n\":2})", "ok", "f({})", "ok", "end"]);
    assert_eq!(ids, ["resp_0_0", "resp_0_1", "resp_0_2", "resp_0_3", "resp_0_4"]);
    assert_eq!(server.problems(), []);
    // Going back is no different from going on.
    let back = json!({"model": "m", "input": "more", "previous_response_id": "resp_0_1"});
    assert_eq!(client.ask(&back).said(), "f({})");
    assert_eq!(client.get("/responses/resp_0_3").said(), "ok");
    for id in ["resp_0_5", "resp_1_0", "nothing"] {
        assert_eq!(client.get(&format!("/responses/{id}")).status, 404);
    }
}

/// Two agents that hand over to each other, and one for a tool.
fn agents() -> Script {
    let triage = Conversation::new()
        .when(When::any().instructions("You sort"))
        .turn(item::function_call("transfer_to_billing", json!({})))
        .turn(item::text("Goodbye."));
    let billing = Conversation::new()
        .when(When::any().tool("refund"))
        .turn(item::function_call("refund", json!({"amount": 5})))
        .turn(item::function_call("transfer_to_triage", json!({})));
    let math = Conversation::new().when(When::any().model("calc").last_user("sum")).turn(item::text("3"));
    Script::new()
        .conversation(triage)
        .conversation(billing)
        .conversation(math)
        .conversation(Conversation::new().turn(item::text("else")))
}

#[test]
fn several_agents_talk_to_one_server() {
    let (server, mut client) = serve(agents());
    let triage = json!({"model": "m", "instructions": "You sort requests."});
    let refund = json!({"type": "function", "name": "refund", "parameters": {"type": "object", "properties": {}}});
    let billing = json!({"model": "m", "tools": [refund]});
    let mut ask = |agent: &Value, input: &Value| {
        let mut body = agent.clone();
        body["input"] = input.clone();
        client.ask(&body)
    };
    let mut input = vec![user("money back")];
    for (agent, expected) in [
        (&triage, "transfer_to_billing({})"),
        (&billing, "refund({\"amount\":5})"),
        (&billing, "transfer_to_triage({})"),
        (&triage, "Goodbye."),
    ] {
        let answer = ask(agent, &json!(input));
        assert_eq!(answer.said(), expected);
        let item = answer.json()["output"][0].clone();
        input.push(item.clone());
        input.extend(item.get("call_id").map(|id| output(id.as_str().unwrap())));
    }
    for (agent, text, expected) in [
        (json!({"model": "calc"}), "the sum of 1 and 2", "3"),
        (json!({"model": "calc"}), "the product", "else"),
        (json!({"model": "other"}), "the sum", "else"),
        (json!({"model": "m", "instructions": "You do not."}), "hi", "else"),
    ] {
        assert_eq!(ask(&agent, &json!(text)).said(), expected);
    }
    let developer = json!([{"role": "developer", "content": "You sort"}, user("hi")]);
    assert_eq!(ask(&json!({"model": "m"}), &developer).said(), "transfer_to_billing({})");
    assert_eq!(server.problems(), []);
}

#[test]
fn response_ids_know_how_far_every_agent_is() {
    let (server, mut client) = serve(agents());
    let refund = json!({"type": "function", "name": "refund", "parameters": {"type": "object", "properties": {}}});
    let mut previous = Value::Null;
    let mut input = json!("money back");
    let mut told = Vec::new();
    for is_triage in [true, false, false, true] {
        let mut body = json!({"model": "m", "input": input, "previous_response_id": previous});
        if is_triage {
            body["instructions"] = json!("You sort");
        } else {
            body["tools"] = json!([refund]);
        }
        let answer = client.ask(&body);
        told.push(answer.said());
        previous = answer.json()["id"].clone();
        input = json!([output(answer.json()["output"][0]["call_id"].as_str().unwrap_or("none"))]);
    }
    assert_eq!(told, ["transfer_to_billing({})", "refund({\"amount\":5})", "transfer_to_triage({})", "Goodbye."]);
    assert_eq!(previous, "resp_1_1-0_1");
    assert_eq!(server.problems(), []);
}

#[test]
fn the_conversation_that_answered_the_user_continues_when_only_outputs_follow() {
    let weather = Conversation::new()
        .when(When::any().last_user("weather"))
        .turn(item::function_call("f", json!({})))
        .turn(item::text("rain"));
    let (_server, mut client) =
        serve(Script::new().conversation(weather).conversation(Conversation::new().turn(item::text("what?"))));
    let first = client.ask(&request(json!("the weather")));
    let body = json!({"model": "m", "input": [output("call_0_0")], "previous_response_id": first.json()["id"]});
    assert_eq!(client.ask(&body).said(), "rain");
}

#[test]
fn a_request_that_no_conversation_matches_is_an_error() {
    let (server, mut client) =
        serve(Script::new().conversation(Conversation::new().when(When::any().model("x")).turn(item::text("x"))));
    assert_eq!(
        client.ask(&request(json!("hi"))).said(),
        "input: No conversation of the script answers such a request."
    );
    assert_eq!(server.problems()[0].code.as_deref(), Some("no_conversation"));
}

#[test]
fn call_ids_used_twice_still_lead_on() {
    let mine = || json!({"type": "function_call", "call_id": "same", "name": "f"});
    let (server, mut client) = serve(Script::new().turn(mine()).turn(mine()).turn(Turn::new([item::text("end")])));
    let round = [call("same"), output("same")];
    for (rounds, expected) in [(0, "f({})"), (1, "f({})"), (2, "end")] {
        let input: Vec<Value> = [user("hi")].into_iter().chain((0..rounds).flat_map(|_| round.clone())).collect();
        assert_eq!(client.ask(&request(json!(input))).said(), expected);
    }
    assert_eq!(server.problems(), []);
}
