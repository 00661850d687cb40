//! A mounted directory of the host, and the parts that all mounts share.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use sandbar_machine::MachinePath;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use super::{Attributes, Kind, Shape, local_dir::src_fault};
use crate::{
    Result, SandboxError, WorkspacePath,
    manifest::{At, Fault},
};

/// How a directory is mounted. Stored as written, since most strategies belong to one kind of machine only.
#[derive(Clone, PartialEq)]
pub struct MountStrategy {
    kind: String,
    fields: Map<String, Value>,
}

/// Fields of other strategies that may hold credentials.
const AUTHORITY: &[&str] = &["driver_options", "extra_args", "config_file_path", "extra_options", "command", "args"];

impl MountStrategy {
    /// A bind mount of a directory of the host.
    #[must_use]
    pub fn local_bind() -> Self {
        Self { kind: "local_bind".to_owned(), fields: Map::new() }
    }

    /// The strategy's `type`.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// All fields besides `type`.
    #[must_use]
    pub fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Removes fields that may hold credentials, at any depth. Returns whether there were any.
    pub(super) fn redact(&mut self) -> bool {
        redact_authority(&mut self.fields)
    }
}

fn redact_authority(fields: &mut Map<String, Value>) -> bool {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    let before = fields.len();
    fields.retain(|name, value| empty(value) || !AUTHORITY.contains(&name.as_str()));
    let mut removed = fields.len() != before;
    for value in fields.values_mut() {
        if let Value::Object(inner) = value {
            removed |= redact_authority(inner);
        }
    }
    removed
}

impl fmt::Debug for MountStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl Serialize for MountStrategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let kind = ("type", Value::String(self.kind.clone()));
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.clone()));
        serializer.collect_map(std::iter::once(kind).chain(fields))
    }
}

impl<'de> Deserialize<'de> for MountStrategy {
    /// Errors never repeat the value: it may hold credentials.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Value::Object(mut fields) = Value::deserialize(deserializer)? else {
            return Err(D::Error::custom("a mount strategy is an object with a `type`"));
        };
        match fields.shift_remove("type") {
            Some(Value::String(kind)) if kind == "local_bind" && !fields.is_empty() => {
                Err(D::Error::custom("the mount strategy `local_bind` has no fields besides `type`"))
            }
            Some(Value::String(kind)) => Ok(Self { kind, fields }),
            _ => Err(D::Error::custom("a mount strategy needs a `type`, such as `local_bind`")),
        }
    }
}

/// Where and how a directory is mounted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MountPoint<'a> {
    /// Path that the manifest gives, if it is not the entry's own path.
    pub path: Option<&'a str>,
    /// Whether the mount is read-only.
    pub read_only: bool,
    /// How it is mounted.
    pub strategy: Option<&'a MountStrategy>,
}

impl MountPoint<'_> {
    /// Path in the machine: the given one (relative to the root or absolute), or else the entry's own path.
    ///
    /// # Errors
    /// `mount_config_invalid` if the path leads out, is a Windows path, or would hide the workspace.
    pub fn target(&self, root: &MachinePath, at: &WorkspacePath) -> Result<MachinePath> {
        let given = self.path.unwrap_or(at.as_str());
        let refuse = |reason: &str| SandboxError::mount_config_invalid(given, reason);
        if given.contains('\\') {
            return Err(refuse("is a Windows path; use forward slashes and no drive letter"));
        }
        let whole = if given.starts_with('/') { MachinePath::new(given) } else { root.join(given) };
        let whole = whole.map_err(|cause| refuse("is not a path in the machine").because(cause))?;
        if whole == MachinePath::root() || root.is_within(&whole) {
            return Err(refuse("would hide the workspace"));
        }
        Ok(whole)
    }
}

/// Faults of a mount path.
pub(super) fn point_faults(at: &At<'_>, path: Option<&str>) -> Vec<Fault> {
    let Some(path) = path else { return Vec::new() };
    let reason = if path.is_empty() {
        "is empty; leave it out for the entry's own path"
    } else if path.contains('\\') || path.get(1..2) == Some(":") {
        "is a Windows path; use forward slashes and no drive letter"
    } else if path.split('/').any(|part| part == "..") {
        "contains `..`"
    } else if path.contains('\0') || path.len() > 4000 {
        "contains a NUL byte or is too long"
    } else if path.split('/').all(|part| matches!(part, "" | ".")) {
        "would hide the whole machine or workspace"
    } else {
        return Vec::new();
    };
    vec![Fault::mount(&at.field("mount_path"), reason)]
}

/// A directory of the host that is mounted, not copied. Read-only by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Directory of the host, relative to the manifest's directory or absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<PathBuf>,
    /// Path of the mount, relative to the root or absolute; the entry's own path if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mount_path: Option<String>,
    /// Whether the mount is read-only.
    #[serde(default = "yes")]
    pub read_only: bool,
    /// How it is mounted.
    #[serde(default = "MountStrategy::local_bind", alias = "strategy")]
    pub mount_strategy: MountStrategy,
    /// Kind of the source, in the format of another sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Settings of the source, in the format of another sandbox.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    pub config: Settings,
}

pub(super) fn yes() -> bool {
    true
}

impl Mount {
    /// This directory of the host, read-only.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            attributes: Attributes::of(Shape::Mount),
            source: Some(source.into()),
            mount_path: None,
            read_only: true,
            mount_strategy: MountStrategy::local_bind(),
            provider: None,
            config: Settings::default(),
        }
    }

    /// The same, writable.
    #[must_use]
    pub fn writable(mut self) -> Self {
        self.read_only = false;
        self
    }

    /// The same, mounted at another path.
    #[must_use]
    pub fn mount_path(mut self, path: impl Into<String>) -> Self {
        self.mount_path = Some(path.into());
        self
    }

    /// The directory of the host.
    #[must_use]
    pub fn source(&self) -> Option<&Path> {
        self.source.as_deref()
    }
}

impl Kind for Mount {
    const SHAPE: Shape = Shape::Mount;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        let mut faults = point_faults(at, self.mount_path.as_deref());
        if self.mount_strategy.kind() == "local_bind" {
            let missing = (!self.attributes.redacted).then_some("must be given");
            let reason = self.source.as_deref().map_or(missing, src_fault);
            faults.extend(reason.map(|reason| Fault::mount(&at.field("source"), reason)));
        }
        faults
    }

    fn refusal(&self) -> Option<String> {
        let kind = self.mount_strategy.kind();
        (kind != "local_bind").then(|| format!("the mount strategy `{kind}` is not available here; `local_bind` is"))
    }

    fn redact(&mut self) -> bool {
        self.source.take().is_some() | self.mount_strategy.redact() | self.config.redact()
    }

    fn mount_point(&self) -> Option<MountPoint<'_>> {
        let strategy = Some(&self.mount_strategy);
        Some(MountPoint { path: self.mount_path.as_deref(), read_only: self.read_only, strategy })
    }
}

/// Settings of another sandbox, stored as written and never printed: some are credentials.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(Map<String, Value>);

impl Settings {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settings by name.
    #[must_use]
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(super) fn redact(&mut self) -> bool {
        !std::mem::take(&mut self.0).is_empty()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}
