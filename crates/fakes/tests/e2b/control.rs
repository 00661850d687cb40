//! The control plane: authorization, answers, and the lifetime of sandboxes.

use std::time::{Duration, Instant};

use sandbar_fakes::e2b::{Options, Server};
use serde_json::{Value, json};

use crate::client::{Call, Sandbox, api, create, printed};

fn refused(reply: &crate::client::Reply, status: u16) {
    assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(status)), "{reply:?}");
    assert!(reply.json()["message"].is_string(), "{reply:?}");
}

#[test]
fn a_key_is_wanted_and_what_is_not_there_is_said() {
    let server = Server::start().unwrap();
    refused(&Call::new(&server, "GET", "/sandboxes").send(), 401);
    refused(&Call::new(&server, "GET", "/sandboxes").header("X-API-KEY", "e2b_0").send(), 401);
    for (method, target, status) in [
        ("GET", "/sandboxes/inone", 404),
        ("DELETE", "/sandboxes/inone", 404),
        ("POST", "/sandboxes/inone/pause", 404),
        ("POST", "/sandboxes/inone/connect", 404),
        ("POST", "/v2/sandboxes/inone/connect", 404),
        ("POST", "/sandboxes/inone/timeout", 404),
        ("POST", "/sandboxes/inone/snapshots", 404),
        ("DELETE", "/templates/none", 404),
        ("GET", "/nothing", 404),
    ] {
        refused(&api(&server, method, target).json(&json!({"timeout": 1})).send(), status);
    }
    let post = |body: Value| api(&server, "POST", "/sandboxes").json(&body).send();
    refused(&post(json!({"templateID": "other"})), 404);
    refused(&post(json!({})), 400);
    refused(&post(json!({"templateID": "base", "timeout": "soon"})), 400);
    refused(&post(json!({"templateID": "base", "timeout": 1_000_000})), 400);
    refused(&api(&server, "POST", "/sandboxes").body("{").send(), 400);
    assert_eq!(api(&server, "GET", "/sandboxes").send().json(), json!([]));
}

#[test]
fn both_generations_of_paths_make_sandboxes() {
    let server = Server::with(Options { templates: vec!["mine".to_owned()], ..Options::default() }).unwrap();
    let make = |target: &str, body: Value| api(&server, "POST", target).json(&body).send();
    let first = make("/sandboxes", json!({"templateID": "mine", "metadata": {"a": "b"}}));
    assert_eq!(first.status, 201);
    let first = first.json();
    assert_eq!(
        (&first["templateID"], &first["envdVersion"], &first["domain"]),
        (&json!("mine"), &json!("0.6.13"), &Value::Null)
    );
    assert!(first.get("envdAccessToken").is_none(), "the first generation is open unless it is told");
    // The second is secure, and knows templates by tag.
    let second = make("/v2/sandboxes", json!({"templateID": "mine:latest"})).json();
    assert!(second["envdAccessToken"].is_string());
    let id = first["sandboxID"].as_str().unwrap();
    let detail = api(&server, "GET", &format!("/sandboxes/{id}")).send().json();
    assert_eq!((&detail["state"], &detail["metadata"]), (&json!("running"), &json!({"a": "b"})));
    for field in ["startedAt", "endAt", "cpuCount", "memoryMB", "diskSizeMB", "clientID"] {
        assert!(detail.get(field).is_some(), "{field} is missing in {detail}");
    }
}

#[test]
fn a_creation_that_is_asked_for_again_is_not_made_again() {
    let server = Server::start().unwrap();
    let make = |key: &str| {
        let call = api(&server, "POST", "/v2/sandboxes").header("Idempotency-Key", key);
        call.json(&json!({"templateID": "base", "timeout": 60})).send().json()["sandboxID"].clone()
    };
    let first = make("one");
    assert_eq!(make("one"), first);
    assert_ne!(make("two"), first);
    assert_eq!(server.sandboxes().len(), 2);
}

#[test]
fn a_connection_resumes_and_only_extends() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({"timeout": 600}));
    let post = |action: &str, body: Value| {
        api(&server, "POST", &format!("/sandboxes/{}/{action}", sandbox.id)).json(&body).send()
    };
    let end = || {
        api(&server, "GET", &format!("/sandboxes/{}", sandbox.id)).send().json()["endAt"].as_str().unwrap().to_owned()
    };
    let before = end();
    assert_eq!(post("connect", json!({"timeout": 1})).status, 200);
    assert_eq!(end(), before);
    assert_eq!(post("timeout", json!({"timeout": 60})).status, 204);
    assert!(end() < before);
    assert_eq!(post("connect", json!({"timeout": 900})).status, 200);
    assert!(end() > before);
    assert_eq!(post("pause", json!({"memory": true})).status, 204);
    refused(&post("pause", json!({})), 409);
    refused(&post("timeout", json!({"timeout": 60})), 404);
    assert_eq!(sandbox.call(49983, "GET", "/health").send().status, 502);
    let resumed = post("connect", json!({"timeout": 60}));
    assert_eq!((resumed.status, resumed.json()["sandboxID"].as_str()), (201, Some(sandbox.id.as_str())));
    assert_eq!(resumed.json()["envdAccessToken"].as_str(), sandbox.token.as_deref());
    refused(&post("resume", json!({})), 409);
    assert_eq!(sandbox.call(49983, "GET", "/health").send().status, 204);
}

