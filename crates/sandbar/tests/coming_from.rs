//! The page about the OpenAI Agents SDK: its code is part of this file, which compiles and passes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::{path::Path, sync::Arc, time::Duration};

use futures::StreamExt as _;
use sandbar::{
    MachinePath, Snapshot,
    capability::PatchTransport,
    client::UnixLocal,
    prelude::*,
    sandbox::{ArchiveLimits, Group, User, audit::Callback},
};
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

type Done = Result<(), BoxError>;

fn agent(turns: impl IntoIterator<Item = Item>) -> SandboxAgent {
    SandboxAgent::new("x").model(ScriptedModel::new(turns.into_iter().map(|item| vec![item])))
}

fn exec(cmd: &str) -> Item {
    Item::function_call("call_1", "exec_command", serde_json::json!({ "cmd": cmd, "yield_time_ms": 30000 }).to_string())
}

fn told(result: &RunResult) -> String {
    let outputs = result.new_items().iter().filter(|item| item.kind == RunItemKind::ToolOutput);
    outputs.filter_map(|item| item.raw.text_field("output")).collect()
}

#[tokio::test]
async fn the_shortest_loop() -> Done {
    let model = ScriptedModel::new([vec![Item::assistant("done")]]);
    let agent = SandboxAgent::new("Workspace reviewer")
        .model(model) // or a name: .model("gpt-5.5")
        .instructions("Inspect the sandbox workspace before answering.")
        .manifest(Manifest::new().file("brief.md", "Renewal date: 2026-04-15.\n"))
        .capabilities([Shell::new()]);
    let result = run(&agent, "When is the renewal?").sandbox(UnixLocal::new()).await?;
    assert_eq!(result.final_output(), "done");
    Ok(())
}

#[tokio::test]
async fn a_session_of_ones_own() -> Done {
    let agent = agent([exec("echo first > a.txt"), Item::assistant("1"), exec("cat a.txt"), Item::assistant("2")]);
    let manifest = Manifest::new();
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await?;
    run(&agent, "First pass.").sandbox(&session).await?;
    let result = run(&agent, "Follow-up pass.").sandbox(&session).await?;
    let artifact = session.read_text("a.txt").await?;
    session.delete().await?;
    assert_eq!(artifact, "first\n");
    assert!(told(&result).ends_with("first\n"));
    Ok(())
}

#[test]
fn a_manifest_with_everything() -> Done {
    let manifest = Manifest::new()
        .file("task.md", "Do this.\n")
        .dir("output", Dir::new().description("put reports here"))
        .local_file("config.json", LocalFile::new("./config.json"))
        .local_dir("data", LocalDir::new("./data").ignore("*.tmp").obey_gitignore())
        .git_repo("repo", GitRepo::new("owner/repo").at("main").depth(1).sparse("src"))
        .remote_file("data.json", RemoteFile::new("https://example.com/data.json").sha256("0".repeat(64)))
        .remote_dir("kit", RemoteDir::new("https://example.com/kit.tar.gz").strip_components(1))
        .mount("room", Mount::new("/srv/data-room"))
        .env("MODE", "test")
        .env("TOKEN", EnvValue::secret("TOKEN"))
        .grant(PathGrant::new(MachinePath::new("/opt/tools")?).read_only())
        .base_dir(".");
    assert_eq!(manifest.entries.len(), 8);
    let accounts = Manifest::new().user(User::new("ann")).group(Group::new("staff").user("ann"));
    assert_eq!((accounts.users.len(), accounts.groups.len()), (1, 1));
    Ok(())
}

#[tokio::test]
async fn tools_that_need_a_person() -> Done {
    let push = Approval::when(|_call, arguments| async move {
        arguments["cmd"].as_str().is_none_or(|cmd| cmd.contains("git push"))
    });
    let capabilities = Capabilities::none()
        .with(Shell::new().approval(push))
        .with(Filesystem::new().ask_about(|path| path.starts_with("infra/")).transport(PatchTransport::Function))
        .with(Compaction::new().threshold(100_000));
    let agent = agent([exec("echo git push"), Item::assistant("pushed")]).capabilities(capabilities);

    let sandbox = SandboxRunConfig::new(UnixLocal::new());
    let paused = run(&agent, "Release it.").sandbox(&sandbox).await?;
    let saved = paused.to_state().to_json()?;

    let mut state = RunState::from_json(&saved)?;
    for call in state.interruptions() {
        state.approve(&call)?;
    }
    let result = run(&agent, state).sandbox(&sandbox).await?; // the same machine, kept by `sandbox`
    assert_eq!(result.final_output(), "pushed");
    assert!(told(&result).ends_with("git push\n"));
    Ok(())
}

