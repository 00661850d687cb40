//! The capability to work with files: `apply_patch` changes files, `view_image` shows images.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use sandbar_agent::{
    Approval, BoxError, Grammar, Part, Tool, ToolContext, ToolExt as _, ToolKind, ToolOutput, ToolSpec, Wire,
    decode_arguments,
};
use sandbar_sandbox::{
    Intent, SandboxError,
    image::{ImageOutcome, ViewImageArgs},
    patch::{Patch, PatchOptions, Profile},
};
use serde_json::{Map, Value, json};

use super::{AgentSession, Capability, CapabilityKit};

/// Grammar of a patch, for servers that constrain the output of the model.
const GRAMMAR: &str = r#"start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

hunk: add | delete | update
add: "*** Add File: " name LF added+
delete: "*** Delete File: " name LF
update: "*** Update File: " name LF move? change

move: "*** Move to: " name LF
added: "+" /(.+)/? LF -> line
name: /(.+)/

change: (place | line)+ eof?
place: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.+)/? LF
eof: "*** End of File" LF

%import common.LF
"#;

const ABOUT_FREEFORM: &str = "\
Changes files: adds, updates, moves and deletes them, all of it or nothing. The input is the patch itself, from \
`*** Begin Patch` to `*** End Patch`, and never wrapped in JSON. Paths are relative to the workspace.";

const ABOUT_JSON: &str = "\
Changes files: adds, updates, moves and deletes them, all of it or nothing. Give the whole patch, from `*** Begin Patch` to \
`*** End Patch`, as `patch`. In it, `*** Add File: PATH` is followed by lines that begin with `+`; `*** Delete File: PATH` \
stands alone; `*** Update File: PATH`, perhaps with `*** Move to: PATH` after it, is followed by places: `@@` and a line to \
find the place by, then lines that begin with a space (kept), `-` (removed) or `+` (added). Paths are relative to the \
workspace.";

/// Form in which `apply_patch` is offered to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchTransport {
    /// A freeform tool if the model's server supports it, otherwise a function.
    #[default]
    Auto,
    /// A freeform tool: the input is the patch.
    Freeform,
    /// The built-in `apply_patch` tool of the Responses API: calls are `apply_patch_call` items.
    BuiltIn,
    /// A function with JSON arguments.
    Function,
}

type Configure = Arc<dyn Fn(&mut FilesystemTools) + Send + Sync>;
type AskAbout = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Lets an agent change files and look at images.
///
/// ```
/// use sandbar::prelude::*;
///
/// // Asks a person about every patch that touches a file in `deploy/`.
/// let careful = Filesystem::new().ask_about(|path| path.starts_with("deploy/"));
/// let agent = SandboxAgent::new("writer").capabilities([careful]);
/// ```
#[derive(Clone, Default)]
pub struct Filesystem {
    transport: PatchTransport,
    approval: Approval,
    ask_about: Option<AskAbout>,
    configure: Option<Configure>,
}

/// The tools of [`Filesystem`], which [`Filesystem::configure_tools`] can change or replace.
pub struct FilesystemTools {
    /// Tool that shows an image.
    pub view_image: Arc<dyn Tool>,
    /// Tool that changes files.
    pub apply_patch: Arc<dyn Tool>,
    /// Session that the tools work in.
    pub agent_session: AgentSession,
}

impl Filesystem {
    /// A capability that changes every file of the workspace without approval.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the form in which `apply_patch` is offered to the model.
    #[must_use]
    pub fn transport(mut self, transport: PatchTransport) -> Self {
        self.transport = transport;
        self
    }

    /// Sets which calls of `apply_patch` need approval. A command can change files too, also with a patch in its command
    /// line: to approve every change, also set [`Shell::approval`](crate::Shell::approval), or use an agent without a shell.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// Requires approval of every patch that touches a file for which `ask` returns `true`. `ask` gets paths relative to the
    /// root of the workspace. A patch that is invalid, or that leads out of the workspace, is always refused; `ask` is not
    /// called for it. The setting of [`approval`](Self::approval) applies in addition.
    #[must_use]
    pub fn ask_about(mut self, ask: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.ask_about = Some(Arc::new(ask));
        self
    }

    /// Sets a function that changes or replaces the tools, each time an agent is equipped.
    #[must_use]
    pub fn configure_tools(mut self, configure: impl Fn(&mut FilesystemTools) + Send + Sync + 'static) -> Self {
        self.configure = Some(Arc::new(configure));
        self
    }

    fn patch_tool(&self, agent_session: &AgentSession) -> ApplyPatch {
        let transport = match (self.transport, agent_session.model().wire()) {
            (PatchTransport::Auto, Wire::Responses) => PatchTransport::Freeform,
            (PatchTransport::Auto, Wire::Chat) => PatchTransport::Function,
            (chosen, _) => chosen,
        };
        ApplyPatch { agent_session: agent_session.clone(), transport }
    }

    fn patch_approval(&self, agent_session: &AgentSession) -> Approval {
        let approval = self.approval.clone();
        let Some(ask) = self.ask_about.clone() else { return approval };
        let agent_session = agent_session.clone();
        Approval::when(move |call, arguments| {
            let must_ask = touched(&agent_session, &arguments).iter().any(|path| ask(path));
            let approval = approval.clone();
            async move {
                must_ask
                    || match approval {
                        Approval::Never => false,
                        Approval::Always => true,
                        Approval::When(decide) => decide((call, arguments)).await,
                    }
            }
        })
    }
}

