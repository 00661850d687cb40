//! An agent that is written down: instructions, model, capabilities, workspace, and what a person wants to be asked about.
//!
//! ```
//! use sandbar::agent_file::{AgentFile, Asking};
//!
//! let file = AgentFile::from_toml(r#"
//!     name = "reviewer"
//!     instructions = "Review the code in the workspace. Change nothing."
//!     model = "gpt-5.5"
//!     capabilities = ["shell", { type = "compaction", threshold = 100000 }]
//!
//!     [[ask]]
//!     tool = "exec_command"
//!     matches = "*git push*"
//!
//!     [manifest.entries."brief.md"]
//!     type = "file"
//!     content = "Look at error handling first.\n"
//! "#)?;
//! let agent = file.agent(Asking::ByRule)?;
//! assert_eq!(agent.name(), "reviewer");
//! # Ok::<(), sandbar::SandboxError>(())
//! ```

mod ask;

use std::path::{Path, PathBuf};

use sandbar_agent::ModelSettings;
use sandbar_machine::account_name_fault;
use sandbar_sandbox::{Format, Manifest, SandboxError};
use serde::Deserialize;
use serde_json::{Map, Value};

pub use self::ask::{AskRule, Asking};
use crate::{Capabilities, Compaction, PatchTransport, SandboxAgent};

/// What a person can be asked about.
const TOOLS: [&str; 3] = ["exec_command", "write_stdin", "apply_patch"];

/// What an agent is called that has no name.
const NAMELESS: &str = "agent";

/// An agent that is written down, as JSON, YAML or TOML. Everything is optional; what is unknown is refused.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AgentFile {
    /// What it is called.
    pub name: Option<String>,
    /// What it is told to be.
    pub instructions: Option<String>,
    /// What it is told before that, in place of the usual rules for working in a workspace.
    pub base_instructions: Option<String>,
    /// The model that thinks for it.
    pub model: Option<String>,
    /// How its model is asked.
    pub settings: Option<ModelSettings>,
    /// What it can do, in place of the usual.
    pub capabilities: Option<Vec<CapabilityEntry>>,
    /// How its workspace begins: a manifest, or the path of one.
    pub manifest: Option<ManifestEntry>,
    /// Whose identity it acts under.
    pub run_as: Option<String>,
    /// The most turns of a run.
    pub max_turns: Option<u32>,
    /// What a person wants to be asked about.
    pub ask: Vec<AskRule>,
    /// Where the file is.
    #[serde(skip)]
    directory: Option<PathBuf>,
}

/// A capability by its kind, or by its kind and more.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum CapabilityEntry {
    /// Its kind.
    Kind(String),
    /// Its kind as `type`, and what else is to be said about it.
    Table(Map<String, Value>),
}

/// A manifest, or where one is.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ManifestEntry {
    /// A path, from the directory of the agent's own file.
    Path(PathBuf),
    /// The manifest itself.
    Inline(Map<String, Value>),
}

