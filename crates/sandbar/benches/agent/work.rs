//! The workloads: many turns on one machine, and many concurrent runs with a machine each.

use std::time::{Duration, Instant};

use sandbar::{client::UnixLocal, prelude::*};
use serde_json::json;

/// Number of concurrent runs, and of commands in each run.
const RUNS: usize = 200;
const COMMANDS: usize = 3;

/// An agent whose model calls the same command in each turn, and ends with a message.
fn agent(commands: usize) -> SandboxAgent {
    let call = |at| vec![Item::function_call(format!("c{at}"), "exec_command", r#"{"cmd":"true"}"#)];
    let turns = (0..commands).map(call).chain([vec![Item::assistant("done")]]);
    let capabilities = Capabilities::none().with(Shell::new());
    SandboxAgent::new("x").instructions("bench").capabilities(capabilities).model(ScriptedModel::new(turns))
}

/// Duration of a run on a fresh machine, from its creation to its removal.
pub(crate) async fn turns(commands: usize) -> Duration {
    let agent = agent(commands);
    let started = Instant::now();
    let result = run(&agent, "go").sandbox(UnixLocal::new()).max_turns(commands as u32 + 5).await.unwrap();
    let took = started.elapsed();
    assert_eq!(result.final_output(), "done");
    assert_eq!(worked(&result), commands, "every command ran and ended well");
    took
}

fn worked(result: &RunResult) -> usize {
    let outputs = result.new_items().iter().filter(|item| item.kind == RunItemKind::ToolOutput);
    outputs.filter(|item| item.raw.text_field("output").is_some_and(|text| text.contains("exited with code 0"))).count()
}

/// Duration of many concurrent runs, each on its own machine.
async fn many(runs: usize) -> Duration {
    let agents: Vec<SandboxAgent> = (0..runs).map(|_| agent(COMMANDS)).collect();
    let started = Instant::now();
    let all = agents.into_iter().map(|agent| {
        tokio::spawn(async move {
            let result = run(&agent, "go").sandbox(UnixLocal::new()).await.unwrap();
            assert_eq!(worked(&result), COMMANDS);
        })
    });
    for run in Vec::from_iter(all) {
        run.await.unwrap();
    }
    started.elapsed()
}

/// Main function of the separate process, whose memory can be measured together with its machines.
pub(crate) async fn many_and_report(rounds: usize) {
    many(1).await;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        seconds.push(many(RUNS).await.as_secs_f64());
    }
    println!("{}", json!({ "name": "many", "seconds": seconds }));
}
