//! The entries that can fill a workspace: one type per kind, and the closed list of kinds.

mod attributes;
mod cloud;
mod content;
mod credential;
mod dir;
mod file;
mod git_repo;
mod local_dir;
mod local_file;
mod mount;
mod remote_dir;
mod remote_file;
mod url;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

pub(crate) use self::attributes::EntryError;
pub use self::{
    attributes::{Attributes, Shape},
    cloud::{AzureBlobMount, BoxMount, GcsMount, MountText, R2Mount, S3FilesMount, S3Mount},
    content::Content,
    credential::Credential,
    dir::Dir,
    file::File,
    git_repo::GitRepo,
    local_dir::{LocalDir, Symlinks},
    local_file::LocalFile,
    mount::{Mount, MountPoint, MountStrategy, Settings},
    remote_dir::RemoteDir,
    remote_file::RemoteFile,
};
use crate::manifest::{At, EntryGroup, Fault, Permissions, Reader};

/// What every kind of entry implements.
trait Kind {
    /// What the entry becomes in the workspace.
    const SHAPE: Shape;

    /// Faults of the entry, without those of its children.
    fn faults(&self, _at: &At<'_>) -> Vec<Fault> {
        Vec::new()
    }

    /// Why a valid entry cannot be used yet.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Removes host paths and plain credentials (not names of secrets). Returns whether there were any.
    fn redact(&mut self) -> bool {
        false
    }

    /// Mount point, if the entry is a mount.
    fn mount_point(&self) -> Option<MountPoint<'_>> {
        None
    }
}

/// Generates the enum, its tags and the shared methods from one list.
macro_rules! entries {
    ($($tag:literal $(| $alias:literal)* => $kind:ident: $doc:literal,)*) => {
        /// One item of a workspace. The `type` field tells the kinds apart.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Entry {
            $(#[doc = $doc] $kind($kind),)*
        }

        impl Entry {
            /// Every known `type`.
            pub const TYPES: &'static [&'static str] = &[$($tag, $($alias,)*)*];

            /// The `type` of this entry.
            #[must_use]
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$kind(_) => $tag,)* }
            }

            /// What the entry becomes in the workspace.
            #[must_use]
            pub fn shape(&self) -> Shape {
                match self { $(Self::$kind(_) => $kind::SHAPE,)* }
            }

            /// Fields that every entry has.
            #[must_use]
            pub fn attributes(&self) -> &Attributes {
                match self { $(Self::$kind(entry) => &entry.attributes,)* }
            }

            pub(crate) fn attributes_mut(&mut self) -> &mut Attributes {
                match self { $(Self::$kind(entry) => &mut entry.attributes,)* }
            }

            /// Why this valid entry cannot be used yet; `None` if it can.
            #[must_use]
            pub fn refusal(&self) -> Option<String> {
                match self { $(Self::$kind(entry) => entry.refusal(),)* }
            }

            /// Mount point, if the entry is a mount.
            #[must_use]
            pub fn mount_point(&self) -> Option<MountPoint<'_>> {
                match self { $(Self::$kind(entry) => entry.mount_point(),)* }
            }

            /// Faults of this entry, without those of its children.
            pub(crate) fn faults(&self, at: &At<'_>) -> Vec<Fault> {
                match self { $(Self::$kind(entry) => entry.faults(at),)* }
            }

            /// Removes host paths and plain credentials (not names of secrets). Returns whether there were any; if so,
            /// the entry is marked as redacted.
            pub(crate) fn redact(&mut self) -> bool {
                let removed = match self { $(Self::$kind(entry) => entry.redact(),)* };
                self.attributes_mut().redacted |= removed;
                removed
            }

            fn fields_of(kind: &str, fields: &Map<String, Value>) -> Option<Result<Self, EntryError>> {
                match kind {
                    $($tag $(| $alias)* => Some(attributes::fields::<$kind>(fields).map(Self::$kind)),)*
                    _ => None,
                }
            }
        }

        impl Serialize for Entry {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$kind(entry) => SerializedEntry::new($tag, self, entry).serialize(serializer),)* }
            }
        }

        $(
            impl From<$kind> for Entry {
                fn from(entry: $kind) -> Self {
                    Self::$kind(entry)
                }
            }

            impl $kind {
                /// The same entry with a description.
                #[must_use]
                pub fn description(mut self, description: impl Into<String>) -> Self {
                    self.attributes.description = Some(description.into());
                    self
                }

                /// The same entry, not saved in snapshots but created again whenever the session resumes.
                #[must_use]
                pub fn ephemeral(mut self) -> Self {
                    self.attributes.ephemeral = true;
                    self
                }

                /// The same entry, owned by a group.
                #[must_use]
                pub fn group(mut self, group: impl Into<EntryGroup>) -> Self {
                    self.attributes.group = Some(group.into());
                    self
                }

                /// The same entry with these permission bits, such as `0o644`.
                #[must_use]
                pub fn mode(mut self, mode: u32) -> Self {
                    self.attributes.permissions =
                        Permissions { directory: $kind::SHAPE.is_dir(), ..Permissions::new(mode) };
                    self
                }
            }
        )*
    };
}

