//! A manifest as it may be saved: without what is ephemeral, without host paths, and without what grants access; and the
//! way back.

use std::collections::HashMap;

use sandbar_machine::MachinePath;
use serde::{Deserialize, Serialize};

use super::{Entries, Manifest};
use crate::{Entry, WorkspacePath};

/// A manifest without secrets, and the names of what was removed from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedManifest {
    /// The manifest without its secrets.
    pub manifest: Manifest,
    /// Granted paths whose host paths were removed; the caller that resumes the session must name them again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted_grants: Vec<MachinePath>,
    /// Entries whose host paths or credentials were removed. Each of these entries is marked as redacted, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted_entries: Vec<WorkspacePath>,
    /// Names of the variables that were removed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted_environment: Vec<String>,
}

/// Redactions of a loaded manifest that were not restored; they are listed again when the manifest is saved again.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Unrestored {
    grants: Vec<MachinePath>,
    environment: Vec<String>,
}

impl Manifest {
    /// The manifest as it may be saved: without ephemeral variables, without paths of the host (of grants, and the sources
    /// of `local_file`, `local_dir` and `mount`), without the queries of addresses, and without credentials. Secrets stay:
    /// they are only names. [`SavedManifest::restore`] puts back what a trusted manifest contains.
    #[must_use]
    pub fn for_saving(&self) -> SavedManifest {
        let mut manifest = self.clone();
        manifest.base_dir = None;
        let unrestored = std::mem::take(&mut manifest.unrestored);
        let mut redacted_environment = unrestored.environment;
        redacted_environment.retain(|name| manifest.environment.get(name).is_none());
        redacted_environment.extend(manifest.environment.remove_ephemeral());
        let mut redacted_grants = Vec::new();
        for grant in &mut manifest.extra_path_grants {
            if grant.host_path.take().is_some() || unrestored.grants.contains(&grant.path) {
                redacted_grants.push(grant.path.clone());
            }
        }
        let mut redacted_entries = Vec::new();
        redact(&mut manifest.entries, None, &mut redacted_entries);
        SavedManifest { manifest, redacted_grants, redacted_entries, redacted_environment }
    }
}

impl SavedManifest {
    /// The manifest with what was taken out put back, as far as a trusted manifest says it:
    ///
    /// - a granted place gets its host path back by its path, and is read-only if either manifest says so;
    /// - a redacted entry becomes the trusted entry of the same path and type, whole, so that a credential never meets an
    ///   address it was not given for;
    /// - an ephemeral variable gets its value back by its name.
    ///
    /// Everything else stays redacted: see [`Entry::is_redacted`]. Paths of the host come from the trusted manifest only,
    /// whatever the saved one says, so the result begins at its directory and is trusted as far as it is.
    #[must_use]
    pub fn restore(self, trusted: Option<&Manifest>) -> Manifest {
        // What was saved honestly has nothing more to lose here.
        let Self { mut manifest, redacted_grants, redacted_environment, .. } = self.manifest.for_saving().and(self);
        if let Some(trusted) = trusted {
            manifest.base_dir.clone_from(&trusted.base_dir);
            manifest.origin = trusted.origin;
            manifest.private_addresses = trusted.private_addresses;
            let known: HashMap<WorkspacePath, &Entry> = trusted.flatten().into_iter().collect();
            put_back(&mut manifest.entries, None, &known);
        }
        for path in redacted_grants {
            let mut known = trusted.iter().flat_map(|trusted| &trusted.extra_path_grants);
            let known = known.find(|known| known.path == path && known.host_path.is_some());
            let Some(known) = known else {
                manifest.unrestored.grants.push(path);
                continue;
            };
            for grant in manifest.extra_path_grants.iter_mut().filter(|grant| grant.path == path) {
                grant.host_path.clone_from(&known.host_path);
                grant.read_only |= known.read_only;
            }
        }
        for name in redacted_environment {
            match trusted.and_then(|trusted| trusted.environment.get(&name)) {
                Some(value) => manifest.environment.set(name, value.clone()),
                None => manifest.unrestored.environment.push(name),
            }
        }
        manifest
    }

    /// The same, also saying what another said was taken out.
    fn and(mut self, other: Self) -> Self {
        let more = other.redacted_grants.into_iter().filter(|path| !self.redacted_grants.contains(path));
        let more: Vec<_> = more.collect();
        self.redacted_grants.extend(more);
        let more = other.redacted_environment.into_iter().filter(|name| !self.redacted_environment.contains(name));
        let more: Vec<_> = more.collect();
        self.redacted_environment.extend(more);
        self
    }
}

fn redact(entries: &mut Entries, below: Option<&WorkspacePath>, redacted: &mut Vec<WorkspacePath>) {
    for (path, entry) in entries.values_mut() {
        let path = below.map_or_else(|| path.clone(), |below| below.join(path));
        let _marked_by_itself = entry.redact();
        if let Some(dir) = entry.as_dir_mut() {
            redact(&mut dir.children, Some(&path), redacted);
        }
        if entry.is_redacted() {
            redacted.push(path);
        }
    }
}

fn put_back(entries: &mut Entries, below: Option<&WorkspacePath>, known: &HashMap<WorkspacePath, &Entry>) {
    for (path, entry) in entries.values_mut() {
        let path = below.map_or_else(|| path.clone(), |below| below.join(path));
        if let Some(dir) = entry.as_dir_mut() {
            put_back(&mut dir.children, Some(&path), known);
        } else if entry.is_redacted()
            && let Some(known) = known.get(&path).filter(|known| known.kind() == entry.kind())
        {
            *entry = (*known).clone();
        }
    }
}
