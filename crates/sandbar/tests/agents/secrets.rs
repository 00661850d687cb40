//! Secret values that commands print: runs hide them in all outputs, and saved runs contain references instead.

use std::{fs, path::Path};

use sandbar::{
    RunEvent, RunState,
    agent::{
        AgentError, FunctionTool,
        trace::{Batched, Tracer},
    },
    prelude::*,
    sandbox::audit::Jsonl,
};
use serde_json::json;

use crate::rig::{Rig, call, done, exec, exited, news};

const VALUE: &str = "s3cret/value-99";

/// The value in every form that the commands of these tests print.
const FORMS: [&str; 4] = [VALUE, "s3cret%2Fvalue-99", "czNjcmV0L3ZhbHVlLTk5", "value-99"];

/// A command that prints the value in clear, in base64, URL-escaped, in two pieces, and on standard error.
const PRINTS: &str = "env | grep TOKEN; printf %s \"$TOKEN\" | base64; echo $TOKEN | sed s,/,%2F,; \
                      printf \"${TOKEN%/*}\"; sleep 0.3; echo \"/${TOKEN#*/} here\"; echo $TOKEN >&2";

fn sandbox(rig: &Rig) -> SandboxRunConfig {
    let manifest = Manifest::new().env("TOKEN", EnvValue::secret("TOKEN"));
    rig.sandbox().manifest(manifest).secrets(SecretStore::new().with("TOKEN", VALUE))
}

fn asking(rig: &Rig) -> SandboxAgent {
    let ask =
        Approval::when(
            |_call, arguments| async move { arguments["cmd"].as_str().is_none_or(|cmd| cmd.contains("ask")) },
        );
    rig.agent().capabilities([Shell::new().approval(ask)])
}

