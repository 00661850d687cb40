//! Capabilities: compatible lists, custom capabilities, and tools that a caller changes.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use sandbar::{
    agent::{NoArguments, ToolKind, ToolSpec},
    prelude::*,
};
use serde_json::json;

use crate::rig::{Rig, call, done, eventually, exec, exited, news};

/// Counts the calls of a capability.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) shaped: AtomicUsize,
    pub(crate) equipped: AtomicUsize,
    /// Listings of the workspace, one per call of the stop hook.
    pub(crate) stopped: Mutex<Vec<String>>,
    pub(crate) fails: bool,
}

/// A capability whose counts a test shares.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch(pub(crate) Arc<Counted>);

impl Watch {
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let stopped = self.0.stopped.lock().len();
        (self.0.shaped.load(Ordering::SeqCst), self.0.equipped.load(Ordering::SeqCst), stopped)
    }
}

#[async_trait]
impl Capability for Watch {
    fn kind(&self) -> &str {
        "watch"
    }

    fn requires(&self) -> Vec<&str> {
        vec!["shell"]
    }

    fn shape(&self, manifest: &mut Manifest) -> Result<(), SandboxError> {
        self.0.shaped.fetch_add(1, Ordering::SeqCst);
        manifest.ensure("watched.txt", File::new("seen\n"));
        Ok(())
    }

    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        self.0.equipped.fetch_add(1, Ordering::SeqCst);
        agent_session.session().read("watched.txt").await?;
        Ok(CapabilityKit::new().instructions("You are watched.").tool(look()))
    }

    async fn before_stop(&self, session: &SandboxSession) -> Result<(), SandboxError> {
        let found = session.exec(Exec::shell("ls")).await?.stdout_text();
        self.0.stopped.lock().push(found);
        if self.0.fails { Err(SandboxError::sandbox_config_invalid("the watch", "has failed")) } else { Ok(()) }
    }
}

fn look() -> FunctionTool {
    FunctionTool::new("look", "Looks.", |_call: ToolContext, _arguments: NoArguments| async { "nothing to see" })
}

#[tokio::test]
async fn incompatible_capabilities_are_refused_before_a_machine_is_created() {
    let table = [
        (Capabilities::default().with(Shell::new()), "the capability \"shell\": is given twice"),
        (
            Capabilities::none().with(Watch::default()).with(Compaction::new()),
            "the capability \"watch\": requires capabilities that are not there: shell",
        ),
    ];
    for (capabilities, wrong) in table {
        let rig = Rig::turns([done()]);
        let message = rig.failure(&rig.agent().capabilities(capabilities), rig.sandbox()).await;
        assert!(message.contains(wrong), "{message}");
        assert!(rig.bodies().is_empty());
        rig.leaves_nothing().await;
    }
}

