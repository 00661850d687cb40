//! Conversations that are stored on the model's server.

use sandbar_agent::{Agent, Handoff, Prompt, handoff::InputFilter, run};

use crate::play::{Log, calls, echo, says, script};

#[tokio::test]
async fn only_new_items_are_sent_to_a_server_that_keeps_the_conversation() {
    let log = Log::default();
    let turns = || [calls([("c1", "look", "{}")]), calls([("c2", "look", "{}")]), says("done")];
    type Thread = fn(sandbar_agent::RunBuilder) -> sandbar_agent::RunBuilder;
    let threads: [(&str, Thread, [Option<&str>; 3]); 3] = [
        ("chained", |run| run.chain_responses(), [None, Some("resp_1"), Some("resp_2")]),
        ("after another", |run| run.previous_response("resp_0"), [Some("resp_0"), Some("resp_1"), Some("resp_2")]),
        ("conversation", |run| run.conversation("conv_1"), [None, None, None]),
    ];
    for (name, thread, previous) in threads {
        let model = script(turns());
        let agent = Agent::new("a").tool(echo("look", &log)).model(model.clone());
        let result = thread(run(&agent, "go")).await.expect(name);
        assert_eq!(result.final_output(), "done");
        let requests = model.requests();
        let sent: Vec<usize> = requests.iter().map(|request| request.input.len()).collect();
        assert_eq!(sent, [1, 1, 1], "{name}");
        assert_eq!(requests[1].input[0].call_id(), Some("c1"), "{name}");
        let ids: Vec<Option<&str>> = requests.iter().map(|request| request.previous_response_id.as_deref()).collect();
        assert_eq!(ids, previous, "{name}");
        let conversation = requests.iter().all(|request| request.conversation_id.is_some());
        assert_eq!(conversation, name == "conversation");
    }
}

#[tokio::test]
async fn an_output_guardrail_is_refused_if_the_server_keeps_the_conversation() {
    let filtered = Handoff::to(Agent::new("b").model(script([]))).filter(InputFilter::without_tools());
    let model = script([calls([("c1", "transfer_to_b", "{}")])]);
    let agent = Agent::new("a").handoff(filtered).model(model);
    let error = run(&agent, "go").chain_responses().await.expect_err("refused");
    assert_eq!(error.error().code(), "misuse", "{error}");

    let guard = sandbar_agent::guardrail::OutputGuardrail::new("g", |_| async { Ok(Default::default()) });
    let model = script([says("hi")]);
    let agent = Agent::new("a").output_guardrail(guard).model(model.clone());
    let error = run(&agent, "go").conversation("conv_1").await.expect_err("refused");
    assert_eq!((error.error().code(), model.requests().len()), ("misuse", 0), "{error}");
}

#[tokio::test]
async fn a_stored_prompt_can_be_fixed_or_chosen_by_a_function() {
    let model = script([says("one")]);
    let agent = Agent::new("a").prompt(Prompt { id: "pmpt_1".to_owned(), ..Prompt::default() }).model(model.clone());
    run(&agent, "go").await.expect("it runs");
    assert_eq!(model.requests()[0].prompt.as_ref().map(|prompt| prompt.id.as_str()), Some("pmpt_1"));

    let model = script([says("two")]);
    let agent = Agent::new("a")
        .prompt_from(|_, agent| async move { Ok(Prompt { id: format!("pmpt_{}", agent.name()), ..Prompt::default() }) })
        .instructions_from(|_, agent| async move { Ok(format!("You are {}.", agent.name())) })
        .model(model.clone());
    run(&agent, "go").await.expect("it runs");
    let request = &model.requests()[0];
    assert_eq!(request.prompt.as_ref().map(|prompt| prompt.id.as_str()), Some("pmpt_a"));
    assert_eq!(request.instructions.as_deref(), Some("You are a."));
}