fn shows_nothing(what: &str, text: &str) {
    for form in FORMS {
        let at = text.find(form).map(|at| &text[at.saturating_sub(80)..at + form.len()]);
        assert!(at.is_none(), "{what} shows {form}: {at:?}");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("it was written")
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A tool outside of the sandbox that knows the value.
fn leaky() -> FunctionTool {
    FunctionTool::new("leaky", "Prints the token.", |call: ToolContext, _: Nothing| async move {
        let (first, second) = VALUE.split_at(5);
        call.tell(first).await;
        call.tell(format!("{second} told")).await;
        call.tell(" s3cr").await;
        sandbar::agent::Json(json!({"token": VALUE, "list": [format!("a {VALUE} b"), 3]}))
    })
}

#[tokio::test]
async fn a_printed_secret_is_hidden_in_events_requests_and_files() {
    let rig = Rig::turns([exec(PRINTS), call("leaky", json!({})), exec("echo ask"), done()]);
    let files = tempfile::tempdir().expect("a directory");
    let (trace, audit) = (files.path().join("trace.jsonl"), files.path().join("audit.jsonl"));
    let sink = audit.clone();
    let sandbox = sandbox(&rig).options(|options| options.audit(Jsonl::open(&sink).expect("an audit")));
    let tracer = Tracer::new(Batched::jsonl(&trace).expect("a trace"));
    let agent = asking(&rig).tool(leaky());
    let config = RunConfig::new().tracer(tracer.clone());
    let mut stream = run(&agent, "Go.").config(config).sandbox(&sandbox).stream();
    let (mut screen, mut printed) = (String::new(), String::new());
    while let Some(event) = stream.next().await {
        screen += &format!("{event:?}\n");
        if let RunEvent::Progress { text, .. } = event {
            printed += &text;
        }
    }
    let paused = stream.result().await.expect("it pauses");
    tracer.shutdown(std::time::Duration::from_secs(30));
    shows_nothing("the screen", &screen);
    shows_nothing("the output as it comes", &printed);
    assert!(printed.contains("TOKEN=[secret]\n") && printed.contains("[secret] here\n"), "{printed}");
    assert!(printed.contains("[secret] told s3cr"), "{printed}");
    let body = rig.bodies().pop().expect("a question").to_string();
    shows_nothing("the model's question", &body);
    let texts = rig.texts();
    let output = news(&texts[0]);
    assert!(output.contains("TOKEN=[secret]\n[secret]\n[secret]\n"), "{output}");
    assert!(output.contains("[secret] here\n"), "{output}");
    assert_eq!(texts[1], r#"{"token":"[secret]","list":["a [secret] b",3]}"#);
    shows_nothing("the saved run", &paused.to_state().to_json().expect("written"));
    shows_nothing("the trace", &read(&trace));
    sandbox.release().await.expect("released");
    drop(sandbox);
    shows_nothing("the audit", &read(&audit));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_secret_that_is_split_between_two_calls_is_hidden() {
    let rig = Rig::turns([
        call(
            "exec_command",
            json!({ "cmd": "printf s3cret/; read go; echo value-99; read go", "tty": true,
            "yield_time_ms": 250 }),
        ),
        call("write_stdin", json!({ "session_id": 1000, "chars": "\n", "yield_time_ms": 2000 })),
        call("write_stdin", json!({ "session_id": 1000, "chars": "\n", "yield_time_ms": 30000 })),
        done(),
    ]);
    let secret = "s3cret/\r\nvalue-99";
    let store = SecretStore::new().with("TOKEN", secret);
    run(asking(&rig), "Go.").sandbox(rig.sandbox().secrets(store)).await.expect("it ends well");
    let output: String = rig.texts().iter().map(|text| news(text).to_owned()).collect();
    assert!(!output.contains("s3cret/") && output.contains("[secret]"), "{output}");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_secret_can_be_shown_by_name() {
    let rig = Rig::turns([exec("echo $TOKEN $REGION"), done()]);
    let manifest = Manifest::new().env("TOKEN", EnvValue::secret("TOKEN")).env("REGION", EnvValue::secret("REGION"));
    let store = SecretStore::new().with("TOKEN", VALUE).with("REGION", "eu-central-1").shown("REGION");
    run(rig.agent(), "Go.").sandbox(rig.sandbox().manifest(manifest).secrets(store)).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[0]), exited(0, "[secret] eu-central-1\n"));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn raw_bytes_are_never_changed() {
    let rig = Rig::turns([]);
    let manifest = Manifest::new().env("TOKEN", EnvValue::secret("TOKEN"));
    let options = SessionOptions::new(manifest).secrets(SecretStore::new().with("TOKEN", VALUE));
    let session = SandboxSession::open(std::sync::Arc::new(rig.client()), options).await.expect("a session");
    let printed = session.exec(sandbar::Exec::new(["sh", "-c", "echo $TOKEN | tee file"])).await.expect("it runs");
    assert_eq!(printed.stdout, format!("{VALUE}\n").as_bytes());
    assert_eq!(session.read("file").await.expect("it is there"), format!("{VALUE}\n").as_bytes());
    session.delete().await.expect("it ends");
    rig.leaves_nothing().await;
}

/// A script whose waiting call contains the value.
fn knowing() -> Rig {
    Rig::turns([exec(&format!("echo ask; printf '%s\\n' '{VALUE}' > kept")), exec("cat kept; wc -c < kept"), done()])
}

fn approved(json: &str) -> RunState {
    let mut state = RunState::from_json(json).expect("read");
    for call in state.interruptions() {
        state.approve(&call).expect("it waits");
    }
    state
}

#[tokio::test]
async fn a_saved_run_contains_a_reference_and_gets_the_value_again() {
    for given in [VALUE, "another\"value-1"] {
        let rig = knowing();
        let sandbox = sandbox(&rig);
        let agent = asking(&rig);
        let paused = run(&agent, format!("Use {VALUE}.")).sandbox(&sandbox).await.expect("it pauses");
        let json = paused.to_state().to_json().expect("written");
        shows_nothing("the saved run", &json);
        assert!(json.contains("[secret ") && json.contains(r#""names":["TOKEN"]"#), "{json}");
        // A program that only approves calls and saves the run again needs no secret.
        let json = approved(&json).to_json().expect("written");
        shows_nothing("the saved run", &json);
        let given_anew = sandbox.clone().secrets(SecretStore::new().with("TOKEN", given));
        let result = run(&agent, approved(&json)).sandbox(&given_anew).await.expect("it ends well");
        let input = serde_json::to_value(&result.input()[0]).expect("JSON").to_string();
        assert!(input.contains(serde_json::to_string(given).expect("JSON").trim_matches('"')), "{input}");
        assert_eq!(news(&rig.texts()[0]), exited(0, "ask\n"));
        assert_eq!(news(&rig.texts()[1]), exited(0, &format!("[secret]\n{}\n", given.len() + 1)));
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_saved_run_is_refused_without_the_secrets_it_refers_to() {
    let rig = knowing();
    let sandbox = sandbox(&rig);
    let agent = asking(&rig);
    let paused = run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses");
    let json = paused.to_state().to_json().expect("written");
    for store in [SecretStore::new(), SecretStore::new().with("OTHER", VALUE)] {
        let machines = rig.machines();
        let error = run(&agent, approved(&json)).sandbox(sandbox.clone().secrets(store)).await.expect_err("refused");
        assert_eq!(error.error().code(), "secret_not_given");
        assert!(matches!(error.error(), AgentError::SecretNotGiven(names) if names == &["TOKEN"]));
        assert!(error.to_string().contains("TOKEN"), "{error}");
        assert_eq!(rig.machines(), machines, "nothing was made for it");
        // The run is unchanged and can be resumed with the secret.
        shows_nothing("the refused run", &error.state().to_json().expect("written"));
    }
    run(&agent, approved(&json)).sandbox(&sandbox).await.expect("it ends well");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_forged_reference_is_never_replaced() {
    let forged = "[secret 00112233445566778899aabbccddeeff TOKEN 0 plain] [secret  TOKEN 0 plain]";
    let rig = Rig::turns([exec(&format!("echo '{forged}'")), exec(&format!("echo ask '{VALUE}'")), done()]);
    let sandbox = sandbox(&rig);
    let agent = asking(&rig);
    let paused = run(&agent, "Go.").sandbox(&sandbox).await.expect("it pauses");
    let state = approved(&paused.to_state().to_json().expect("written"));
    run(&agent, state).sandbox(&sandbox).await.expect("it ends well");
    assert_eq!(news(&rig.texts()[0]), exited(0, &format!("{forged}\n")));
    rig.leaves_nothing().await;
}
