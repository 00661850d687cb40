//! Checks before a machine is created: the manifest is valid, its secrets exist, its mounts are possible.

use std::{collections::BTreeMap, fs::File, path::Path};

use sandbar_machine::{Access, FileIdentity, HostMount, MachinePath, MachineSpec};

use super::SessionOptions;
use crate::{
    Credential, Entry, Grant, Manifest, Mount, Paths, Result, SandboxError, WorkspacePath,
    local::Roots,
    manifest::{check_sources, roots, wanted},
};

/// The machine that a session needs, and the paths it may use there.
pub(super) struct Prepared {
    pub(super) spec: MachineSpec,
    pub(super) paths: Paths,
}

/// Checks everything that can be checked without a machine.
pub(super) fn prepare(options: &SessionOptions) -> Result<Prepared> {
    let manifest = &options.manifest;
    manifest.check()?;
    check_sources(manifest)?;
    refuse_unsupported_entries(manifest)?;
    for (path, entry) in manifest.flatten() {
        check_secrets(&path, entry, options)?;
    }
    let mut spec = options.machine.clone();
    let variables: BTreeMap<String, String> = manifest.environment.resolve(&options.secrets)?;
    spec.env.extend(variables);
    let accounts = wanted(manifest)?;
    spec.accounts.users.extend(accounts.users);
    spec.accounts.groups.extend(accounts.groups);
    spec.mounts.extend(grants(manifest)?);
    let roots = roots(manifest)?;
    for (path, inside, entry) in manifest.mounts()? {
        if let Entry::Mount(mount) = entry {
            spec.mounts.push(bind(&roots, &path, inside, mount)?);
        }
    }
    spec.ports.sort_unstable();
    spec.ports.dedup();
    Ok(Prepared { spec, paths: paths(manifest)? })
}

/// The paths that a session with this manifest may use.
pub(super) fn paths(manifest: &Manifest) -> Result<Paths> {
    let access = |read_only| if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let granted = manifest.extra_path_grants.iter();
    let granted = granted.map(|grant| Grant { path: grant.path.clone(), access: access(grant.read_only) });
    let mounts = manifest.mounts()?.into_iter().filter_map(|(_, path, entry)| {
        let read_only = entry.mount_point()?.read_only;
        Some(Grant { path, access: access(read_only) })
    });
    Ok(Paths::new(manifest.root.clone()).grant(granted.chain(mounts)))
}

fn refuse_unsupported_entries(manifest: &Manifest) -> Result<()> {
    for (path, entry) in manifest.flatten() {
        if let Some(reason) = entry.refusal() {
            return Err(SandboxError::mount_config_invalid(path.as_str(), reason));
        }
    }
    Ok(())
}

/// Checks that every secret that an entry names is known.
fn check_secrets(path: &WorkspacePath, entry: &Entry, options: &SessionOptions) -> Result<()> {
    for name in secret_names(entry) {
        options.secrets.get(name).map_err(|error| {
            SandboxError::manifest_invalid(format!("entries[{:?}]", path.as_str()), "names a secret").because(error)
        })?;
    }
    Ok(())
}

fn secret_names(entry: &Entry) -> Vec<&str> {
    let headers = match entry {
        Entry::GitRepo(repo) => return repo.auth.as_deref().into_iter().collect(),
        Entry::RemoteFile(file) => &file.headers,
        Entry::RemoteDir(dir) => &dir.headers,
        _ => return Vec::new(),
    };
    headers.values().filter_map(secret_name).collect()
}

fn secret_name(value: &Credential) -> Option<&str> {
    match value {
        Credential::Secret { name, .. } => Some(name),
        Credential::Plain(_) => None,
    }
}

fn grants(manifest: &Manifest) -> Result<Vec<HostMount>> {
    let mut mounts = Vec::new();
    for grant in &manifest.extra_path_grants {
        let Some(host) = &grant.host_path else {
            if grant.read_only && grant.path.is_within(&manifest.root) {
                let reason =
                    "a read-only grant inside the workspace needs a `host_path`: nothing else could enforce it";
                return Err(SandboxError::mount_config_invalid(grant.path.to_string(), reason));
            }
            continue;
        };
        exists(&grant.path.to_string(), host)?;
        let access = if grant.read_only { Access::ReadOnly } else { Access::ReadWrite };
        mounts.push(HostMount { host: host.clone(), inside: grant.path.clone(), access, identity: None });
    }
    Ok(mounts)
}

fn bind(roots: &Roots, path: &WorkspacePath, inside: MachinePath, mount: &Mount) -> Result<HostMount> {
    let invalid = |reason: String| SandboxError::mount_config_invalid(path.as_str(), reason);
    let source = mount.source().ok_or_else(|| invalid("has no source".to_owned()))?;
    // Checked here through an open file; the client that opens the path later compares the identity.
    let checked = roots.open(source).map_err(|reason| invalid(format!("{}: {reason}", source.display())))?;
    let found = File::from(checked).metadata().map_err(|error| invalid(format!("{}: {error}", source.display())))?;
    let access = if mount.read_only { Access::ReadOnly } else { Access::ReadWrite };
    Ok(HostMount { host: roots.resolve(source), inside, access, identity: Some(FileIdentity::from(&found)) })
}

fn exists(shown: &str, host: &Path) -> Result<()> {
    match host.symlink_metadata() {
        Ok(_) => Ok(()),
        Err(cause) => {
            let reason = format!("the granted {} cannot be used", host.display());
            Err(SandboxError::mount_config_invalid(shown, reason).because(cause))
        }
    }
}
