//! `Debug` prints no secrets.

use sandbar_agent::{Agent, HostedTool, ModelSettings, Private, Tool as _, run};

use crate::scene::{says, script};

#[tokio::test]
async fn settings_and_requests_do_not_print_headers_and_keys() {
    let mut settings = ModelSettings::default();
    settings.extra_headers = Private::from([("authorization".to_owned(), "Bearer hunter2".to_owned())]);
    settings.extra_query = Private::from([("api-key".to_owned(), "hunter2".to_owned())]);
    assert!(!format!("{settings:?}").contains("hunter2"), "settings");
    let model = script([says("done")]);
    run(Agent::new("a").settings(settings).model(model.clone()), "go").await.expect("it runs");
    assert!(!format!("{:?}", model.requests()).contains("hunter2"), "requests");
}

#[test]
fn what_a_model_sees_of_a_hosted_tool_is_not_printed() {
    let tool = HostedTool::mcp("a", "https://a.test").with("authorization", "hunter2");
    assert!(!format!("{:?}", tool.spec()).contains("hunter2"));
}
