//! What a machine at E2B has beside commands and files: ports over HTTP, snapshots, pauses, and an end.

use std::{net::Ipv4Addr, time::Duration};

use sandbar_clients::{ClientContext, E2b, Registry};
use sandbar_fakes::e2b::Server;
use sandbar_http::{Client, Proxies, Request, Retries};
use sandbar_machine::{
    Command, Endpoint, Isolation, Lifetime, Machine, MachineSpec, Network, Output, Process, SandboxClient, Target,
    collect, once,
};

use crate::bench::{client, domain, eventually, run};

const SERVE: &str = r#"
import http.server, sys
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"hello " + self.path.encode())
server = http.server.HTTPServer(("127.0.0.1", 8080), Echo)
print("ready", flush=True)
server.serve_forever()
"#;

/// Starts a server inside, and waits until it listens.
async fn serve(machine: &dyn Machine) -> Process {
    let mut process = machine.spawn(Command::new(["python3", "-c", SERVE])).await.unwrap();
    match process.output.recv().await.unwrap().unwrap() {
        Output::Stdout(_ready) => process,
        other => panic!("{other:?}"),
    }
}

/// Status and body of a request to a port.
async fn ask(endpoint: &Endpoint, path: &str) -> (u16, String) {
    let loopback = Ipv4Addr::LOCALHOST.into();
    let http = Client::new(Proxies::none()).resolve(endpoint.host(), loopback);
    let mut request = Request::get(endpoint.url.join(path).unwrap()).retries(Retries::none());
    for (name, value) in &endpoint.headers {
        request = request.header(name, value);
    }
    let response = http.send(request).await.unwrap();
    let status = response.status().as_u16();
    (status, String::from_utf8_lossy(&response.bytes(1 << 16).await.unwrap()).into_owned())
}

#[tokio::test]
async fn a_declared_port_speaks_http_to_those_who_have_its_header() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let spec = MachineSpec::default().ports([8080]).lifetime(Lifetime::Detached);
    let machine = client.create(spec).await.unwrap();
    let endpoint = machine.ports().unwrap().open(8080).await.unwrap();
    assert_eq!(endpoint.to_string(), format!("http://8080-{}.{}", server.sandboxes()[0], domain(&server)));
    let token = endpoint.headers.get("e2b-traffic-access-token").expect("it asks for a header").clone();
    assert_eq!(ask(&endpoint, "/x").await.0, 502, "nothing listens yet");
    let _serving = serve(&*machine).await;
    assert_eq!(ask(&endpoint, "/x").await, (200, "hello /x".to_owned()));
    let bare = Endpoint::new(endpoint.url.as_str()).unwrap();
    assert_eq!(ask(&bare, "/x").await.0, 403);
    assert_eq!(ask(&bare.header("e2b-traffic-access-token", "wrong"), "/x").await.0, 403);
    let other = client.attach(&machine.handle()).await.unwrap().unwrap();
    let again = other.ports().unwrap().open(8080).await.unwrap();
    assert_eq!(ask(&again, "/y").await, (200, "hello /y".to_owned()), "every holder reaches it");
    assert!(!format!("{machine:?} {endpoint:?} {:?}", machine.handle()).contains(&token));
    machine.stop().await.unwrap();
    assert_eq!(ask(&endpoint, "/x").await.0, 502, "it dies with its machine");
}

#[tokio::test]
async fn public_ports_ask_for_nothing() {
    let server = Server::start().unwrap();
    let machine = client(&server).public_ports().create(MachineSpec::default().ports([8080])).await.unwrap();
    let endpoint = machine.ports().unwrap().open(8080).await.unwrap();
    assert!(endpoint.headers.is_empty());
    let _serving = serve(&*machine).await;
    assert_eq!(ask(&endpoint, "/").await.0, 200);
}

#[tokio::test]
async fn at_the_service_itself_ports_are_reached_over_tls() {
    let server = Server::start().unwrap();
    let machine = client(&server).domain("e2b.app").create(MachineSpec::default().ports([80])).await.unwrap();
    let endpoint = machine.ports().unwrap().open(80).await.unwrap();
    assert_eq!(endpoint.to_string(), format!("https://80-{}.e2b.app", server.sandboxes()[0]));
}

async fn put(machine: &dyn Machine, name: &str, text: &'static str) {
    machine.write(&Target::from(machine.features().workspace.join(name).unwrap()), once(text)).await.unwrap();
}

