//! An agent fixes a typo in a copy of a project. The program shows the diff, applies the change, and removes the run.
//!
//! Run with `cargo run -p sandbar-runs --example agent_on_a_copy`. It prints:
//!
//! ```text
//! copied 2 files
//! the agent: I fixed the typo in greet.txt.
//! the project still says "helo, world"
//! diff --git a/greet.txt b/greet.txt
//! --- a/greet.txt
//! +++ b/greet.txt
//! @@ -1 +1 @@
//! -helo, world
//! +hello, world
//! M greet.txt
//! the project says "hello, world"
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{fs, sync::Arc};

use sandbar::{
    Access, MachineSpec, SessionOptions, Workspace,
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use sandbar_runs::{ApplyOptions, CancellationToken, CopyOptions, RunStore, Scope};

const PATCH: &str = "\
*** Begin Patch
*** Update File: greet.txt
@@
-helo, world
+hello, world
*** End Patch
";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let temp = tempfile::tempdir()?;
    let project = temp.path().join("project");
    fs::create_dir(&project)?;
    fs::write(project.join("greet.txt"), "helo, world\n")?;
    fs::write(project.join("README"), "A greeting.\n")?;

    // A run is a directory with a working copy. A product keeps the store in `StateDir::from_env()`.
    let store = RunStore::at(temp.path().join("runs"))?;
    let run = store.begin("fix the typo")?;
    let copied = run.copy_in(&project, &CopyOptions::default())?;
    println!("copied {} files", copied.files);

    // The agent sees the copy as its workspace, and nothing else of the host.
    let server = MockServer::start(
        Script::new()
            .turn(item::custom_tool_call("apply_patch", PATCH))
            .turn(item::text("I fixed the typo in greet.txt.")),
    )?;
    let agent = SandboxAgent::new("editor")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Fix typos.");
    let workspace = Workspace::Host { path: run.workspace(), access: Access::ReadWrite };
    let options = SessionOptions::new(Manifest::new()).machine(MachineSpec::default().workspace(workspace));
    let session = SandboxSession::create(Arc::new(UnixLocal::new()), options).await?;
    session.start().await?;
    let result = sandbar::run(&agent, "Fix the typo.").sandbox(&session).await?;
    session.delete().await?;
    println!("the agent: {}", result.final_output());
    println!("the project still says {:?}", fs::read_to_string(project.join("greet.txt"))?.trim());

    let changes = run.changes(Scope::NotIgnored)?;
    let diff = run.diff()?;
    for change in changes.shown() {
        print!("{}", String::from_utf8_lossy(&diff.patch(change)?.text));
    }

    // A plan names conflicts, and files that tools on this host run by themselves, before anything is changed.
    let mut plan = run.plan_apply(&changes, &ApplyOptions::default())?;
    assert!(plan.conflicts().is_empty() && plan.tool_files().is_empty());
    for step in plan.steps() {
        println!("{} {}", step.letter(), step.path());
    }
    plan.commit(&CancellationToken::new())?;
    println!("the project says {:?}", fs::read_to_string(project.join("greet.txt"))?.trim());

    let id = run.id().to_owned();
    drop((plan, run));
    store.remove(&id)?;
    Ok(())
}
