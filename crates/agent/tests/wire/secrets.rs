//! Keys, passwords and headers are sent to the server and appear nowhere else.

use sandbar_agent::{ModelEndpoint, ModelRequest, Responses};
use sandbar_mock::{Authorization, Fault, MockServer, Script, item};
use serde_json::json;

use crate::asking::{Notes, ask, hello, responses, server};

const SECRETS: [&str; 3] = ["sk-very-secret", "header-secret", "query-secret"];

fn asked() -> ModelRequest {
    let mut request = hello();
    request.settings.extra_headers = [("x-extra".to_owned(), "header-secret".to_owned())].into();
    request.settings.extra_query = [("token".to_owned(), "query-secret".to_owned())].into();
    request
}

#[tokio::test]
async fn what_lets_us_in_is_sent_and_found_nowhere_else() {
    let echo = format!("you sent {}", SECRETS.join(" and "));
    for fault in [
        Fault::status(401).body(json!({ "error": { "message": echo, "code": echo } })),
        Fault::status(400).body(echo.clone()),
        Fault::Failed { code: "invalid_prompt".to_owned(), message: echo.clone() },
        Fault::ErrorEvent { code: "invalid_prompt".to_owned(), message: echo.clone() },
        Fault::ContentType(format!("text/{}", SECRETS[0])),
    ] {
        let server = server([fault.clone()]);
        let (model, _) = responses(&server);
        let error = ask(&model, asked()).await.end.expect_err("a fault");
        let seen = &server.requests()[0];
        assert_eq!(seen.header("authorization"), Some("Bearer sk-very-secret"));
        assert_eq!(seen.header("x-extra"), Some("header-secret"));
        assert!(seen.path.ends_with("/responses?token=query-secret"), "{}", seen.path);
        for shown in [error.to_string(), format!("{error:?}"), format!("{model:?}")] {
            assert!(!SECRETS.iter().any(|secret| shown.contains(secret)), "{fault:?}: {shown}");
        }
    }
}

#[tokio::test]
async fn organization_and_project_are_told_and_the_key_is_checked() {
    let script = Script::new().turn(item::text("ok")).authorization(Authorization::Key("sk-right".to_owned()));
    let server = MockServer::start(script).expect("a server");
    let model = |key: &str| {
        Responses::new("m").base_url(server.base_url()).api_key(key).organization("org-1").project("proj-1")
    };
    assert_eq!(ask(&model("sk-right"), hello()).await.summary(), "ok");
    assert_eq!(ask(&model("sk-wrong"), hello()).await.summary(), "Status 401");
    let seen = &server.requests()[0];
    assert_eq!((seen.header("openai-organization"), seen.header("openai-project")), (Some("org-1"), Some("proj-1")));
    assert!(seen.header("user-agent").is_some_and(|agent| agent.starts_with("sandbar/")));
}

#[tokio::test]
async fn a_password_in_the_address_is_sent_as_a_header_and_never_shown() {
    let server = server([Fault::CutAfterEvents(6)]);
    let address = server.base_url().replace("http://", "http://me:hunter2-hunter2@");
    let model = Responses::new("m").at(ModelEndpoint::new(address).patience(Notes::default()));
    let error = ask(&model, hello()).await.end.expect_err("a cut");
    assert_eq!(server.requests()[0].header("authorization"), Some("Basic bWU6aHVudGVyMi1odW50ZXIy"));
    for shown in [error.to_string(), format!("{error:?}"), format!("{model:?}")] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
