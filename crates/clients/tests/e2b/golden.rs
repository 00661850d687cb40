//! Requests as the official SDKs send them, and where ours differ: facts from recordings of the Python SDK 2.31.0.

use std::sync::Arc;

use sandbar_fakes::{Request, e2b::Server};
use sandbar_machine::{
    Command, Control, Lifetime, Machine, MachinePath, MachineSpec, Network, Output, Process, SandboxClient, Signal,
    Target, TerminalSize, once,
};
use serde_json::{Value, json};

use crate::bench::{client, run};

/// The requests with this method and path; `*` stands for an id.
fn requests(server: &Server, method: &str, path: &str) -> Vec<Request> {
    let is_met = |known: &str| {
        let (wanted, parts): (Vec<_>, Vec<_>) = (path.split('/').collect(), known.split('/').collect());
        wanted.len() == parts.len() && wanted.iter().zip(parts).all(|(wanted, part)| *wanted == "*" || *wanted == part)
    };
    server.requests().into_iter().filter(|request| request.method == method && is_met(&request.path)).collect()
}

fn only(server: &Server, method: &str, path: &str) -> Request {
    let mut found = requests(server, method, path);
    assert_eq!(found.len(), 1, "{method} {path}: {found:?}");
    found.remove(0)
}

#[track_caller]
fn has_headers(request: &Request, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(request.header(name), Some(*value), "{name} of {} {}", request.method, request.path);
    }
}

/// Every field of `expected` is in `found`; the test lists the other fields.
#[track_caller]
fn holds(found: &Value, expected: &Value) {
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&found[name], value, "{name} of {found}");
    }
}

#[tokio::test]
async fn the_control_plane_is_asked_as_the_sdk_asks() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let spec = MachineSpec::default().env([("A", "1")]).network(Network::Open).lifetime(Lifetime::Detached);
    let machine = client.create(spec).await.unwrap();
    let id = server.sandboxes().remove(0);
    let created = only(&server, "POST", "/sandboxes");
    has_headers(&created, &[("x-api-key", server.key()), ("content-type", "application/json")]);
    let body = created.json().unwrap();
    // As recorded; omitted fields have their default values.
    let recorded = json!({ "templateID": "base", "allow_internet_access": true, "autoPause": true,
        "autoResume": { "enabled": true }, "secure": true });
    holds(&body, &recorded);
    assert_eq!(body["envVars"]["A"], "1");
    // Only ours: a timeout of one hour, ports that require a header, and a mark that finds a sandbox whose reply was
    // lost.
    assert_eq!((&body["timeout"], &body["network"]), (&json!(3600), &json!({ "allowPublicTraffic": false })));
    assert!(body["metadata"]["sandbar"].as_str().is_some_and(|mark| mark.len() == 32));
    let mut fields: Vec<String> = body.as_object().unwrap().keys().cloned().collect();
    fields.sort_unstable();
    let known = [
        "allow_internet_access",
        "autoPause",
        "autoResume",
        "envVars",
        "metadata",
        "network",
        "secure",
        "templateID",
        "timeout",
    ];
    assert_eq!(fields, known);
    let snapshot = machine.snapshots().unwrap().take().await.unwrap();
    let taken = only(&server, "POST", "/sandboxes/*/snapshots");
    assert_eq!((taken.path.clone(), taken.json()), (format!("/sandboxes/{id}/snapshots"), Some(json!({}))));
    client.pause(&machine.handle()).await.unwrap();
    assert_eq!(only(&server, "POST", "/sandboxes/*/pause").json(), Some(json!({})));
    client.attach(&machine.handle()).await.unwrap().unwrap();
    let connected = only(&server, "POST", "/sandboxes/*/connect");
    assert_eq!(
        (connected.path.clone(), connected.json()),
        (format!("/sandboxes/{id}/connect"), Some(json!({ "timeout": 3600 })))
    );
    machine.stop().await.unwrap();
    let killed = only(&server, "DELETE", "/sandboxes/*");
    assert_eq!((killed.path.as_str(), killed.body.len()), (format!("/sandboxes/{id}").as_str(), 0));
    let restored = client.create(MachineSpec::default().snapshot(snapshot.clone())).await.unwrap();
    let created = requests(&server, "POST", "/sandboxes").pop().unwrap().json().unwrap();
    let bound = json!({ "templateID": snapshot.0, "timeout": 120, "allow_internet_access": false, "autoPause": false,
        "autoResume": { "enabled": false } });
    holds(&created, &bound);
    restored.stop().await.unwrap();
}