/// Every path that a patch would touch, relative to the root of the workspace; empty if the patch will be refused.
fn touched(agent_session: &AgentSession, arguments: &Value) -> Vec<String> {
    let text = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    touched_from(agent_session, agent_session.directory().map(|cwd| cwd.as_str()), &text)
}

/// Every path that a patch would touch, if the relative paths of the patch begin at `cwd`; empty if the patch will be
/// refused.
pub(crate) fn touched_from(agent_session: &AgentSession, cwd: Option<&str>, text: &str) -> Vec<String> {
    let Ok(patch) = Patch::parse(text) else { return Vec::new() };
    let paths = agent_session.session().paths();
    let mut touched = Vec::new();
    for path in patch.paths() {
        let path = path.replace('\\', "/");
        let resolved = match cwd {
            Some(cwd) if !path.starts_with('/') => format!("{cwd}/{path}"),
            _ => path,
        };
        let Ok(target) = paths.target(resolved, Intent::Write) else { return Vec::new() };
        touched.push(paths.shown(&target.path));
    }
    touched
}

#[async_trait]
impl Capability for Filesystem {
    fn kind(&self) -> &str {
        "filesystem"
    }

    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let apply_patch = self.patch_tool(agent_session).approval(self.patch_approval(agent_session));
        let mut tools = FilesystemTools {
            view_image: Arc::new(ViewImage(agent_session.clone())),
            apply_patch: Arc::new(apply_patch),
            agent_session: agent_session.clone(),
        };
        if let Some(configure) = &self.configure {
            configure(&mut tools);
        }
        Ok(CapabilityKit::new().with_tool(tools.view_image).with_tool(tools.apply_patch))
    }
}

struct ApplyPatch {
    agent_session: AgentSession,
    transport: PatchTransport,
}

#[async_trait]
impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        let (description, kind) = match self.transport {
            PatchTransport::Auto | PatchTransport::Freeform => {
                (ABOUT_FREEFORM, ToolKind::Custom { grammar: Some(Grammar::lark(GRAMMAR)) })
            }
            PatchTransport::BuiltIn => {
                let fields = Map::from_iter([("type".to_owned(), json!("apply_patch"))]);
                ("", ToolKind::BuiltIn(fields))
            }
            PatchTransport::Function => (ABOUT_JSON, ToolKind::Function { parameters: json_form(), strict: false }),
        };
        ToolSpec { name: "apply_patch".to_owned(), description: description.to_owned(), kind }
    }

    async fn call(&self, _call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        let profile = if self.transport == PatchTransport::BuiltIn { Profile::Sdk } else { Profile::Codex };
        let cwd = self.agent_session.directory().map(|cwd| cwd.as_str().to_owned());
        let options = PatchOptions { profile, cwd, ..PatchOptions::default() };
        Ok(match self.agent_session.session().apply_patch(arguments, options).await {
            Ok(applied) => ToolOutput::Text(applied.sdk_text()),
            Err(error) => ToolOutput::Failure(error.full_message()),
        })
    }
}

/// Schema of all JSON forms of a patch. No property is required, because each form has different ones.
fn json_form() -> Value {
    let operation = json!({
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": {"type": "string"},
            "diff": {"type": "string"},
            "moveTo": {"type": "string"},
        },
        "additionalProperties": true,
    });
    json!({
        "type": "object",
        "properties": {
            "patch": {"type": "string"},
            "operation": operation,
            "operations": {"type": "array", "items": operation},
            "command": {"type": "array", "items": {"type": "string"}},
            "type": {"type": "string"},
            "path": {"type": "string"},
            "diff": {"type": "string"},
            "moveTo": {"type": "string"},
        },
        "additionalProperties": true,
    })
}

struct ViewImage(AgentSession);

#[async_trait]
impl Tool for ViewImage {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "view_image".to_owned(),
            description: "Shows a picture of the workspace.".to_owned(),
            kind: ToolKind::Function { parameters: ViewImageArgs::schema(), strict: false },
        }
    }

    async fn call(&self, _call: &ToolContext, arguments: &str) -> Result<ToolOutput, BoxError> {
        let Self(agent_session) = self;
        let args: ViewImageArgs = decode_arguments(arguments)?;
        let resolved = ViewImageArgs { path: agent_session.anchored(&args.path), ..args.clone() };
        Ok(match agent_session.session().view_image(&resolved).await {
            Ok(ImageOutcome::Image(image)) => ToolOutput::Parts(vec![Part::image_url(image.data_url())]),
            Ok(ImageOutcome::Refused(mut refusal)) => {
                refusal.path = args.path;
                ToolOutput::Failure(refusal.to_string())
            }
            Err(error) => ToolOutput::Failure(error.full_message()),
        })
    }
}

impl fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filesystem")
            .field("transport", &self.transport)
            .field("approval", &self.approval)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FilesystemTools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesystemTools").field("agent_session", &self.agent_session).finish_non_exhaustive()
    }
}
