//! Agent files: an agent in JSON, YAML or TOML, with instructions, model, capabilities, manifest and approval rules.
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
use crate::{Capabilities, Compaction, SandboxAgent, capability::PatchTransport};

/// Tools that an approval rule can name.
const TOOLS: [&str; 3] = ["exec_command", "write_stdin", "apply_patch"];

/// Name of an agent whose file sets none.
const DEFAULT_NAME: &str = "agent";

/// An agent in a file of JSON, YAML or TOML. Every field is optional; an unknown field is an error.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct AgentFile {
    /// Name of the agent.
    pub name: Option<String>,
    /// Instructions of the agent.
    pub instructions: Option<String>,
    /// Base instructions, which precede the instructions, instead of the default rules for work in a workspace.
    pub base_instructions: Option<String>,
    /// Name of the model.
    pub model: Option<String>,
    /// Settings of the model.
    pub settings: Option<ModelSettings>,
    /// Capabilities, instead of the default ones.
    pub capabilities: Option<Vec<CapabilityEntry>>,
    /// Manifest of the workspace, or the path of a manifest.
    pub manifest: Option<ManifestEntry>,
    /// User of the machine that the agent acts as.
    pub run_as: Option<String>,
    /// Maximum number of turns of a run.
    pub max_turns: Option<u32>,
    /// Rules that say which calls need the approval of a person.
    pub ask: Vec<AskRule>,
    /// Directory of the file.
    #[serde(skip)]
    directory: Option<PathBuf>,
}

/// A capability of an agent file: its kind, or its kind with options.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum CapabilityEntry {
    /// Kind of the capability.
    Kind(String),
    /// Table with the kind as `type`, and with options.
    Table(Map<String, Value>),
}

/// A manifest of an agent file, or its path.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum ManifestEntry {
    /// Path, relative to the directory of the agent file.
    Path(PathBuf),
    /// The manifest itself.
    Inline(Map<String, Value>),
}

impl AgentFile {
    /// Reads a file. Its extension decides the format.
    ///
    /// # Errors
    /// If the file cannot be read, or is invalid. The message names the file and the fault.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, SandboxError> {
        let shown = path.as_ref().display().to_string();
        let (format, text, directory) = Format::load(&path)?;
        let mut file = Self::read(&text, format, &shown)?;
        file.directory = Some(directory);
        Ok(file)
    }

    /// Reads an agent from text in TOML.
    ///
    /// # Errors
    /// If the text is invalid.
    pub fn from_toml(text: &str) -> Result<Self, SandboxError> {
        Self::read(text, Format::Toml, "the agent")
    }

    /// Reads an agent from text in YAML.
    ///
    /// # Errors
    /// If the text is invalid.
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
            // `extra_body` could replace the tools and the model of the requests, which a user has reviewed.
            return Err(wrong("`extra_body` cannot be set in a file".to_owned()));
        }
        if let Some(rule) = file.ask.iter().find(|rule| !TOOLS.contains(&rule.tool.as_str())) {
            let known = TOOLS.join(", ");
            return Err(wrong(format!("no rule can name the tool {:?}; there are {known}", rule.tool)));
        }
        if let Some((user, fault)) = file.run_as.as_ref().and_then(|user| Some((user, account_name_fault(user)?))) {
            return Err(wrong(format!("`run_as` cannot be {user:?}: {fault}")));
        }
        file.capabilities(&Asking::Never).map_err(|error| wrong(error.to_string()))?;
        Ok(file)
    }

    /// The agent that the file describes.
    ///
    /// # Errors
    /// If the manifest cannot be read, or is invalid.
    pub fn agent(&self, asking: Asking) -> Result<SandboxAgent, SandboxError> {
        let mut agent = SandboxAgent::new(self.name.as_deref().unwrap_or(DEFAULT_NAME));
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

    /// Manifest of the workspace, if the file has one.
    ///
    /// # Errors
    /// If the manifest cannot be read, or is invalid.
    pub fn manifest(&self) -> Result<Option<Manifest>, SandboxError> {
        let directory = self.directory.clone().unwrap_or_default();
        match &self.manifest {
            None => Ok(None),
            Some(ManifestEntry::Path(path)) => Manifest::load(directory.join(path)).map(Some),
            Some(ManifestEntry::Inline(fields)) => {
                let text = Value::Object(fields.clone()).to_string();
                let manifest = Manifest::from_json(&text)?;
                Ok(Some(match &self.directory {
                    Some(directory) => manifest.base_dir(directory),
                    None => manifest,
                }))
            }
        }
    }

    fn capabilities(&self, asking: &Asking) -> Result<Capabilities, SandboxError> {
        let defaults = ["filesystem", "shell", "compaction"].map(|kind| CapabilityEntry::Kind(kind.to_owned()));
        let entries = self.capabilities.as_deref().unwrap_or(&defaults);
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

/// The first setting of the file that [`ModelSettings`] does not have.
fn unknown_setting(written: Option<&Value>, read: Option<&ModelSettings>) -> Option<String> {
    let known = serde_json::to_value(read?).ok()?;
    let is_unknown = |(name, value): (&String, &Value)| {
        // Serialization omits empty values.
        let is_empty =
            value.is_null() || value.as_array().is_some_and(Vec::is_empty) || *value == Value::Object(Map::new());
        (!is_empty && known.get(name).is_none()).then(|| name.clone())
    };
    written?.as_object()?.iter().find_map(is_unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_fault() {
        for (text, expected) in [
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
            assert!(error.contains(expected), "{text}: {error}");
        }
        let error = AgentFile::from_toml("[manifest.entries.\"../x\"]\ntype = \"file\"\ncontent = \"\"").expect("read");
        assert!(error.agent(Asking::Never).is_err());
    }

    #[test]
    fn a_manifest_can_be_in_another_file() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("w.yaml"), "entries: {a: {type: file, content: x}}").expect("written");
        std::fs::write(directory.path().join("agent.yaml"), "manifest: w.yaml\n").expect("written");
        let file = AgentFile::load(directory.path().join("agent.yaml")).expect("read");
        assert_eq!(file.manifest().expect("read").expect("there").entries.len(), 1);
        assert!(AgentFile::load(directory.path().join("missing.yaml")).is_err());
        assert!(AgentFile::load(directory.path()).is_err());
    }
}