#[tokio::test]
async fn a_list_replaces_the_default_capabilities_and_a_single_one_is_added() {
    let rig = Rig::turns([done()]);
    rig.run(&rig.agent().capabilities([Shell::new()])).await;
    assert_eq!(rig.tool_names(0), ["exec_command", "write_stdin"]);
    rig.run(&rig.agent().capabilities(Capabilities::none())).await;
    assert_eq!(rig.tool_names(1), [""; 0]);
    rig.run(&rig.agent().capability(Watch::default())).await;
    assert_eq!(rig.tool_names(2), ["view_image", "apply_patch", "exec_command", "write_stdin", "look"]);
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_custom_capability_shapes_and_equips_and_its_stop_hook_runs_once() {
    let watch = Watch::default();
    let rig = Rig::turns([exec("cat watched.txt; touch made.txt"), call("look", json!({})), done()]);
    rig.run(&rig.agent().capability(watch.clone())).await;
    let outputs = rig.texts();
    assert_eq!((news(&outputs[0]), &*outputs[1]), (&*exited(0, "seen\n"), "nothing to see"));
    assert!(rig.prompt(0).contains("You are watched."));
    assert_eq!(watch.counts(), (1, 1, 1));
    assert_eq!(watch.0.stopped.lock()[0], "made.txt\nwatched.txt\n");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn on_a_callers_session_the_stop_hook_runs_once_when_the_caller_stops_it() {
    let watch = Watch::default();
    let rig = Rig::turns([done()]);
    let session = rig.session(Manifest::new()).await;
    let agent = rig.agent().capability(watch.clone());
    for _ in 0..3 {
        run(&agent, "Go.").sandbox(&session).await.expect("it ends well");
    }
    assert_eq!(watch.counts(), (3, 3, 0));
    session.delete().await.expect("it ends");
    assert_eq!(watch.counts(), (3, 3, 1));
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_failing_stop_hook_changes_neither_the_result_nor_the_clean_up() {
    let watch = Watch(Arc::new(Counted { fails: true, ..Counted::default() }));
    let rig = Rig::turns([done()]);
    let result = rig.run(&rig.agent().capability(watch.clone())).await;
    assert_eq!(result.final_output(), "Done.");
    assert_eq!(watch.counts().2, 1);
    rig.leaves_nothing().await;
}

/// A capability that fails or panics in one of its methods.
#[derive(Debug)]
struct Broken(&'static str);

#[async_trait]
impl Capability for Broken {
    fn kind(&self) -> &str {
        "broken"
    }

    async fn equip(&self, _agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        assert!(self.0 != "equip", "broken on purpose");
        match self.0 {
            "refuse" => Err(SandboxError::sandbox_config_invalid("the toolbox", "is empty")),
            _ => Ok(CapabilityKit::new()),
        }
    }

    async fn before_stop(&self, _session: &SandboxSession) -> Result<(), SandboxError> {
        assert!(self.0 != "before_stop", "broken on purpose");
        Ok(())
    }
}

#[tokio::test]
async fn a_capability_that_panics_leaves_no_machine() {
    let rig = Rig::turns([done()]);
    let agent = rig.agent().capability(Broken("equip"));
    let sandbox = rig.sandbox();
    let ended = tokio::spawn(async move { run(&agent, "Go.").sandbox(sandbox).await.map(drop) }).await;
    assert!(ended.is_err_and(|error| error.is_panic()));
    eventually("the machine is gone", || rig.machines() == 0).await;
    let result = rig.run(&rig.agent().capability(Broken("before_stop"))).await;
    assert_eq!(result.final_output(), "Done.");
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn a_capability_that_cannot_equip_fails_the_run_with_its_message() {
    let rig = Rig::turns([done()]);
    let message = rig.failure(&rig.agent().capability(Broken("refuse")), rig.sandbox()).await;
    assert!(message.contains("the toolbox: is empty"), "{message}");
    assert!(rig.bodies().is_empty());
    rig.leaves_nothing().await;
}

/// A replacement of `exec_command`.
struct Mute;

#[async_trait]
impl Tool for Mute {
    fn spec(&self) -> ToolSpec {
        let kind = ToolKind::Function { parameters: json!({ "type": "object", "properties": {} }), strict: false };
        ToolSpec { name: "exec_command".to_owned(), description: "Does nothing.".to_owned(), kind }
    }

    async fn call(&self, _call: &ToolContext, _arguments: &str) -> Result<ToolOutput, BoxError> {
        Ok(ToolOutput::Text("no".to_owned()))
    }
}

#[tokio::test]
async fn tools_of_capabilities_can_be_replaced_removed_and_asked_about() {
    let rig = Rig::turns([exec("echo hello"), done()]);
    let replaced = Shell::new().configure_tools(|tools| {
        tools.exec_command = Arc::new(Mute);
        tools.write_stdin = None;
    });
    rig.run(&rig.agent().capabilities([replaced])).await;
    assert_eq!(rig.tool_names(0), ["exec_command"]);
    assert_eq!(rig.texts(), ["no"]);
    assert!(!rig.prompt(0).contains("write_stdin"));

    let asked = Filesystem::new().configure_tools(|tools| {
        let shared: Arc<dyn Tool> = tools.apply_patch.clone();
        tools.apply_patch = Arc::new(shared.needs_approval());
    });
    let patch =
        sandbar::mock::item::custom_tool_call("apply_patch", "*** Begin Patch\n*** Add File: a\n+a\n*** End Patch");
    let other = Rig::turns([patch, done()]);
    let paused = run(other.agent().capabilities([asked]), "Go.").sandbox(other.sandbox()).await.expect("it pauses");
    assert_eq!(*paused.stop(), Stop::Interrupted);
    drop(paused);
    other.leaves_nothing().await;
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn two_tools_with_one_name_are_refused_before_the_model_is_asked() {
    let rig = Rig::turns([done()]);
    let message = rig.failure(&rig.agent().tool(Mute), rig.sandbox()).await;
    assert!(message.contains("exec_command"), "{message}");
    assert!(rig.bodies().is_empty());
    rig.leaves_nothing().await;
}

#[tokio::test]
async fn tools_of_the_agent_precede_those_of_capabilities() {
    let rig = Rig::turns([call("look", json!({})), exec("echo x"), done()]);
    rig.run(&rig.agent().tool(look()).capabilities([Shell::new()])).await;
    assert_eq!(rig.tool_names(0), ["look", "exec_command", "write_stdin"]);
    assert_eq!(rig.texts()[0], "nothing to see");
    rig.leaves_nothing().await;
}
