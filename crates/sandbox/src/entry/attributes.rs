//! The fields that every entry has: description, whether it is saved, group and permissions.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::manifest::{EntryGroup, Permissions};

/// What an entry becomes in the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A file: nothing can be below it.
    File,
    /// A directory.
    Directory,
    /// A directory that is mounted from elsewhere.
    Mount,
}

impl Shape {
    /// Whether entries can be below it.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self != Self::File
    }
}

/// Fields that every entry has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Attributes {
    /// Description for users and models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether the entry is not saved in snapshots but created again whenever the session resumes.
    pub ephemeral: bool,
    /// Group that owns the entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<EntryGroup>,
    /// Permission bits.
    pub permissions: Permissions,
    /// Whether a host path or a credential was removed on saving; a redacted entry cannot be materialised.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub redacted: bool,
}

impl Attributes {
    /// Defaults for an entry of this shape.
    #[must_use]
    pub fn of(shape: Shape) -> Self {
        Self {
            description: None,
            ephemeral: shape == Shape::Mount,
            group: None,
            permissions: Permissions { directory: shape.is_dir(), ..Permissions::default() },
            redacted: false,
        }
    }
}

/// Common fields as written, before the kind of the entry is known.
#[derive(Deserialize)]
pub(super) struct WrittenAttributes {
    description: Option<String>,
    ephemeral: Option<bool>,
    group: Option<EntryGroup>,
    permissions: Option<Permissions>,
    is_dir: Option<bool>,
    redacted: Option<bool>,
}

/// Removes the common fields from an entry; the entry's own fields remain.
pub(super) fn take(given: &mut Map<String, Value>) -> Result<WrittenAttributes, EntryError> {
    let names = ["description", "ephemeral", "group", "permissions", "is_dir", "redacted"];
    let common: Map<String, Value> =
        names.iter().filter_map(|name| given.shift_remove(*name).map(|value| ((*name).to_owned(), value))).collect();
    fields(&common)
}

impl WrittenAttributes {
    pub(super) fn complete(self, shape: Shape) -> Result<Attributes, EntryError> {
        if self.is_dir.is_some_and(|is_dir| is_dir != shape.is_dir()) {
            return Err(EntryError::new(format!("`is_dir` must be {}, as the type says", shape.is_dir())));
        }
        let defaults = Attributes::of(shape);
        let mut permissions = self.permissions.unwrap_or(defaults.permissions);
        permissions.directory |= shape.is_dir();
        let ephemeral = self.ephemeral.unwrap_or(defaults.ephemeral);
        let redacted = self.redacted.unwrap_or(false);
        Ok(Attributes { description: self.description, ephemeral, group: self.group, permissions, redacted })
    }
}

/// Why an entry could not be read, and which of its fields is wrong.
pub(crate) struct EntryError {
    pub(crate) field: Option<String>,
    pub(crate) reason: String,
}

impl EntryError {
    pub(super) fn new(reason: String) -> Self {
        Self { field: None, reason }
    }
}

/// Reads fields, or names the one that is wrong. The error does not repeat the value: it may be a credential.
pub(super) fn fields<T: DeserializeOwned>(given: &Map<String, Value>) -> Result<T, EntryError> {
    let reason = match T::deserialize(given) {
        Ok(read) => return Ok(read),
        Err(error) => error.to_string(),
    };
    if reason.starts_with("unknown field") {
        let more = "every entry also has `type`, `description`, `ephemeral`, `group`, `permissions`, `is_dir`";
        return Err(EntryError::new(format!("{reason}; {more}, and a `dir` has `children`")));
    }
    // A wrong field also fails when it is read alone, before missing fields are noticed.
    let wrong = given.iter().find(|(name, value)| {
        let alone = Map::from_iter([((*name).clone(), (*value).clone())]);
        T::deserialize(&alone).is_err_and(|error| error.to_string() == reason)
    });
    let field = wrong.filter(|_| !reason.starts_with("missing field")).map(|(name, _)| name.clone());
    Err(EntryError { field, reason: without_value(reason) })
}

/// `invalid type: string "x", expected a map` without the `"x"`.
fn without_value(reason: String) -> String {
    let Some((kind, found)) =
        reason.split_once(": ").filter(|(kind, _)| matches!(*kind, "invalid type" | "invalid value"))
    else {
        return reason;
    };
    let kind_found = found.split([' ', ',']).next().unwrap_or_default();
    let expected = found.rsplit_once(", expected ").map_or("something else", |(_, expected)| expected);
    format!("{kind}: {kind_found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Manifest;

    #[test]
    fn an_error_names_the_wrong_field_but_not_its_value() {
        let table = [
            (
                json!({"type": "git_repo", "repo": "a/b", "depth": "hunter22"}),
                "].depth: invalid type: string, expected u32",
            ),
            (json!({"type": "remote_file", "headers": "hunter22"}), "].headers: invalid type: string, expected a map"),
            (
                json!({"type": "mount", "source": "/x", "config": "hunter22"}),
                "].config: invalid type: string, expected a map",
            ),
            (json!({"type": "s3_mount", "bucket": "b", "access_key_id": 22}), "].access_key_id: a credential is text"),
            (json!({"type": "dir", "ephemeral": "hunter22"}), "].ephemeral: invalid type: string, expected a boolean"),
            (json!({"type": "dir", "permissions": true}), "].permissions: must be text"),
            (json!({"type": "file", "content": 1}), "].content: must be text"),
            (
                json!({"type": "local_dir", "symlinks": "x"}),
                "].symlinks: unknown variant `x`, expected one of `preserve`",
            ),
            (json!({"type": "local_file"}), "].src: is empty or not given"),
        ];
        for (entry, expected) in table {
            let error = Manifest::from_json(&json!({"entries": {"a": entry}}).to_string()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("hunter22"), "{error}");
        }
    }
}