async fn get(machine: &dyn Machine, name: &str) -> String {
    let target = Target::from(machine.features().workspace.join(name).unwrap());
    let bytes = collect(machine.read(&target).await.unwrap(), 1 << 20).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_machine_begins_as_a_snapshot() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let machine = client.create(MachineSpec::default()).await.unwrap();
    put(&*machine, "file", "before").await;
    let snapshot = machine.snapshots().unwrap().take().await.unwrap();
    put(&*machine, "file", "after").await;
    machine.stop().await.unwrap();
    let second = client.create(MachineSpec::default().snapshot(snapshot)).await.unwrap();
    assert_eq!(get(&*second, "file").await, "before");
    assert_ne!(second.handle(), machine.handle());
}

#[tokio::test]
async fn a_paused_machine_goes_on_where_it_was() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let machine = client.create(MachineSpec::default().lifetime(Lifetime::Detached)).await.unwrap();
    let beat = "( setsid sh -c 'while :; do echo x >>beat; sleep 0.05; done' </dev/null >/dev/null 2>&1 & )";
    assert!(run(&*machine, Command::new(["sh", "-c", beat])).await.1.success());
    let handle = machine.handle();
    drop(machine);
    for _ in 0..2 {
        client.pause(&handle).await.expect("pausing a paused one is fine");
    }
    let machine = client.attach(&handle).await.unwrap().expect("it is resumed");
    let before = get(&*machine, "beat").await.len();
    let began = std::time::Instant::now();
    while get(&*machine, "beat").await.len() <= before {
        assert!(began.elapsed() < Duration::from_secs(60), "its processes go on");
    }
    // A machine that is paused while a client is attached resumes when it is used.
    client.pause(&handle).await.unwrap();
    assert!(run(&*machine, Command::new(["true"])).await.1.success());
    client.delete(&handle).await.unwrap();
    assert_eq!(client.pause(&handle).await.unwrap_err().code(), "gone");
}

#[tokio::test]
async fn a_machine_that_ends_with_its_owner_is_found_by_its_owner_alone() {
    let server = Server::start().unwrap();
    let owner = client(&server);
    let machine = owner.create(MachineSpec::default()).await.unwrap();
    let handle = machine.handle();
    assert!(owner.clone().exists(&handle).await.unwrap() && owner.clone().attach(&handle).await.unwrap().is_some());
    // Its owner may drop it at any time, and does not renew it for other clients.
    let other = client(&server);
    assert!(!other.exists(&handle).await.unwrap() && other.attach(&handle).await.unwrap().is_none());
    drop(machine);
    assert!(!owner.exists(&handle).await.unwrap() && owner.attach(&handle).await.unwrap().is_none());
}

#[test]
fn a_machine_that_ends_with_its_owner_is_gone_when_its_runtime_is() {
    let server = Server::start().unwrap();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let machine = first.block_on(client(&server).create(MachineSpec::default())).unwrap();
    drop(first);
    runtime().block_on(async {
        let refused = machine.spawn(Command::new(["true"])).await.unwrap_err();
        assert_eq!(refused.code(), "gone", "nothing renews it, so it ends at any time");
        drop(machine);
        eventually("the sandbox to be deleted", || server.sandboxes().is_empty()).await;
    });
}

#[tokio::test]
async fn nothing_is_left_of_a_dropped_machine() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let machine = client.create(MachineSpec::default()).await.unwrap();
    let running = machine.spawn(Command::new(["sleep", "1000"])).await.unwrap();
    let attached = client.attach(&machine.handle()).await.unwrap().unwrap();
    drop(attached);
    assert!(run(&*machine, Command::new(["true"])).await.1.success(), "only its owner ends it");
    drop(machine);
    eventually("the sandbox to be deleted", || server.sandboxes().is_empty()).await;
    drop(running);
}

