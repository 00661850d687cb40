//! Edge cases of models over HTTP, and of the export of traces.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use sandbar_agent::{
    Agent, ModelEndpoint, ModelSettings, Patience, Responses, ScriptedModel, run,
    trace::{BatchLimits, Batched, Export, TraceExporter},
};
use sandbar_mock::{Fault, MockServer, Script, Turn, item};
use serde_json::json;

use crate::scene::{Log, echo, says};

#[derive(Debug)]
struct NoWait;

impl Patience for NoWait {
    fn wait(&self, _time: Duration) -> futures::future::BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn chance(&self) -> f64 {
        0.0
    }
}

#[tokio::test]
async fn the_time_of_one_attempt_does_not_end_the_next_one() {
    let mut ends = Vec::new();
    // A busy host may need longer for an answer.
    for millis in [700, 5_000, 30_000] {
        let script = Script::new().turn(Turn::new([item::text("there")]).fault(Fault::Hang));
        let server = MockServer::start(script).expect("a server");
        let endpoint = ModelEndpoint::new(server.base_url()).patience(NoWait);
        let mut settings = ModelSettings::default();
        settings.timeout = Some(Duration::from_millis(millis));
        let agent = Agent::new("a").settings(settings).model(Responses::new("m").at(endpoint));
        let end = run(&agent, "go").await.map(|result| result.final_output()).map_err(|error| error.to_string());
        if end.as_deref() == Ok("there") {
            return;
        }
        ends.push(end);
    }
    panic!("the transport asks again, as it does without a run: {ends:?}");
}

/// A proxy that forwards bytes to a server and counts connections.
fn counting(server: &MockServer) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (address, to) = (listener.local_addr().expect("an address"), server.address());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            let server = TcpStream::connect(to).expect("the server");
            for (mut from, mut into) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut buffer) {
                        if into.write_all(&buffer[..read]).is_err() {
                            break;
                        }
                    }
                });
            }
        }
    });
    (format!("http://{address}/v1"), count)
}

#[test]
fn the_turns_of_a_run_share_a_connection_also_with_a_model_from_the_environment() {
    const CHILD: &str = "REVIEW_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let agent = Agent::new("a").model("m").tool(echo("look", &Log::default()));
        run(&agent, "go").blocking().expect("it runs");
        return;
    }
    let call = || Turn::new([item::function_call("look", json!({}))]);
    let connections = || {
        let script = Script::new().turn(call()).turn(call()).turn(call()).turn(Turn::new([item::text("done")]));
        let server = MockServer::start(script).expect("a server");
        let (url, connections) = counting(&server);
        let name = "wire::the_turns_of_a_run_share_a_connection_also_with_a_model_from_the_environment";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            command.env_remove(variable).env_remove(variable.to_uppercase());
        }
        let child =
            command.args(["--exact", name]).env(CHILD, "1").env("OPENAI_BASE_URL", url).output().expect("it starts");
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        assert_eq!(server.requests().len(), 4);
        connections.load(Ordering::SeqCst)
    };
    // The client waits for the end of an answer, but on a busy host not long enough.
    assert!((0..10).any(|_| connections() == 1), "more than one connection for four turns, every time");
}

#[tokio::test]
async fn the_usual_settings_are_those_of_the_model_that_is_asked() {
    let model = ScriptedModel::new([says("done")]).named("llama3");
    let agent = Agent::new("a").model("gpt-5.5");
    run(&agent, "go").model(model.clone()).await.expect("it runs");
    let settings = model.requests()[0].settings.clone();
    assert_eq!((settings.verbosity, settings.reasoning), (None, None), "these are for gpt-5.5");
}

#[tokio::test]
async fn a_call_id_from_a_model_does_not_name_anything_outside() {
    let inner = ScriptedModel::new([says("fine")]);
    let log = Log::default();
    let told = log.clone();
    let worker = Agent::new("worker").model(inner).instructions("x");
    let helper = worker.as_tool("helper", "Helps.").extract(move |result| {
        told.line(result.to_state().run().id());
        async { Ok("ok".to_owned()) }
    });
    let call = sandbar_agent::Item::function_call("../../../etc/passwd", "helper", r#"{"input":"x"}"#);
    let agent = Agent::new("a").tool(helper).model(ScriptedModel::new([vec![call], says("done")]));
    run(&agent, "go").id("r").await.expect("it runs");
    assert!(log.lines().iter().all(|id| !id.contains("..")), "the id of a nested run: {:?}", log.lines());
}

struct Quiet;

impl TraceExporter for Quiet {
    fn export(&mut self, _batch: &[Export]) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_short_queue_of_traces_does_not_keep_a_processor_busy() {
    let usual = BatchLimits::default();
    let queues = [
        BatchLimits { queue: 8, ..usual },
        BatchLimits { bytes: 0, ..usual },
        BatchLimits { every: Duration::ZERO, ..usual },
    ]
    .map(|limits| Batched::limited(Quiet, limits));
    thread::sleep(Duration::from_secs(1));
    let ticks: u64 = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten()
        .filter(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "sandbar-traces")
        })
        .filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok())
        .map(|stat| {
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
            fields[11].parse::<u64>().unwrap_or(0) + fields[12].parse::<u64>().unwrap_or(0)
        })
        .sum();
    drop(queues);
    assert!(ticks < 5, "idle queues have used {ticks} hundredths of a second in one second");
}

#[tokio::test]
async fn any_length_of_time_may_pass_in_silence() {
    let server = MockServer::start(Script::new().turn(Turn::new([item::text("there")]))).expect("a server");
    let endpoint = ModelEndpoint::new(server.base_url()).idle_timeout(Duration::MAX);
    let agent = Agent::new("a").model(Responses::new("m").at(endpoint));
    let played = tokio::spawn(async move { run(&agent, "go").await.map(drop).map_err(drop) }).await;
    assert!(matches!(played, Ok(Ok(()))), "{played:?}");
}

#[test]
fn a_model_over_http_serves_one_blocking_run_after_another() {
    let server = MockServer::start(Script::new().turn(Turn::new([item::text("one")]))).expect("a server");
    let agent = Agent::new("a").model(Responses::new("m").at(ModelEndpoint::new(server.base_url())));
    for _ in 0..5 {
        let result = run(&agent, "go").blocking().expect("each time");
        assert_eq!(result.final_output(), "one");
    }
    assert_eq!(server.requests().len(), 5, "none had to be sent twice");
}