#[tokio::test]
async fn a_lease_is_renewed_while_a_client_is_attached() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let spec = MachineSpec::default().lifetime(Lifetime::Leased(std::time::Duration::from_secs(2)));
    let machine = client.create(spec).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(server.sandboxes().len(), 1, "it outlived its lease while it was held");
    let renewed = requests(&server, "POST", "/sandboxes/*/timeout");
    assert!(renewed.iter().all(|request| request.json() == Some(json!({ "timeout": 2 }))), "{renewed:?}");
    drop(machine);
    crate::bench::eventually("the lease to end it", || server.sandboxes().is_empty()).await;
}

async fn started(server: &Server, command: Command) -> (Arc<dyn Machine>, Request, Value, Process) {
    let machine = client(server).create(MachineSpec::default()).await.unwrap();
    server.forget_requests();
    let process = machine.spawn(command).await.unwrap();
    let request = only(server, "POST", "/process.Process/Start");
    let (flags, message) = request.messages().remove(0);
    assert_eq!(flags, 0);
    (machine, request, message, process)
}

#[tokio::test]
async fn a_command_is_started_as_the_sdk_starts_one() {
    let server = Server::start().unwrap();
    let command = Command::new(["printf", "%s", "a b"]).env("B", "2").cwd(MachinePath::new("/tmp").unwrap());
    let (_machine, request, message, _process) = started(&server, command).await;
    let id = server.sandboxes().remove(0);
    has_headers(
        &request,
        &[
            ("content-type", "application/connect+json"),
            ("connect-protocol-version", "1"),
            ("keepalive-ping-interval", "50"),
            ("e2b-sandbox-id", &id),
            ("e2b-sandbox-port", "49983"),
        ],
    );
    assert!(request.header("x-access-token").is_some() && request.header("x-api-key").is_none());
    assert!(request.header("connect-timeout-ms").is_none());
    assert_eq!((&message["stdin"], message.get("pty")), (&json!(false), None));
    let process = &message["process"];
    assert_eq!((&process["cwd"], &process["envs"]["B"]), (&json!("/tmp"), &json!("2")));
    // Where the SDK passes a text to a login shell, ours passes a constant script and the arguments unchanged.
    let words: Vec<&str> = process["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!((&process["cmd"], &words[words.len() - 3..]), (&json!("sh"), &["printf", "%s", "a b"][..]));
    // Only ours: the tag that finds the command and its children.
    assert_eq!(message["tag"], process["envs"]["SANDBAR_TREE"]);
}

#[tokio::test]
async fn a_deadline_is_told_to_the_service_as_well() {
    let server = Server::start().unwrap();
    let command = Command::new(["true"]).deadline(std::time::Duration::from_secs(5));
    let (_machine, request, ..) = started(&server, command).await;
    assert_eq!(request.header("connect-timeout-ms"), Some("35000"));
}

#[tokio::test]
async fn input_and_signals_are_sent_as_the_sdk_sends_them() {
    let server = Server::start().unwrap();
    let (_machine, _, message, mut process) = started(&server, Command::new(["cat"]).stdin()).await;
    assert_eq!(message["stdin"], json!(true));
    let by_tag = json!({ "tag": message["tag"] });
    process.stdin.as_ref().unwrap().send("hello\n".into()).await.unwrap();
    assert_eq!(process.output.recv().await.unwrap().unwrap(), Output::Stdout("hello\n".into()));
    let sent = only(&server, "POST", "/process.Process/SendInput");
    has_headers(&sent, &[("content-type", "application/json"), ("connect-protocol-version", "1")]);
    // The SDK selects by process id, which can be reused.
    assert_eq!(sent.json(), Some(json!({ "process": by_tag, "input": { "stdin": "aGVsbG8K" } })));
    process.control.send(Control::Signal(Signal::Kill)).await.unwrap();
    assert!(matches!(process.output.recv().await, Some(Ok(Output::Exit(exit))) if exit.code == 137));
    let killed = only(&server, "POST", "/process.Process/SendSignal");
    assert_eq!(killed.json(), Some(json!({ "process": by_tag, "signal": "SIGNAL_SIGKILL" })));
    let (_machine, _, message, mut process) = started(&server, Command::new(["cat"]).stdin()).await;
    drop(process.stdin.take());
    assert!(matches!(process.output.recv().await, Some(Ok(Output::Exit(exit))) if exit.success()));
    let closed = only(&server, "POST", "/process.Process/CloseStdin");
    assert_eq!(closed.json(), Some(json!({ "process": { "tag": message["tag"] } })));
}

#[tokio::test]
async fn a_terminal_is_used_as_the_sdk_uses_one() {
    let server = Server::start().unwrap();
    let command = Command::new(["cat"]).tty(TerminalSize::new(24, 80));
    let (_machine, _, message, process) = started(&server, command).await;
    assert_eq!(message["pty"], json!({ "size": { "cols": 80, "rows": 24 } }));
    process.control.send(Control::Resize(TerminalSize::new(30, 100))).await.unwrap();
    process.stdin.as_ref().unwrap().send("x".into()).await.unwrap();
    let all = || {
        (requests(&server, "POST", "/process.Process/Update"), requests(&server, "POST", "/process.Process/SendInput"))
    };
    crate::bench::eventually("both requests", || !all().0.is_empty() && !all().1.is_empty()).await;
    let by_tag = json!({ "tag": message["tag"] });
    let resized = json!({ "process": by_tag, "pty": { "size": { "cols": 100, "rows": 30 } } });
    assert_eq!(all().0[0].json(), Some(resized));
    assert_eq!(all().1[0].json(), Some(json!({ "process": by_tag, "input": { "pty": "eA==" } })));
}

#[tokio::test]
async fn a_file_is_uploaded_as_the_sdk_uploads_one_and_then_put_in_its_place() {
    let server = Server::start().unwrap();
    let machine = client(&server).create(MachineSpec::default()).await.unwrap();
    let made = only(&server, "POST", "/filesystem.Filesystem/MakeDir");
    assert_eq!(made.json(), Some(json!({ "path": "workspace" })));
    assert_eq!(machine.features().workspace.to_string(), "/home/user/workspace");
    server.forget_requests();
    let target = Target::from(machine.features().workspace.join("f.bin").unwrap());
    machine.write(&target, once(&b"\0\x01binary\xff"[..])).await.unwrap();
    let sent = only(&server, "POST", "/files");
    let spool = sent.query.strip_prefix("path=%2Ftmp%2F.sandbar-").expect("a name of its own in /tmp");
    let boundary = sent.header("content-type").unwrap().strip_prefix("multipart/form-data; boundary=").unwrap();
    let form = [
        format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"/tmp/.sandbar-{spool}\"\r\n"
        )
        .as_bytes(),
        b"Content-Type: application/octet-stream\r\n\r\n\0\x01binary\xff\r\n",
        format!("--{boundary}--\r\n").as_bytes(),
    ]
    .concat();
    assert_eq!(sent.body, form);
    assert_eq!(requests(&server, "POST", "/process.Process/Start").len(), 1, "one command puts it in its place");
    assert_eq!(requests(&server, "GET", "/files").len(), 0, "the service would read it as root");
    assert_eq!(run(&*machine, Command::new(["cat", "f.bin"])).await.0, b"\0\x01binary\xff");
    let left = run(&*machine, Command::new(["ls", "-A", "/tmp"])).await.0;
    assert_eq!(String::from_utf8_lossy(&left), "");
}