#[tokio::test]
async fn a_create_that_is_cancelled_leaves_nothing() {
    let server = Server::start().unwrap();
    let client = client(&server);
    for delay in [0, 1, 2, 5, 10, 20] {
        let creation = client.create(MachineSpec::default().lifetime(Lifetime::Detached));
        let created = tokio::time::timeout(Duration::from_millis(delay), creation).await;
        if let Ok(machine) = created {
            machine.unwrap().stop().await.unwrap();
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(server.requests().iter().any(|request| request.path == "/sandboxes"), "some were sent");
    eventually("nothing is left", || server.sandboxes().is_empty()).await;
}

#[tokio::test]
async fn unsupported_specifications_are_refused_before_any_request() {
    let server = Server::start().unwrap();
    let refused = |spec| async { client(&server).create(spec).await.map(|_| ()).unwrap_err().to_string() };
    assert_eq!(
        refused(MachineSpec::default().network(Network::Host)).await,
        "this client cannot share the host's network"
    );
    assert_eq!(
        refused(MachineSpec::default().rootfs("/")).await,
        "this client cannot use a file tree of the host (rootfs)"
    );
    assert!(server.requests().is_empty());
    let machine = client(&server).create(MachineSpec::default()).await.unwrap();
    assert_eq!(machine.features().isolation, Isolation::Vm);
    assert!(machine.files().is_none() && machine.commands().is_none());
}

#[tokio::test]
async fn a_handle_says_nothing_secret_and_is_checked() {
    let server = Server::start().unwrap();
    let client = client(&server);
    let machine = client.create(MachineSpec::default().env([("TOKEN", "hunter2")]).ports([1])).await.unwrap();
    let handle = machine.handle();
    let saved = serde_json::to_string(&handle).unwrap();
    let state =
        serde_json::json!({ "sandbox": server.sandboxes()[0], "ports": [1], "lifetime": "owner", "time": null });
    assert_eq!(handle.state, state);
    assert!(![server.key(), "hunter2"].iter().any(|secret| saved.contains(secret)), "{saved}");
    for (name, value) in [("sandbox", "../x"), ("sandbox", ""), ("lifetime", "endless")] {
        let mut wrong = handle.clone();
        wrong.state[name] = value.into();
        assert_eq!(client.attach(&wrong).await.unwrap_err().code(), "invalid", "{value:?}");
        assert_eq!(client.delete(&wrong).await.unwrap_err().code(), "invalid", "{value:?}");
    }
    let mut wrong = handle;
    wrong.client = "docker".to_owned();
    assert_eq!(client.attach(&wrong).await.unwrap_err().code(), "invalid");
}

/// Set for the child process that reads the environment.
const CHILD: &str = "SANDBAR_TEST_E2B_FROM_ENV";

#[test]
fn key_and_addresses_come_from_the_environment() {
    let server = Server::start().unwrap();
    let child = |variables: Vec<(String, String)>| {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        for name in ["E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_DOMAIN"] {
            test.env_remove(name);
        }
        test.args(["--exact", "facets::the_child_reads_the_environment"]).env(CHILD, "1").envs(variables);
        let ran = test.output().unwrap();
        (ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let (is_fine, said) = child(server.env());
    assert!(is_fine && said.contains("1 passed"), "{said}");
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert!(paths.contains(&"/sandboxes".to_owned()) && server.sandboxes().is_empty(), "{paths:?}");
    let (is_fine, said) = child(Vec::new());
    assert!(!is_fine && said.contains("E2B_API_KEY") && said.contains("is not set"), "{said}");
}

#[tokio::test]
async fn the_child_reads_the_environment() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let machine = E2b::from_env("base").unwrap().create(MachineSpec::default()).await.unwrap();
    machine.stop().await.unwrap();
    // Clients of one registry share the machines that end with this process.
    let (registry, context) = (Registry::builtin(), ClientContext::default());
    let client = registry.client(&registry.parse("e2b").unwrap(), &context).unwrap();
    let machine = client.create(MachineSpec::default()).await.unwrap();
    let finder = registry.client_of(&machine.handle(), &context).unwrap();
    assert!(finder.attach(&machine.handle()).await.unwrap().is_some());
    let other = Registry::builtin().client_of(&machine.handle(), &context).unwrap();
    assert!(other.attach(&machine.handle()).await.unwrap().is_none());
    machine.stop().await.unwrap();
}

#[tokio::test]
async fn without_a_key_no_request_is_sent() {
    let server = Server::start().unwrap();
    let keyless = E2b::template("base").api_url(server.url());
    let error = keyless.create(MachineSpec::default()).await.unwrap_err();
    assert_eq!(error.code(), "invalid");
    assert!(error.to_string().starts_with("E2B_API_KEY: is not set; "), "{error}");
    assert!(server.requests().is_empty());
}
