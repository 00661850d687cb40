//! From a tree of values to a manifest: every fault is kept with its place, and what is sound is read all the same.

use sandbar_machine::MachinePath;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    At, Entries, Fault, Manifest, PathGrant, environment,
    fault::Faults,
    origin::Origin,
    spelling::{snake, snake_keys},
};
use crate::{Entry, entry::EntryError};

/// How many directories may be inside each other by `children`; every one is two levels of the document.
pub(super) const NESTING: usize = 60;
/// How many entries a manifest may have.
pub(super) const ENTRIES: usize = 1_000_000;

const FIELDS: &[&str] = &[
    "version",
    "root",
    "entries",
    "environment",
    "users",
    "groups",
    "extra_path_grants",
    "remote_mount_command_allowlist",
];

/// Reads, and keeps what is wrong.
#[derive(Default)]
pub(crate) struct Reader {
    faults: Faults,
    entries: usize,
}

impl Reader {
    /// The manifest, with what is wrong inside it.
    pub(super) fn manifest(tree: Value) -> Manifest {
        let mut reader = Self::default();
        let mut manifest = reader.read(tree);
        manifest.faults = reader.faults;
        manifest.origin = Origin::Read;
        manifest
    }

    /// One entry, and what is wrong with it.
    pub(crate) fn entry_alone(tree: Value) -> (Option<Entry>, Faults) {
        let mut reader = Self::default();
        let entry = reader.entry(tree, &At::top("entry"));
        (entry, reader.faults)
    }

    fn refuse(&mut self, at: &At<'_>, reason: impl Into<String>) {
        self.faults.push(Fault::invalid(at, reason));
    }

    fn read(&mut self, tree: Value) -> Manifest {
        let top = At::top("manifest");
        let mut manifest = Manifest::new();
        let Some(mut fields) = self.object(tree, &top) else { return manifest };
        let mut take = |name: &str| fields.shift_remove(name).filter(|value| !value.is_null());
        if let Some(version) = take("version")
            && version.as_u64() != Some(Manifest::VERSION)
        {
            self.refuse(&At::top("version"), "must be 1");
        }
        if let Some(root) = take("root") {
            self.root(root, &mut manifest);
        }
        if let Some(entries) = take("entries") {
            manifest.entries = self.entries(entries, &At::top("entries"));
        }
        if let Some(environment) = take("environment") {
            self.environment(environment, &mut manifest);
        }
        manifest.users = self.list(take("users"), &At::top("users"));
        manifest.groups = self.list(take("groups"), &At::top("groups"));
        self.grants(take("extra_path_grants"), &mut manifest);
        if let Some(list) = take("remote_mount_command_allowlist") {
            let at = At::top("remote_mount_command_allowlist");
            manifest.remote_mount_command_allowlist = self.list(Some(list), &at);
        }
        for name in fields.keys() {
            let known = FIELDS.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            self.refuse(&top, format!("has the unknown field `{name}`; known are {known}"));
        }
        manifest
    }

    /// The fields of an object, in one spelling at this level.
    fn object(&mut self, tree: Value, at: &At<'_>) -> Option<Map<String, Value>> {
        let Value::Object(fields) = tree else {
            self.refuse(at, "must be an object");
            return None;
        };
        snake_keys(fields).map_err(|reason| self.refuse(at, reason)).ok()
    }

    fn root(&mut self, root: Value, manifest: &mut Manifest) {
        let at = At::top("root");
        match root {
            Value::String(path) if path.contains('\\') => self.refuse(&at, "is a Windows path"),
            Value::String(path) => match MachinePath::new(path) {
                Ok(path) => manifest.root = path,
                Err(error) => self.refuse(&at, error.to_string()),
            },
            _ => self.refuse(&at, "must be an absolute path, like \"/workspace\""),
        }
    }

    fn list<T: DeserializeOwned>(&mut self, list: Option<Value>, at: &At<'_>) -> Vec<T> {
        let list = match list {
            None => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.refuse(at, "must be a list");
                return Vec::new();
            }
        };
        let mut read = Vec::with_capacity(list.len());
        for (index, value) in list.into_iter().enumerate() {
            match serde_json::from_value(value) {
                Ok(value) => read.push(value),
                Err(error) => self.refuse(&at.index(index), error.to_string()),
            }
        }
        read
    }

    /// Reads the granted paths. Only trusted code may name the host path of a grant, and this text may not be trusted.
    fn grants(&mut self, grants: Option<Value>, manifest: &mut Manifest) {
        let at = At::top("extra_path_grants");
        for (index, fields) in self.list::<Map<String, Value>>(grants, &at).into_iter().enumerate() {
            let at = at.index(index);
            let fields = match snake_keys(fields) {
                Ok(fields) => fields,
                Err(reason) => {
                    self.refuse(&at, reason);
                    continue;
                }
            };
            let host_path = fields.get("host_path").is_some_and(|path| !path.is_null() && path.as_str() != Some(""));
            if host_path {
                let reason = "cannot be given in a manifest that is read; give it on the command line with `--grant`, or in code";
                self.refuse(&at.field("host_path"), reason);
                continue;
            }
            match serde_json::from_value::<PathGrant>(Value::Object(fields)) {
                Ok(grant) => manifest.extra_path_grants.push(PathGrant { host_path: None, ..grant }),
                Err(error) => self.refuse(&at, error.to_string()),
            }
        }
    }

    fn environment(&mut self, tree: Value, manifest: &mut Manifest) {
        let at = At::top("environment");
        let Value::Object(fields) = tree else {
            return self.refuse(&at, "must be an object of names and values");
        };
        for (name, value) in environment::variables(fields) {
            if let Err(reason) = manifest.environment.read(name.clone(), value) {
                self.refuse(&at.key(&name), reason);
            }
        }
    }

    fn entries(&mut self, tree: Value, at: &At<'_>) -> Entries {
        let mut entries = Entries::new();
        let Value::Object(fields) = tree else {
            self.refuse(at, "must be an object of paths and entries");
            return entries;
        };
        for (path, value) in fields {
            if let Some(entry) = self.entry(value, &at.key(&path)) {
                entries.insert(path, entry);
            }
        }
        entries
    }

    fn entry(&mut self, tree: Value, at: &At<'_>) -> Option<Entry> {
        self.entries += 1;
        if self.entries > ENTRIES {
            if self.entries == ENTRIES + 1 {
                self.faults.push(Fault::limit(&At::top("the number of entries"), ENTRIES as u64, self.entries as u64));
            }
            return None;
        }
        let Value::Object(fields) = tree else {
            self.refuse(at, "must be an object with a `type`");
            return None;
        };
        let mut fields = snake(fields).map_err(|reason| self.refuse(at, reason)).ok()?;
        let is_dir = fields.get("type").and_then(Value::as_str) == Some("dir");
        let children = if is_dir { fields.shift_remove("children").filter(|value| !value.is_null()) } else { None };
        let children = children.map(|children| self.entries(children, &at.field("children")));
        let mut entry = match Entry::read(fields) {
            Ok(entry) => entry,
            Err(EntryError { field: Some(field), reason }) => {
                self.refuse(&at.field(&field), reason);
                return None;
            }
            Err(EntryError { field: None, reason }) => {
                self.refuse(at, reason);
                return None;
            }
        };
        if let (Some(dir), Some(children)) = (entry.as_dir_mut(), children) {
            dir.children = children;
        }
        Some(entry)
    }
}
