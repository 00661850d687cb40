//! All the rules a manifest must keep, looked at together before anything is made.

use std::collections::HashSet;

use sandbar_machine::{MachinePath, account_name_fault};

use super::{
    Entries, Manifest,
    environment::variable_fault,
    fault::{At, Fault, Faults},
    read::{ENTRIES, NESTING},
};
use crate::{PathFault, Result, SandboxError, Shape};

/// The longest path below the root, and the most text that all paths together may be.
const PATH: usize = 4000;
const PATHS: usize = 128 << 20;

impl Manifest {
    /// Whether everything is in order.
    ///
    /// # Errors
    /// The first fault, saying how many more there are: `invalid_manifest_path`, `manifest_invalid`, `git_subpath_error`,
    /// `mount_config_invalid` or `limit_exceeded`.
    pub fn check(&self) -> Result<()> {
        find_faults(self).into_result()
    }

    /// Everything that is wrong, in the order of the manifest. Beyond a thousand faults the last says how many more.
    #[must_use]
    pub fn faults(&self) -> Vec<SandboxError> {
        find_faults(self).into_errors()
    }
}

fn find_faults(manifest: &Manifest) -> Faults {
    let mut faults = manifest.faults.clone();
    if manifest.root == MachinePath::root() {
        faults.push(Fault::invalid(&At::top("root"), "cannot be `/`; a workspace is a directory of its own"));
    }
    let mut walk = Walk { faults: &mut faults, found: Vec::new(), paths: 0 };
    walk.entries(&manifest.entries, &At::top("entries"), "", 0);
    walk.overlaps();
    let at = At::top("environment");
    for (name, value) in manifest.environment.iter() {
        if let Some(reason) = variable_fault(name, value) {
            faults.push(Fault::invalid(&at.key(name), reason));
        }
    }
    accounts("users", manifest.users.iter().map(|user| user.name.as_str()), &mut faults);
    accounts("groups", manifest.groups.iter().map(|group| group.name.as_str()), &mut faults);
    members(manifest, &mut faults);
    grants(manifest, &mut faults);
    faults
}

fn members(manifest: &Manifest, faults: &mut Faults) {
    let at = At::top("groups");
    for (index, group) in manifest.groups.iter().enumerate() {
        for (member, user) in group.users.iter().enumerate() {
            if let Some(reason) = account_name_fault(&user.name) {
                faults.push(Fault::invalid(&at.index(index).field("users").index(member), reason));
            }
        }
    }
}

fn grants(manifest: &Manifest, faults: &mut Faults) {
    let at = At::top("extra_path_grants");
    let mut seen = HashSet::new();
    for (index, grant) in manifest.extra_path_grants.iter().enumerate() {
        let twice = (!seen.insert(&grant.path)).then_some("is granted twice");
        if let Some(reason) = grant.fault().or(twice) {
            faults.push(Fault::invalid(&at.index(index), reason));
        }
    }
}

fn accounts<'a>(what: &str, names: impl Iterator<Item = &'a str>, faults: &mut Faults) {
    let at = At::top(what);
    let mut seen = HashSet::new();
    for (index, name) in names.enumerate() {
        let twice = (!seen.insert(name)).then_some("is named twice");
        if let Some(reason) = account_name_fault(name).or(twice) {
            faults.push(Fault::invalid(&at.index(index), reason));
        }
    }
}

struct EntryShape {
    path: String,
    shape: Shape,
}

struct Walk<'a> {
    faults: &'a mut Faults,
    found: Vec<EntryShape>,
    paths: usize,
}

impl Walk<'_> {
    fn entries(&mut self, entries: &Entries, at: &At<'_>, below: &str, nesting: usize) {
        self.faults.extend_below(at, entries.faults());
        if nesting > NESTING {
            let reason = format!("is nested deeper than {NESTING} directories; write paths like \"a/b/c\" instead");
            return self.faults.push(Fault::invalid(at, reason));
        }
        for (path, entry) in entries.iter() {
            let at = at.key(path.as_str());
            let whole = if below.is_empty() { path.to_string() } else { format!("{below}/{path}") };
            self.paths += whole.len();
            if whole.len() > PATH {
                self.faults.push(Fault::path(&at, path.as_str(), PathFault::Malformed));
                continue;
            }
            if self.found.len() >= ENTRIES || self.paths > PATHS {
                return self.too_many();
            }
            if let Some(reason) = entry.attributes().permissions.fault() {
                self.faults.push(Fault::invalid(&at.field("permissions"), reason));
            }
            if let Some(reason) = entry.attributes().group.as_ref().and_then(|group| account_name_fault(group.name())) {
                self.faults.push(Fault::invalid(&at.field("group"), reason));
            }
            for fault in entry.faults(&at) {
                self.faults.push(fault);
            }
            if let Some(dir) = entry.as_dir() {
                self.entries(&dir.children, &at.field("children"), &whole, nesting + 1);
            }
            self.found.push(EntryShape { path: whole, shape: entry.shape() });
        }
    }

    fn too_many(&mut self) {
        let (what, limit, actual) = if self.found.len() >= ENTRIES {
            ("the number of entries", ENTRIES, self.found.len() + 1)
        } else {
            ("the text of all paths", PATHS, self.paths)
        };
        self.faults.push(Fault::limit(&At::top(what), limit as u64, actual as u64));
    }

    /// Sorted with `/` before everything else, whatever is below a path follows it at once: one look at the neighbour above
    /// finds duplicates, and one remembered file finds what is below files.
    fn overlaps(&mut self) {
        let order = |path: &'_ str| path.bytes().map(|byte| if byte == b'/' { 0 } else { byte }).collect::<Vec<_>>();
        self.found.sort_by_cached_key(|found| order(&found.path));
        let mut file: Option<&str> = None;
        let mut before: Option<&str> = None;
        for EntryShape { path, shape } in &self.found {
            let below_file = file.is_some_and(|file| path.strip_prefix(file).is_some_and(|rest| rest.starts_with('/')));
            if before == Some(path) || below_file {
                self.faults.push(Fault::path(&At::top("entries").key(path), path, PathFault::Duplicate));
            }
            before = Some(path);
            if *shape == Shape::File && !below_file {
                file = Some(path);
            }
        }
    }
}