#[test]
fn a_pause_without_memory_ends_the_processes_and_keeps_the_files() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    let _followed =
        sandbox.stream("/process.Process/Start", &json!({"process": {"cmd": "sleep", "args": ["1000"]}})).begin();
    let processes = || sandbox.unary("/process.Process/List", &json!({})).json();
    let began = Instant::now();
    while processes() == json!({}) {
        assert!(began.elapsed() < Duration::from_secs(60), "it never runs");
    }
    sandbox.run("echo here > ~/kept");
    let post = |action: &str, body: Value| {
        api(&server, "POST", &format!("/sandboxes/{}/{action}", sandbox.id)).json(&body).send()
    };
    assert_eq!(post("pause", json!({"memory": false})).status, 204);
    assert_eq!(post("connect", json!({"timeout": 60})).status, 201);
    let began = Instant::now();
    while processes() != json!({}) {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", processes());
    }
    assert_eq!(sandbox.call(49983, "GET", "/files?path=kept").send().text(), "here\n");
}

#[test]
fn a_stream_ends_with_its_sandbox() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({"timeout": 2}));
    let process = json!({"process": {"cmd": "sleep", "args": ["1000"]}});
    let messages = sandbox.stream("/process.Process/Start", &process).send().messages();
    let (flags, last) = messages.last().unwrap();
    assert_eq!((*flags, &last["error"]["code"]), (2, &json!("unavailable")), "{messages:?}");
    assert_eq!(sandbox.call(49983, "GET", "/health").send().status, 502);
    refused(&api(&server, "GET", &format!("/sandboxes/{}", sandbox.id)).send(), 404);
}

#[test]
fn a_sandbox_whose_time_is_over_may_be_paused_and_wake_by_itself() {
    let server = Server::start().unwrap();
    let wakes = create(&server, json!({"timeout": 1, "autoPause": true, "autoResume": {"enabled": true}}));
    let sleeps = create(&server, json!({"timeout": 1, "autoPause": true}));
    let state = |sandbox: &Sandbox<'_>| {
        api(&server, "GET", &format!("/sandboxes/{}", sandbox.id)).send().json()["state"].clone()
    };
    let began = Instant::now();
    while [state(&wakes), state(&sleeps)] != ["paused", "paused"] {
        assert!(began.elapsed() < Duration::from_secs(60), "never paused");
    }
    assert_eq!(sleeps.call(49983, "GET", "/health").send().status, 502);
    assert_eq!(wakes.call(49983, "GET", "/health").send().status, 204);
}

#[test]
fn a_snapshot_has_the_files_of_its_moment() {
    let server = Server::start().unwrap();
    let sandbox = create(&server, json!({}));
    sandbox.run("mkdir -p ~/a/b && echo old > ~/a/b/f && ln -s b ~/a/link && chmod 700 ~/a/b/f && echo w > /workspace/w && echo t > /tmp/t");
    let taken =
        api(&server, "POST", &format!("/sandboxes/{}/snapshots", sandbox.id)).json(&json!({"name": "mine"})).send();
    assert_eq!(taken.status, 201);
    assert_eq!(taken.json()["names"], json!(["mine"]));
    sandbox.run("echo new > ~/a/b/f");
    assert_eq!(api(&server, "DELETE", &format!("/sandboxes/{}", sandbox.id)).send().status, 204);
    for template in [taken.json()["snapshotID"].as_str().unwrap(), "mine"] {
        let restored = create(&server, json!({"templateID": template}));
        let output = restored.run("cat ~/a/link/f /workspace/w /tmp/t; stat -c %a%U ~/a/b/f");
        assert_eq!(printed(&output), "old\nw\nt\n700user\n");
    }
    let listed = api(&server, "GET", &format!("/snapshots?sandboxID={}", sandbox.id)).send().json();
    assert_eq!(listed, json!([taken.json()]));
}

#[test]
fn a_list_is_filtered_and_cut_into_pages() {
    let server = Server::start().unwrap();
    let ids: Vec<_> =
        (0..3).map(|number| create(&server, json!({"metadata": {"n": format!("{number} &")}})).id).collect();
    let list = |target: &str| {
        let reply = api(&server, "GET", target).send();
        let ids: Vec<_> = reply
            .json()
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["sandboxID"].as_str().unwrap().to_owned())
            .collect();
        (ids, reply.header("x-next-token").map(str::to_owned))
    };
    assert_eq!(list("/v2/sandboxes?order=asc").0, ids);
    assert_eq!(list("/v2/sandboxes?metadata=n%3D1%2B%2526").0, ids[1..2]);
    let (first, next) = list("/v2/sandboxes?limit=2");
    assert_eq!(first, [ids[2].clone(), ids[1].clone()]);
    assert_eq!(list(&format!("/v2/sandboxes?limit=2&nextToken={}", next.unwrap())), (vec![ids[0].clone()], None));
    assert_eq!(list("/v2/sandboxes?state=paused").0, Vec::<String>::new());
    refused(&api(&server, "GET", "/v2/sandboxes?nextToken=x").send(), 400);
}
