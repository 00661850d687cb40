//! The workloads: turns on one machine, and many runs at once on a machine each.

use std::time::{Duration, Instant};

use sandbar::{client::UnixLocal, prelude::*};
use serde_json::json;

/// How many runs there are at once, and how many commands each of them makes before its last word.
const RUNS: usize = 200;
const COMMANDS: usize = 3;

/// An agent whose model wants the same command each turn, and says a word after the last.
fn agent(commands: usize) -> SandboxAgent {
    let call = |at| vec![Item::function_call(format!("c{at}"), "exec_command", r#"{"cmd":"true"}"#)];
    let turns = (0..commands).map(call).chain([vec![Item::assistant("done")]]);
    let capabilities = Capabilities::none().with(Shell::new());
    SandboxAgent::new("x").instructions("bench").capabilities(capabilities).model(ScriptedModel::new(turns))
}

/// A whole run on a fresh machine: it is made, used, and gone at the end.
pub(crate) async fn turns(commands: usize) -> Duration {
    let agent = agent(commands);
    let begun = Instant::now();
    let result = run(&agent, "go").sandbox(UnixLocal::new()).max_turns(commands as u32 + 5).await.unwrap();
    let took = begun.elapsed();
    assert_eq!(result.final_output(), "done");
    assert_eq!(worked(&result), commands, "every command ran and ended well");
    took
}

fn worked(result: &RunResult) -> usize {
    let outputs = result.new_items().iter().filter(|item| item.kind == RunItemKind::ToolOutput);
    outputs.filter(|item| item.raw.text_field("output").is_some_and(|text| text.contains("exited with code 0"))).count()
}

/// Many runs at once, each on a machine of its own.
async fn many(runs: usize) -> Duration {
    let agents: Vec<SandboxAgent> = (0..runs).map(|_| agent(COMMANDS)).collect();
    let begun = Instant::now();
    let all = agents.into_iter().map(|agent| {
        tokio::spawn(async move {
            let result = run(&agent, "go").sandbox(UnixLocal::new()).await.unwrap();
            assert_eq!(worked(&result), COMMANDS);
        })
    });
    for run in Vec::from_iter(all) {
        run.await.unwrap();
    }
    begun.elapsed()
}

/// For a process of its own, so that its memory, and that of its machines, can be told from everything else.
pub(crate) async fn many_and_report(rounds: usize) {
    many(1).await;
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        seconds.push(many(RUNS).await.as_secs_f64());
    }
    println!("{}", json!({ "name": "many", "seconds": seconds }));
}
