//! What would keep a sound manifest from becoming a workspace on this host, as far as that can be seen beforehand.

use std::{collections::HashSet, fs::File as HostFile};

use serde::Serialize;

use super::{
    Entries, Manifest,
    account::{UNDECLARED, known_owners},
    fault::At,
    origin::{Origin, WRITABLE},
};
use crate::{Entry, Mount, Result, SandboxError, local::Roots};

/// What was seen of a manifest's surroundings, without a machine and without a network.
#[derive(Debug, Default)]
pub struct Outlook {
    /// What would fail, in the order of the manifest, each with the place it is at as its cause.
    pub faults: Vec<SandboxError>,
    /// What could only be seen by trying.
    pub unchecked: Vec<Unchecked>,
}

/// A source that was not looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// The place of its entry in the manifest.
    pub path: String,
    /// Where it comes from.
    pub source: String,
}

impl Outlook {
    /// Looks at what a manifest takes from this host, and for what no machine can do yet. Sources of a manifest that was
    /// read without a directory, and those that a server has, are only named.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        let (roots, groups) = (roots(manifest), known_owners(manifest));
        let mut check = HostCheck { manifest, roots, groups, outlook: Self::default() };
        check.entries(&manifest.entries, &At::top("entries"));
        check.outlook
    }
}

/// The places of the host that sources may lie in: below the manifest's own directory, or this process's one.
pub(crate) fn roots(manifest: &Manifest) -> Result<Roots> {
    let granted = manifest.extra_path_grants.iter().filter_map(|grant| grant.host_path.clone());
    let base = match manifest.source_dir() {
        Some(dir) => std::path::absolute(dir),
        None => std::env::current_dir(),
    };
    let base = base.map_err(|cause| {
        SandboxError::sandbox_config_invalid("the directory that sources begin at", "cannot be found").because(cause)
    })?;
    Ok(Roots::new(base).grant(granted))
}

struct HostCheck<'a> {
    manifest: &'a Manifest,
    roots: Result<Roots>,
    groups: HashSet<&'a str>,
    outlook: Outlook,
}

impl HostCheck<'_> {
    fn fault(&mut self, at: &At<'_>, error: SandboxError) {
        self.outlook.faults.push(error.because(format!("in {at}")));
    }

    fn entries(&mut self, entries: &Entries, at: &At<'_>) {
        for (path, entry) in entries.iter() {
            let at = at.key(path.as_str());
            self.entry(path.as_str(), entry, &at);
            if let Some(dir) = entry.as_dir() {
                self.entries(&dir.children, &at.field("children"));
            }
        }
    }

    fn entry(&mut self, path: &str, entry: &Entry, at: &At<'_>) {
        if let Some(group) = entry.attributes().group.as_ref().filter(|group| !self.groups.contains(group.name())) {
            self.fault(&at.field("group"), SandboxError::account_unavailable(group.name(), UNDECLARED));
        }
        if let Some(reason) = entry.refusal() {
            return self.fault(at, SandboxError::mount_config_invalid(path, reason));
        }
        match entry {
            Entry::GitRepo(repo) => self.not_checked(at, repo.shown_url()),
            Entry::RemoteFile(file) => self.not_checked(at, file.shown_url()),
            Entry::RemoteDir(dir) => self.not_checked(at, dir.shown_url()),
            _ => self.local(path, entry, at),
        }
    }

    fn not_checked(&mut self, at: &At<'_>, source: String) {
        self.outlook.unchecked.push(Unchecked { path: at.to_string(), source });
    }

    fn local(&mut self, path: &str, entry: &Entry, at: &At<'_>) {
        let (field, src) = match entry {
            Entry::LocalFile(file) => ("src", Some(file.src.as_path())),
            Entry::LocalDir(dir) => ("src", dir.src.as_deref()),
            Entry::Mount(mount) => ("source", mount.source()),
            _ => return,
        };
        let Some(src) = src else { return };
        if self.manifest.is_read() && self.manifest.source_dir().is_none() {
            return self.not_checked(at, src.display().to_string());
        }
        let Ok(roots) = &self.roots else { return self.not_checked(at, src.display().to_string()) };
        let shown = src.display().to_string();
        let found = roots.open(src).and_then(|opened| {
            let found = HostFile::from(opened).metadata().map_err(|error| error.to_string())?;
            match entry {
                Entry::LocalFile(_) if !found.is_file() => Err("it is not a regular file".to_owned()),
                Entry::LocalDir(_) if !found.is_dir() => Err("it is not a directory".to_owned()),
                _ => Ok(()),
            }
        });
        if let Err(reason) = found {
            let error = match entry {
                Entry::LocalFile(_) => SandboxError::local_file_read_error(shown, reason),
                Entry::LocalDir(_) => SandboxError::local_dir_read_error(shown, "", reason),
                _ => SandboxError::mount_config_invalid(path, format!("{shown}: {reason}")),
            };
            self.fault(&at.field(field), error);
        }
        if matches!(entry, Entry::Mount(Mount { read_only: false, .. })) && self.manifest.origin == Origin::Read {
            self.fault(at, SandboxError::mount_config_invalid(path, WRITABLE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outlook;
    use crate::Manifest;

    #[test]
    fn what_would_fail_is_seen_with_its_place_and_what_a_server_has_is_named() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("file"), "").unwrap();
        std::fs::create_dir(temp.path().join("dir")).unwrap();
        let text = r#"{"entries": {
            "fine": {"type": "local_file", "src": "file"}, "also": {"type": "local_dir", "src": "dir"},
            "no": {"type": "local_file", "src": "no"}, "kind": {"type": "local_file", "src": "dir"},
            "deep": {"type": "dir", "children": {"d": {"type": "local_dir", "src": "file"}}},
            "out": {"type": "local_dir", "src": "../x"},
            "g": {"type": "file", "content": "", "group": "g"}, "h": {"type": "file", "content": "", "group": "h"},
            "m": {"type": "mount", "source": "dir", "read_only": false, "mount_strategy": {"type": "local_bind"}},
            "web": {"type": "remote_file", "url": "https://h/x?token=pw"}}, "groups": [{"name": "g"}]}"#;
        let manifest = Manifest::from_json(text).unwrap();
        let seen = Outlook::of(&manifest.clone().base_dir(temp.path()));
        let places: Vec<String> = seen.faults.iter().map(|fault| fault.causes().join(" ")).collect();
        assert_eq!(
            places,
            [
                r#"in entries["no"].src"#,
                r#"in entries["kind"].src"#,
                r#"in entries["deep"].children["d"].src"#,
                r#"in entries["out"].src"#,
                r#"in entries["h"].group"#,
                r#"in entries["m"]"#,
            ]
        );
        assert_eq!(seen.unchecked.len(), 1);
        assert!(!seen.unchecked[0].source.contains("pw"), "{seen:?}");
        // Without a base directory, relative sources cannot be checked.
        let adrift = Outlook::of(&manifest);
        assert_eq!((adrift.faults.len(), adrift.unchecked.len()), (1, 8), "{adrift:?}");
    }
}