#[tokio::test]
async fn a_session_that_is_found_again() -> Done {
    let agent = agent([exec("cat a.txt"), Item::assistant("found")]);
    let client = Arc::new(UnixLocal::new());
    let options = SessionOptions::new(Manifest::new().file("a.txt", "kept\n")).lifetime(Lifetime::Detached);
    let session = SandboxSession::open(client.clone(), options).await?;
    let state: String = serde_json::to_string(&session.state())?;
    drop(session);

    let state: SessionState = serde_json::from_str(&state)?;
    let sandbox = SandboxRunConfig::default().client(client).session_state(state);
    let result = run(&agent, "Go on.").sandbox(sandbox).await?;
    assert!(told(&result).ends_with("kept\n"));
    Ok(())
}

#[tokio::test]
async fn a_workspace_that_is_saved() -> Done {
    let agent = agent([exec("cat a.txt"), Item::assistant("there")]);
    let folder = std::env::temp_dir().join(format!("sandbar-saved-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("saved.tar");
    let manifest = Manifest::new().file("a.txt", "saved\n");
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await?;
    let mut tar = session.persist_workspace().await?;
    let mut file = tokio::fs::File::create(&path).await?;
    while let Some(piece) = tar.next().await {
        file.write_all(&piece?).await?;
    }
    file.flush().await?;
    session.delete().await?;

    let sandbox = SandboxRunConfig::new(UnixLocal::new()).snapshot(Snapshot::Archive(path));
    let result = run(&agent, "Start from there.").sandbox(sandbox).await?;
    assert!(told(&result).ends_with("saved\n"));
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

/// Lends a tool that works in the sandbox.
#[derive(Debug)]
struct CountLines;

#[async_trait]
impl Capability for CountLines {
    fn kind(&self) -> &str {
        "count_lines"
    }

    async fn equip(&self, place: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let session = place.session().clone();
        let tool = FunctionTool::new("count_lines", "Counts the lines of a file.", move |_call, path: FilePath| {
            let session = session.clone();
            async move { Ok::<_, SandboxError>(session.read_text(&path.path).await?.lines().count().to_string()) }
        });
        Ok(CapabilityKit::new().tool(tool))
    }
}

#[derive(serde::Deserialize, sandbar::schemars::JsonSchema)]
#[schemars(crate = "sandbar::schemars")]
struct FilePath {
    path: String,
}

#[tokio::test]
async fn a_capability_of_ones_own() -> Done {
    let call = Item::function_call("call_1", "count_lines", r#"{"path":"a.txt"}"#);
    let agent = agent([call, Item::assistant("counted")]).manifest(Manifest::new().file("a.txt", "1\n2\n"));
    let result = run(agent.capability(CountLines), "How long is it?").sandbox(UnixLocal::new()).await?;
    assert_eq!(told(&result), "2");
    Ok(())
}

#[tokio::test]
async fn limits_and_errors() -> Done {
    let limits = SessionLimits {
        exec_timeout: Duration::from_secs(300),
        archive: ArchiveLimits::default(),
        manifest_entries: 4.try_into()?,
        local_dir_files: 16.try_into()?,
        ..SessionLimits::default()
    };
    let audit = Callback::new(|event| assert_ne!(event.session_id, ""));
    let sandbox = SandboxRunConfig::new(UnixLocal::new())
        .machine(MachineSpec::default().network(Network::Host).ports([3000]))
        .secrets(SecretStore::new().with("TOKEN", "s3cret"))
        .cwd("repo")
        .options(|options| options.limits(limits).audit(audit));
    drop(sandbox);

    let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::default()).await?;
    match session.exec(Exec::shell("sleep 9").timeout(Duration::from_millis(50))).await {
        Ok(result) => drop(result.stdout_text()),
        Err(SandboxError::Timeout { timeout_s, .. }) => assert!(timeout_s > 0.0),
        Err(SandboxError::NotFound { path, .. }) => drop(path),
        Err(other) => return Err(other.into()), // `other.code()` is the SDK's `error_code`
    }
    Ok(session.delete().await?)
}

#[test]
fn every_line_of_code_on_the_page_is_above() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(PAGE)).unwrap();
    let plain = |text: &str| {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        format!("\n{}\n", lines.collect::<Vec<_>>().join("\n"))
    };
    let here = plain(include_str!("coming_from.rs"));
    let blocks: Vec<&str> =
        page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    assert!(blocks.len() >= 7, "{} blocks", blocks.len());
    for block in blocks {
        assert!(here.contains(&plain(block)), "not the code of this test:\n{block}");
    }
}

const PAGE: &str = "coming-from-the-openai-agents-sdk.md";

#[test]
fn a_manifest_of_the_sdk_is_read_as_it_is() -> Done {
    let text = r#"{"version":1,"root":"/workspace","entries":{"a.md":{"type":"file","content":"x"},
        "repo":{"type":"git_repo","repo":"owner/repo","ref":"main"}},"environment":{"value":{"A":"1"}}}"#;
    let read: Value = serde_json::from_str(text)?;
    assert!(read.is_object());
    assert_eq!(Manifest::from_json(text)?.entries.len(), 2);
    Ok(())
}