entries! {
    "file" | "inline_file" => File: "A file whose content is in the manifest.",
    "dir" => Dir: "A directory with its children.",
    "local_file" => LocalFile: "A file of the host.",
    "local_dir" => LocalDir: "A directory of the host.",
    "git_repo" => GitRepo: "The files of a repository.",
    "remote_file" => RemoteFile: "A file that is fetched.",
    "remote_dir" => RemoteDir: "An archive that is fetched and unpacked.",
    "mount" => Mount: "A directory of the host that is mounted, not copied.",
    "s3_mount" => S3Mount: "A bucket of Amazon S3 or of a compatible service.",
    "r2_mount" => R2Mount: "A bucket of Cloudflare R2.",
    "gcs_mount" => GcsMount: "A bucket of Google Cloud Storage.",
    "azure_blob_mount" => AzureBlobMount: "A container of Azure Blob Storage.",
    "box_mount" => BoxMount: "A folder of Box.",
    "s3_files_mount" => S3FilesMount: "A file system of Amazon S3 Files.",
}

/// Serialized form of an entry: its type, the common fields, then its own fields.
#[derive(Serialize)]
struct SerializedEntry<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    attributes: &'a Attributes,
    is_dir: bool,
    #[serde(flatten)]
    fields: &'a T,
}

impl<'a, T> SerializedEntry<'a, T> {
    fn new(kind: &'static str, entry: &'a Entry, fields: &'a T) -> Self {
        Self { kind, attributes: entry.attributes(), is_dir: entry.shape().is_dir(), fields }
    }
}

impl Entry {
    /// The directory, if this is a [`Dir`].
    #[must_use]
    pub fn as_dir(&self) -> Option<&Dir> {
        if let Self::Dir(dir) = self { Some(dir) } else { None }
    }

    pub(crate) fn as_dir_mut(&mut self) -> Option<&mut Dir> {
        if let Self::Dir(dir) = self { Some(dir) } else { None }
    }

    /// Whether a host path or a credential was removed when the entry was saved. A redacted entry cannot become files
    /// before [`SavedManifest::restore`](crate::SavedManifest::restore) has put the removed values back.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        self.attributes().redacted
    }

    /// Reads an entry without the children of a directory.
    pub(crate) fn read(mut fields: Map<String, Value>) -> Result<Self, EntryError> {
        let known = Self::TYPES.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let unknown = |reason: String| EntryError::new(format!("{reason}; known are {}", known.join(", ")));
        let kind = match fields.remove("type") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(unknown("`type` must be text".to_owned())),
            None => return Err(unknown("has no `type`".to_owned())),
        };
        // Other sandboxes write absent fields as null.
        fields.retain(|_, value| !value.is_null());
        let given = attributes::take(&mut fields)?;
        let entry = Self::fields_of(&kind, &fields);
        let mut entry = entry.ok_or_else(|| unknown(format!("has the unknown type {kind:?}")))??;
        *entry.attributes_mut() = given.complete(entry.shape())?;
        Ok(entry)
    }
}

impl<'de> Deserialize<'de> for Entry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (entry, mut faults) = Reader::entry_alone(Value::deserialize(deserializer)?);
        match (entry, faults.take_first()) {
            (Some(entry), None) => Ok(entry),
            (_, Some(fault)) => Err(D::Error::custom(fault.to_string())),
            (None, None) => Err(D::Error::custom("an entry is an object with a `type`")),
        }
    }
}
