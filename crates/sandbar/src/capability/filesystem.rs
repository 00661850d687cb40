//! Files: `apply_patch` to change them, `view_image` to look at pictures.

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

use super::{Capability, Gear, Workplace};

/// What a patch looks like, for servers that hold the model to it.
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

/// How `apply_patch` is offered to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatchTransport {
    /// As a freeform tool where the model's server has such, else as a function.
    #[default]
    Auto,
    /// As a freeform tool: the input is the patch.
    Freeform,
    /// As the `apply_patch` that models of the Responses API were taught: calls are `apply_patch_call` items.
    BuiltIn,
    /// As a function with JSON arguments.
    Function,
}

type Configure = Arc<dyn Fn(&mut FilesystemTools) + Send + Sync>;
type AskAbout = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Lets an agent change files and look at pictures.
///
/// ```
/// use sandbar::prelude::*;
///
/// // Asks a person before anything in `deploy/` changes, or goes there.
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

/// The tools of [`Filesystem`], for whoever wants to change or replace one.
pub struct FilesystemTools {
    /// Looks at a picture.
    pub view_image: Arc<dyn Tool>,
    /// Changes files.
    pub apply_patch: Arc<dyn Tool>,
    /// Where they work.
    pub place: Workplace,
}

impl Filesystem {
    /// Any file of the workspace, without asking.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How `apply_patch` is offered.
    #[must_use]
    pub fn transport(mut self, transport: PatchTransport) -> Self {
        self.transport = transport;
        self
    }

    /// Who must agree to `apply_patch`. Commands can change files too, also with a patch typed into one: whoever must see
    /// every change also wants [`Shell::approval`](crate::Shell::approval), or an agent without a shell.
    #[must_use]
    pub fn approval(mut self, approval: Approval) -> Self {
        self.approval = approval;
        self
    }

    /// A person must agree to a patch that touches any file this function says yes to. It is given paths as they are from
    /// the root of the workspace. A patch that cannot be understood, or leads out of the workspace, is refused anyway, and
    /// nobody is asked about it on its account. What [`approval`](Self::approval) says holds as well.
    #[must_use]
    pub fn ask_about(mut self, ask: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        self.ask_about = Some(Arc::new(ask));
        self
    }

    /// Changes or replaces tools, whenever an agent is equipped with them.
    #[must_use]
    pub fn configure_tools(mut self, configure: impl Fn(&mut FilesystemTools) + Send + Sync + 'static) -> Self {
        self.configure = Some(Arc::new(configure));
        self
    }

    fn patch_tool(&self, place: &Workplace) -> ApplyPatch {
        let transport = match (self.transport, place.model().wire()) {
            (PatchTransport::Auto, Wire::Responses) => PatchTransport::Freeform,
            (PatchTransport::Auto, Wire::Chat) => PatchTransport::Function,
            (chosen, _) => chosen,
        };
        ApplyPatch { place: place.clone(), transport }
    }

    fn patch_approval(&self, place: &Workplace) -> Approval {
        let otherwise = self.approval.clone();
        let Some(ask) = self.ask_about.clone() else { return otherwise };
        let place = place.clone();
        Approval::when(move |call, arguments| {
            let asks = touched(&place, &arguments).iter().any(|path| ask(path));
            let otherwise = otherwise.clone();
            async move {
                asks || match otherwise {
                    Approval::Never => false,
                    Approval::Always => true,
                    Approval::When(decide) => decide((call, arguments)).await,
                }
            }
        })
    }
}

/// Every path a patch would touch, from the root of the workspace; nothing if it will be refused anyway.
fn touched(place: &Workplace, arguments: &Value) -> Vec<String> {
    let text = arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned);
    touched_from(place, place.directory().map(|cwd| cwd.as_str()), &text)
}

/// The same for a patch whose paths begin at a directory.
pub(crate) fn touched_from(place: &Workplace, cwd: Option<&str>, text: &str) -> Vec<String> {
    let Ok(patch) = Patch::parse(text) else { return Vec::new() };
    let paths = place.session().paths();
    let mut touched = Vec::new();
    for path in patch.paths() {
        let path = path.replace('\\', "/");
        let whole = match cwd {
            Some(cwd) if !path.starts_with('/') => format!("{cwd}/{path}"),
            _ => path,
        };
        let Ok(target) = paths.target(whole, Intent::Write) else { return Vec::new() };
        touched.push(paths.shown(&target.path));
    }
    touched
}

#[async_trait]
impl Capability for Filesystem {
    fn kind(&self) -> &str {
        "filesystem"
    }

    async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError> {
        let apply_patch = self.patch_tool(place).approval(self.patch_approval(place));
        let mut tools = FilesystemTools {
            view_image: Arc::new(ViewImage(place.clone())),
            apply_patch: Arc::new(apply_patch),
            place: place.clone(),
        };
        if let Some(configure) = &self.configure {
            configure(&mut tools);
        }
        Ok(Gear::new().with_tool(tools.view_image).with_tool(tools.apply_patch))
    }
}

struct ApplyPatch {
    place: Workplace,
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
        let cwd = self.place.directory().map(|cwd| cwd.as_str().to_owned());
        let options = PatchOptions { profile, cwd, ..PatchOptions::default() };
        Ok(match self.place.session().apply_patch(arguments, options).await {
            Ok(applied) => ToolOutput::Text(applied.sdk_text()),
            Err(error) => ToolOutput::Failure(error.full_message()),
        })
    }
}

/// Every shape in which patches come as JSON; nothing is required, since one of several will do.
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

struct ViewImage(Workplace);

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
        let Self(place) = self;
        let args: ViewImageArgs = decode_arguments(arguments)?;
        let wanted = ViewImageArgs { path: place.anchored(&args.path), ..args.clone() };
        Ok(match place.session().view_image(&wanted).await {
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
        f.debug_struct("FilesystemTools").field("place", &self.place).finish_non_exhaustive()
    }
}
