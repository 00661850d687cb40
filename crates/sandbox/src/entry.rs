//! What a workspace can be filled with: one type per kind of entry, and the closed list of them.

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

pub(crate) use self::attributes::Complaint;
pub use self::{
    attributes::{Attributes, Shape},
    cloud::{AzureBlobMount, BoxMount, GcsMount, R2Mount, S3FilesMount, S3Mount, Said},
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

/// What the code around an entry asks of every kind.
trait Kind {
    /// What it becomes in the workspace.
    const SHAPE: Shape;

    /// What is wrong with it, apart from what is below it.
    fn faults(&self, _at: &At<'_>) -> Vec<Fault> {
        Vec::new()
    }

    /// Why it cannot be used yet, although it is a valid entry.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Removes what names places of the host, and what grants access and is not merely named; whether there was any.
    fn forget(&mut self) -> bool {
        false
    }

    /// Where it is mounted, if it is a mount.
    fn mount_point(&self) -> Option<MountPoint<'_>> {
        None
    }
}

/// Writes the enum, its tags, and what all kinds share, from one list.
macro_rules! entries {
    ($($tag:literal $(| $alias:literal)* => $kind:ident: $doc:literal,)*) => {
        /// One thing in a workspace, told apart by its `type`.
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

            /// What it becomes in the workspace.
            #[must_use]
            pub fn shape(&self) -> Shape {
                match self { $(Self::$kind(_) => $kind::SHAPE,)* }
            }

            /// What every entry can say about itself.
            #[must_use]
            pub fn attributes(&self) -> &Attributes {
                match self { $(Self::$kind(entry) => &entry.attributes,)* }
            }

            pub(crate) fn attributes_mut(&mut self) -> &mut Attributes {
                match self { $(Self::$kind(entry) => &mut entry.attributes,)* }
            }

            /// Why it cannot be used yet, although it is a valid entry; `None` when it can.
            #[must_use]
            pub fn refusal(&self) -> Option<String> {
                match self { $(Self::$kind(entry) => entry.refusal(),)* }
            }

            /// Where it is mounted, if it is a mount.
            #[must_use]
            pub fn mount_point(&self) -> Option<MountPoint<'_>> {
                match self { $(Self::$kind(entry) => entry.mount_point(),)* }
            }

            /// What is wrong with this entry, apart from what is below it.
            pub(crate) fn faults(&self, at: &At<'_>) -> Vec<Fault> {
                match self { $(Self::$kind(entry) => entry.faults(at),)* }
            }

            /// Removes what names places of the host, and what grants access and is not merely named; whether there was
            /// any. An entry that lost something is redacted from then on.
            pub(crate) fn forget(&mut self) -> bool {
                let gone = match self { $(Self::$kind(entry) => entry.forget(),)* };
                self.attributes_mut().redacted |= gone;
                gone
            }

            fn fields_of(kind: &str, fields: &Map<String, Value>) -> Option<Result<Self, Complaint>> {
                match kind {
                    $($tag $(| $alias)* => Some(attributes::fields::<$kind>(fields).map(Self::$kind)),)*
                    _ => None,
                }
            }
        }

        impl Serialize for Entry {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $(Self::$kind(entry) => Written::new($tag, self, entry).serialize(serializer),)* }
            }
        }

        $(
            impl From<$kind> for Entry {
                fn from(entry: $kind) -> Self {
                    Self::$kind(entry)
                }
            }

            impl $kind {
                /// The same entry with a word about what it is.
                #[must_use]
                pub fn description(mut self, description: impl Into<String>) -> Self {
                    self.attributes.description = Some(description.into());
                    self
                }

                /// The same entry, left out of what is saved and made anew whenever the session resumes.
                #[must_use]
                pub fn ephemeral(mut self) -> Self {
                    self.attributes.ephemeral = true;
                    self
                }

                /// The same entry, belonging to a group.
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
    "dir" => Dir: "A directory and what is in it.",
    "local_file" => LocalFile: "A file of the host.",
    "local_dir" => LocalDir: "A directory of the host.",
    "git_repo" => GitRepo: "The files of a repository.",
    "remote_file" => RemoteFile: "A file that is fetched.",
    "remote_dir" => RemoteDir: "An archive that is fetched and unpacked.",
    "mount" => Mount: "A directory of the host that is shown in place.",
    "s3_mount" => S3Mount: "A bucket of Amazon S3 or of anything that speaks its protocol.",
    "r2_mount" => R2Mount: "A bucket of Cloudflare R2.",
    "gcs_mount" => GcsMount: "A bucket of Google Cloud Storage.",
    "azure_blob_mount" => AzureBlobMount: "A container of Azure Blob Storage.",
    "box_mount" => BoxMount: "A folder of Box.",
    "s3_files_mount" => S3FilesMount: "A file system of Amazon S3 Files.",
}

/// How an entry is written: its type, what all have in common, then its own fields.
#[derive(Serialize)]
struct Written<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(flatten)]
    attributes: &'a Attributes,
    is_dir: bool,
    #[serde(flatten)]
    fields: &'a T,
}

impl<'a, T> Written<'a, T> {
    fn new(kind: &'static str, entry: &'a Entry, fields: &'a T) -> Self {
        Self { kind, attributes: entry.attributes(), is_dir: entry.shape().is_dir(), fields }
    }
}

impl Entry {
    /// What is inside, if this is a [`Dir`].
    #[must_use]
    pub fn as_dir(&self) -> Option<&Dir> {
        if let Self::Dir(dir) = self { Some(dir) } else { None }
    }

    pub(crate) fn as_dir_mut(&mut self) -> Option<&mut Dir> {
        if let Self::Dir(dir) = self { Some(dir) } else { None }
    }

    /// Whether something it needs was taken out when it was saved: where it is on the host, or what opens its address.
    /// It cannot become files before [`SavedManifest::restore`](crate::SavedManifest::restore) has put that back.
    #[must_use]
    pub fn is_redacted(&self) -> bool {
        self.attributes().redacted
    }

    /// Reads everything but the children of a directory, or says why not.
    pub(crate) fn read(mut fields: Map<String, Value>) -> Result<Self, Complaint> {
        let known = Self::TYPES.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
        let unknown = |reason: String| Complaint::new(format!("{reason}; known are {}", known.join(", ")));
        let kind = match fields.remove("type") {
            Some(Value::String(kind)) => kind,
            Some(_) => return Err(unknown("`type` must be text".to_owned())),
            None => return Err(unknown("has no `type`".to_owned())),
        };
        // Other sandboxes write out what is not there.
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
