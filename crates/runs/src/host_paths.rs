//! Which files of the host a sandbox can see and write to.

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use sandbar::{Access, HostMount, MachinePath, MachineSpec, Manifest, SessionOptions, Workspace, sandbox::Entry};

/// The host directories that a machine is shown besides its workspace, as far as an unchecked manifest tells.
pub(crate) fn shown(spec: &MachineSpec, manifest: &Manifest) -> Vec<HostMount> {
    let access = |read_only| if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let grants = manifest
        .extra_path_grants
        .iter()
        .filter_map(|grant| Some((grant.host_path.clone()?, grant.path.clone(), access(grant.read_only))));
    let base = manifest.source_dir().map(Path::to_owned).unwrap_or_default();
    // An invalid mount is refused later with its reason.
    let declared = manifest.mounts().unwrap_or_default().into_iter().filter_map(|(_, inside, entry)| match entry {
        Entry::Mount(mount) => Some((base.join(mount.source()?), inside, access(mount.read_only))),
        _ => None,
    });
    let more = grants.chain(declared).map(|(host, inside, access)| HostMount { host, inside, access, identity: None });
    spec.mounts.iter().cloned().chain(more).collect()
}

/// Every file or directory of the host that a sandbox can write to, with its path in the machine.
pub(crate) fn writable(spec: &MachineSpec, manifest: &Manifest) -> Vec<(PathBuf, MachinePath)> {
    let workspace = match &spec.workspace {
        Workspace::Host { path, access: Access::ReadWrite } => Some((path.clone(), MachinePath::workspace())),
        Workspace::Host { .. } | Workspace::Temporary => None,
    };
    let mounts = shown(spec, manifest).into_iter().filter(|mount| mount.access == Access::ReadWrite);
    mounts.map(|mount| (mount.host, mount.inside)).chain(workspace).collect()
}

/// The directory that contains a file of the host and that a sandbox can write to; `None` if the sandbox cannot change the
/// file. Records of a run must not be in such a directory.
pub fn writable_parent(file: &Path, options: &SessionOptions) -> Option<PathBuf> {
    let file = path::absolute(file).ok()?;
    // Some parent directories may not exist yet, and the file may be a link.
    let real = fs::read_link(&file).map_or(file.clone(), |to| file.parent().unwrap_or(&file).join(to));
    let above = |file: &Path| file.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let (above, real) = (above(&file)?, above(&real)?);
    let mut dirs = writable(&options.machine, &options.manifest).into_iter().map(|(host, _)| host);
    dirs.find(|dir| fs::canonicalize(dir).is_ok_and(|dir| above.starts_with(&dir) || real.starts_with(&dir)))
}