impl AgentFile {
    /// Reads a file, as its name's end says how it is written.
    ///
    /// # Errors
    /// When it cannot be read, or something in it is wrong; the message says what and where.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SandboxError> {
        let shown = path.as_ref().display().to_string();
        let (format, text, directory) = Format::load(&path)?;
        let mut file = Self::read(&text, format, &shown)?;
        file.directory = Some(directory);
        Ok(file)
    }

    /// The same from text in TOML.
    ///
    /// # Errors
    /// When something in it is wrong.
    pub fn from_toml(text: &str) -> Result<Self, SandboxError> {
        Self::read(text, Format::Toml, "the agent")
    }

    /// The same from text in YAML.
    ///
    /// # Errors
    /// When something in it is wrong.
    pub fn from_yaml(text: &str) -> Result<Self, SandboxError> {
        Self::read(text, Format::Yaml, "the agent")
    }

    fn read(text: &str, format: Format, shown: &str) -> Result<Self, SandboxError> {
        let wrong = |reason: String| SandboxError::manifest_invalid(shown, reason);
        let document = format.document(text).map_err(|error| wrong(error.to_string()))?;
        let settings = document.get("settings").cloned();
        let file: Self = serde_json::from_value(document).map_err(|error| wrong(error.to_string()))?;
        if let Some(key) = unknown_setting(settings.as_ref(), file.settings.as_ref()) {
            return Err(wrong(format!("there is no setting {key:?}")));
        }
        if file.settings.as_ref().is_some_and(|settings| !settings.extra_body.is_empty()) {
            // It could put other tools and another model into requests than those that were shown.
            return Err(wrong("`extra_body` cannot be set in a file".to_owned()));
        }
        if let Some(rule) = file.ask.iter().find(|rule| !TOOLS.contains(&rule.tool.as_str())) {
            let known = TOOLS.join(", ");
            return Err(wrong(format!("nobody can be asked about the tool {:?}; there are {known}", rule.tool)));
        }
        if let Some((user, fault)) = file.run_as.as_ref().and_then(|user| Some((user, account_name_fault(user)?))) {
            return Err(wrong(format!("`run_as` cannot be {user:?}: {fault}")));
        }
        file.capabilities(&Asking::Never).map_err(|error| wrong(error.to_string()))?;
        Ok(file)
    }

    /// The agent that is written down.
    ///
    /// # Errors
    /// When its manifest cannot be read, or is wrong.
    pub fn agent(&self, asking: Asking) -> Result<SandboxAgent, SandboxError> {
        let mut agent = SandboxAgent::new(self.name.as_deref().unwrap_or(NAMELESS));
        agent = agent.capabilities(self.capabilities(&asking)?);
        if let Some(text) = &self.instructions {
            agent = agent.instructions(text);
        }
        if let Some(text) = &self.base_instructions {
            agent = agent.base_instructions(text);
        }
        if let Some(model) = &self.model {
            agent = agent.model(model.as_str());
        }
        if let Some(settings) = &self.settings {
            agent = agent.settings(settings.clone());
        }
        if let Some(user) = &self.run_as {
            agent = agent.run_as(user);
        }
        if let Some(manifest) = self.manifest()? {
            agent = agent.manifest(manifest);
        }
        Ok(agent)
    }

    /// How its workspace begins, if it says so.
    ///
    /// # Errors
    /// When the manifest cannot be read, or is wrong.
    pub fn manifest(&self) -> Result<Option<Manifest>, SandboxError> {
        let directory = self.directory.clone().unwrap_or_default();
        match &self.manifest {
            None => Ok(None),
            Some(ManifestEntry::Path(path)) => Manifest::load(directory.join(path)).map(Some),
            Some(ManifestEntry::Inline(fields)) => {
                let text = Value::Object(fields.clone()).to_string();
                match &self.directory {
                    Some(directory) => Manifest::from_file(&text, Format::Json, directory).map(Some),
                    None => Manifest::from_json(&text).map(Some),
                }
            }
        }
    }

    fn capabilities(&self, asking: &Asking) -> Result<Capabilities, SandboxError> {
        let usual = ["filesystem", "shell", "compaction"].map(|kind| CapabilityEntry::Kind(kind.to_owned()));
        let entries = self.capabilities.as_deref().unwrap_or(&usual);
        let mut list = Capabilities::none();
        for entry in entries {
            list = self.capability(list, entry, asking)?;
        }
        list.check()?;
        Ok(list)
    }

    fn capability(
        &self,
        list: Capabilities,
        entry: &CapabilityEntry,
        asking: &Asking,
    ) -> Result<Capabilities, SandboxError> {
        let mut fields = match entry {
            CapabilityEntry::Kind(kind) => Map::from_iter([("type".to_owned(), Value::from(kind.as_str()))]),
            CapabilityEntry::Table(fields) => fields.clone(),
        };
        let kind = fields.remove("type").and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default();
        let wrong = |reason: String| SandboxError::sandbox_config_invalid(format!("the capability {kind:?}"), reason);
        let list = match kind.as_str() {
            "shell" => list.with(asking.shell(&self.ask)),
            "filesystem" => {
                let transport = match fields.remove("transport").as_ref().map(|value| value.as_str()) {
                    None => PatchTransport::Auto,
                    Some(Some("auto")) => PatchTransport::Auto,
                    Some(Some("freeform")) => PatchTransport::Freeform,
                    Some(Some("built_in")) => PatchTransport::BuiltIn,
                    Some(Some("function")) => PatchTransport::Function,
                    Some(_) => return Err(wrong("`transport` is auto, freeform, built_in or function".to_owned())),
                };
                list.with(asking.filesystem(&self.ask).transport(transport))
            }
            "compaction" => match fields.remove("threshold") {
                None => list.with(Compaction::new()),
                Some(threshold) => match threshold.as_u64() {
                    Some(threshold) => list.with(Compaction::new().threshold(threshold)),
                    None => return Err(wrong("`threshold` is a number of tokens".to_owned())),
                },
            },
            "" => return Err(wrong("has no `type`".to_owned())),
            _ => return Err(wrong("is not known; known are filesystem, shell and compaction".to_owned())),
        };
        match fields.keys().next() {
            Some(key) => Err(wrong(format!("has no {key:?}"))),
            None => Ok(list),
        }
    }
}

