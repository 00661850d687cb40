//! The complete instructions of agents, as snapshots.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sandbar::prelude::*;

use crate::rig::{Rig, done, exec, workspace};

/// Compares a text with a snapshot, in which `/workspace` stands for the workspace of the machine.
pub(crate) fn check(name: &str, prompt: &str) {
    let parts: Vec<&str> = prompt.split(workspace()).collect();
    assert!(!parts.iter().any(|part| part.contains("/workspace")), "the machine has no /workspace: {prompt}");
    let prompt = parts.join("/workspace");
    insta::with_settings!({ snapshot_path => "snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(name.to_owned(), prompt);
    });
}

async fn prompt_of(agent: impl FnOnce(SandboxAgent) -> SandboxAgent) -> String {
    let rig = Rig::turns([done()]);
    rig.run(&agent(rig.agent())).await;
    let prompt = rig.prompt(0);
    rig.leaves_nothing().await;
    prompt
}

fn project() -> Manifest {
    Manifest::new()
        .file("README.md", "# It\n")
        .entry("src", Dir::new().description("the program"))
        .file("src/main.rs", "fn main() {}\n")
        .file("a/b/c/d/too_deep.txt", "x")
}

#[tokio::test]
async fn the_default_prompt() {
    let agent = |agent: SandboxAgent| agent.instructions("Fix the bug.\n").manifest(project());
    check("usual", &prompt_of(agent).await);
}

#[tokio::test]
async fn a_prompt_without_instructions_of_the_agent() {
    check("no_instructions", &prompt_of(|agent| agent.capabilities([Compaction::new()])).await);
}

#[tokio::test]
async fn a_prompt_with_another_base() {
    let agent = |agent: SandboxAgent| agent.base_instructions("Be terse.").instructions("Fix the bug.");
    check("own_base", &prompt_of(agent).await);
    let agent = |agent: SandboxAgent| {
        agent
            .manifest(project())
            .base_instructions_from(|manifest| format!("You have {} entries.", manifest.entries.len()))
    };
    check("made_base", &prompt_of(agent).await);
}

#[tokio::test]
async fn an_empty_base_leaves_no_gap() {
    let prompt = prompt_of(|agent| agent.base_instructions("").instructions("Fix the bug.")).await;
    assert!(prompt.starts_with("# Agent instructions\n\nFix the bug.\n\n# Sandbox capability"), "{prompt}");
}

#[tokio::test]
async fn a_prompt_with_a_working_directory() {
    let rig = Rig::turns([done()]);
    let agent = rig.agent().base_instructions("Base.").manifest(project());
    run(&agent, "Go.").sandbox(rig.sandbox().cwd("src")).await.expect("it ends well");
    check("cwd", &rig.prompt(0));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_tree_that_is_too_large_is_cut() {
    // The root is the same on every machine, because its length decides where the tree is cut.
    let root = Manifest::new().root("/tmp/project");
    let manifest =
        (0..200).fold(root, |manifest, number| manifest.file(format!("dir/file_number_{number:04}.txt"), ""));
    check(
        "huge",
        &prompt_of(|agent| agent.base_instructions("Base.").capabilities([Compaction::new()]).manifest(manifest)).await,
    );
}

#[tokio::test]
async fn a_prompt_with_mounted_storage() {
    let host = tempfile::tempdir().expect("a directory");
    let manifest = Manifest::new()
        .base_dir(host.path())
        .entry("data", Mount::new(host.path()))
        .entry("out", Mount::new(host.path()).writable().mount_path("/mnt/out"));
    check(
        "mounts",
        &prompt_of(|agent| agent.base_instructions("Base.").capabilities([Compaction::new()]).manifest(manifest)).await,
    );
}

#[derive(Debug)]
struct Says(&'static str, Arc<AtomicUsize>);

#[async_trait]
impl Capability for Says {
    fn kind(&self) -> &str {
        self.0
    }

    async fn equip(&self, _agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let (name, count) = (self.0, self.1.clone());
        Ok(CapabilityKit::new().instructions_from(move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            async move { Ok((number < 2).then(|| format!("{name}, question {number}.\n"))) }
        }))
    }
}

#[tokio::test]
async fn instructions_of_capabilities_are_in_order_and_written_for_each_turn() {
    let rig = Rig::turns([exec("true"), exec("true"), done()]);
    let capabilities =
        Capabilities::none().with(Says("zebra", Arc::default())).with(Shell::new()).with(Says("ape", Arc::default()));
    rig.run(&rig.agent().base_instructions("Base.").capabilities(capabilities)).await;
    check("words_first", &rig.prompt(0));
    let second = rig.prompt(1);
    assert_eq!(second, rig.prompt(0).replace("question 0", "question 1"));
    let third = rig.prompt(2);
    assert!(!third.contains("question") && third.contains("# Sandbox capability instructions\n\nRun shell"), "{third}");
    rig.leaves_nothing().await;
}
