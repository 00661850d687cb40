//! Manifests as text: JSON, YAML and TOML, read within bounds and written again.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeStruct};
use serde_json::Value;

use super::{Manifest, Reader, tree};
use crate::{Result, SandboxError};

/// The longest text that is read.
pub(super) const TEXT_LIMIT: usize = 64 << 20;

/// How a manifest is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl Format {
    /// What the end of a file's name says; `None` when it says nothing known.
    #[must_use]
    pub fn of_name(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            "toml" => Some(Self::Toml),
            _ => None,
        }
    }

    /// Reads a text file, as the end of its name says how it is written. Gives the format, the text, and the directory the
    /// file is in.
    ///
    /// # Errors
    /// `local_file_read_error` when it cannot be read, `limit_exceeded` when it is too long, `manifest_invalid` when it
    /// is not text or its name says nothing known.
    pub fn load(path: impl AsRef<Path>) -> Result<(Self, String, PathBuf)> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let format = Self::of_name(path).ok_or_else(|| {
            SandboxError::manifest_invalid(&shown, "must end in .json, .yaml, .yml or .toml, to say how it is written")
        })?;
        let failed =
            |cause: io::Error| SandboxError::local_file_read_error(&shown, cause.kind().to_string()).because(cause);
        let whole = std::path::absolute(path).map_err(failed)?;
        let bytes = read_bounded(&whole).map_err(failed)?;
        if bytes.len() > TEXT_LIMIT {
            return Err(SandboxError::limit_exceeded(&shown, TEXT_LIMIT as u64, bytes.len() as u64));
        }
        let text = String::from_utf8(bytes).map_err(|cause| {
            SandboxError::manifest_invalid(&shown, "is not text in UTF-8").because(cause.utf8_error())
        })?;
        Ok((format, text, whole.parent().unwrap_or(&whole).to_owned()))
    }

    /// The document in a text, within the bounds that hold for manifests.
    ///
    /// # Errors
    /// `manifest_invalid` with what is wrong and where.
    pub fn document(self, text: &str) -> Result<Value> {
        self.tree(text).map_err(|reason| SandboxError::manifest_invalid("the document", reason))
    }

    /// Reads a manifest and checks all of it, as [`Manifest::from_json`] does.
    ///
    /// # Errors
    /// The first fault, saying how many more there are: see [`Manifest::check`].
    pub fn manifest(self, text: &str) -> Result<Manifest> {
        let manifest = self.manifest_unchecked(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// Reads a manifest and keeps what is wrong with it, for [`Manifest::faults`] to tell all at once.
    ///
    /// # Errors
    /// When the text is no document of this format at all.
    pub fn manifest_unchecked(self, text: &str) -> Result<Manifest> {
        if text.len() > TEXT_LIMIT {
            return Err(SandboxError::limit_exceeded("the manifest's text", TEXT_LIMIT as u64, text.len() as u64));
        }
        let tree = self.tree(text).map_err(|reason| SandboxError::manifest_invalid("manifest", reason))?;
        Ok(Reader::manifest(tree))
    }

    fn tree(self, text: &str) -> Result<Value, String> {
        match self {
            Self::Json => {
                let mut json = serde_json::Deserializer::from_str(text);
                let value = tree::read(&mut json).map_err(|error| error.to_string())?;
                json.end().map(|()| value).map_err(|error| error.to_string())
            }
            Self::Yaml => tree::read(serde_norway::Deserializer::from_str(text)).map_err(|error| error.to_string()),
            Self::Toml => {
                let toml = toml::Deserializer::parse(text).map_err(|error| error.to_string())?;
                tree::read(toml).map_err(|error| error.to_string())
            }
        }
    }
}

impl Manifest {
    /// Reads a manifest and checks all of it. Host paths of grants are refused: they come from trusted code only.
    ///
    /// # Errors
    /// The first fault, saying how many more there are: see [`check`](Self::check).
    pub fn from_json(text: &str) -> Result<Self> {
        Format::Json.manifest(text)
    }

    /// The same from YAML.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_yaml(text: &str) -> Result<Self> {
        Format::Yaml.manifest(text)
    }

    /// The same from TOML.
    ///
    /// # Errors
    /// As [`from_json`](Self::from_json).
    pub fn from_toml(text: &str) -> Result<Self> {
        Format::Toml.manifest(text)
    }

    /// Reads a file, as its name's end says how it is written. Its relative sources begin at its directory.
    ///
    /// # Errors
    /// `local_file_read_error` when it cannot be read, `limit_exceeded` when it is too long, `manifest_invalid` when it
    /// is not text or its name says nothing known, and everything of [`from_json`](Self::from_json).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let (format, text, directory) = Format::load(path)?;
        Ok(format.manifest(&text)?.base_dir(directory))
    }

    /// The whole manifest as JSON.
    ///
    /// # Errors
    /// `manifest_invalid` when a path in it is not text.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(unwritable)
    }

    /// The whole manifest as YAML.
    ///
    /// # Errors
    /// As [`to_json`](Self::to_json).
    pub fn to_yaml(&self) -> Result<String> {
        serde_norway::to_string(self).map_err(unwritable)
    }

    /// The whole manifest as TOML, which has no word for nothing: settings of other sandboxes that are null are left out.
    ///
    /// # Errors
    /// As [`to_json`](Self::to_json).
    pub fn to_toml(&self) -> Result<String> {
        let mut tree = serde_json::to_value(self).map_err(unwritable)?;
        drop_nulls(&mut tree);
        toml::to_string(&tree).map_err(unwritable)
    }
}

/// At most one byte more than is allowed. What is no file is not waited for.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let mut bytes = Vec::new();
    file.take(TEXT_LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unwritable(error: impl std::error::Error + Send + Sync + 'static) -> SandboxError {
    SandboxError::manifest_invalid("manifest", "cannot be written").because(error)
}

fn drop_nulls(tree: &mut Value) {
    match tree {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

impl Serialize for Manifest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Manifest", 8)?;
        fields.serialize_field("version", &Self::VERSION)?;
        fields.serialize_field("root", &self.root)?;
        fields.serialize_field("entries", &self.entries)?;
        fields.serialize_field("environment", &self.environment)?;
        fields.serialize_field("users", &self.users)?;
        fields.serialize_field("groups", &self.groups)?;
        fields.serialize_field("extra_path_grants", &self.extra_path_grants)?;
        fields.serialize_field("remote_mount_command_allowlist", &self.remote_mount_command_allowlist)?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for Manifest {
    /// As strict as [`Manifest::from_json`].
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let manifest = Reader::manifest(tree::read(deserializer)?);
        manifest.check().map_err(|error| D::Error::custom(error.full_message()))?;
        Ok(manifest)
    }
}