/// The first setting that was written down and not understood.
fn unknown_setting(written: Option<&Value>, read: Option<&ModelSettings>) -> Option<String> {
    let understood = serde_json::to_value(read?).ok()?;
    let is_unknown = |(name, value): (&String, &Value)| {
        // What says nothing is not kept.
        let is_nothing =
            value.is_null() || value.as_array().is_some_and(Vec::is_empty) || *value == Value::Object(Map::new());
        (!is_nothing && understood.get(name).is_none()).then(|| name.clone())
    };
    written?.as_object()?.iter().find_map(is_unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("nmae = \"x\"", "unknown field `nmae`"),
            (
                "capabilities = [\"shel\"]",
                "the capability \"shel\": is not known; known are filesystem, shell and comp",
            ),
            ("capabilities = [\"shell\", \"shell\"]", "given twice"),
            ("capabilities = [{ threshold = 1 }]", "has no `type`"),
            ("capabilities = [{ type = \"shell\", x = 1 }]", "has no \"x\""),
            ("capabilities = [{ type = \"filesystem\", transport = \"pigeon\" }]", "freeform"),
            ("capabilities = 3", "expected a sequence"),
            ("max_turns = -1", "invalid value"),
            ("[[ask]]\nmatches = \"x\"", "missing field `tool`"),
            ("[[ask]]\ntool = \"exec_comand\"", "the tool \"exec_comand\"; there are exec_command,"),
            ("[settings.extra_body]\nmodel = \"other\"", "`extra_body` cannot be set"),
            ("[settings]\ntemprature = 1", "there is no setting \"temprature\""),
            ("instructions = ", "the document"),
        ] {
            let error = AgentFile::from_toml(text).expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let error = AgentFile::from_toml("[manifest.entries.\"../x\"]\ntype = \"file\"\ncontent = \"\"").expect("read");
        assert!(error.agent(Asking::Never).is_err());
    }

    #[test]
    fn a_manifest_may_be_elsewhere() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("w.yaml"), "entries: {a: {type: file, content: x}}").expect("written");
        std::fs::write(directory.path().join("agent.yaml"), "manifest: w.yaml\n").expect("written");
        let file = AgentFile::load(directory.path().join("agent.yaml")).expect("read");
        assert_eq!(file.manifest().expect("read").expect("there").entries.len(), 1);
        assert!(AgentFile::load(directory.path().join("missing.yaml")).is_err());
        assert!(AgentFile::load(directory.path()).is_err());
    }
}
