//! What of the host a sandbox can write to, and what it must not: records about itself, and the repository it works in.

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use sandbar::{Access, Entry, HostMount, MachinePath, SessionOptions, Workspace};

use crate::failure::Failure;

/// The repository of a directory that is changed in place, for reading only: what is written there can become a command
/// of its owner's, as a hook or in its configuration. Whoever shows it otherwise means it.
pub(crate) fn repository(directory: &Path, shown: &[HostMount]) -> Result<Option<HostMount>, Failure> {
    let host = directory.join(".git");
    let inside = MachinePath::new("/workspace/.git")?;
    if shown.iter().any(|mount| mount.inside == inside) {
        return Ok(None);
    }
    match fs::symlink_metadata(&host) {
        // Also a file, which only says where the repository is: it could come to say something else.
        Ok(found) if found.is_dir() || found.is_file() => {
            Ok(Some(HostMount { host, inside, access: Access::ReadOnly, identity: None }))
        }
        Ok(_) => Err(Failure::new(format!("cannot protect {}, which is a link", host.display()))
            .next("work on a copy, or show it as it shall be: --rw REPOSITORY:/workspace/.git")),
        Err(_) => Ok(None),
    }
}

/// Whether there is a repository in a directory where there was none.
pub(crate) fn has_repository(directory: &Path) -> bool {
    fs::symlink_metadata(directory.join(".git")).is_ok()
}

/// The place that a sandbox may write to and that a file of the host lies in, if there is one: a record that commands could
/// change would be none.
pub(crate) fn writable_above(file: &Path, options: &SessionOptions) -> Option<PathBuf> {
    let mounts = options.machine.mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    let grants = options.manifest.extra_path_grants.iter().filter(|grant| !grant.read_only);
    let workspace = match &options.machine.workspace {
        Workspace::Host { path, access: Access::ReadWrite } => Some(path.clone()),
        Workspace::Host { .. } | Workspace::Temporary => None,
    };
    let base = options.manifest.source_dir().map(Path::to_owned).unwrap_or_default();
    let declared = options.manifest.flatten().into_iter().filter_map(|(_, entry)| match entry {
        Entry::Mount(mount) if !mount.read_only => mount.source().map(|source| base.join(source)),
        _ => None,
    });
    let places = mounts.map(|mount| mount.host.clone()).chain(grants.filter_map(|grant| grant.host_path.clone()));
    let file = path::absolute(file).ok()?;
    // Some of the directories above may not exist yet, and the file may be a link that leads elsewhere.
    let real = fs::read_link(&file).map_or(file.clone(), |to| file.parent().unwrap_or(&file).join(to));
    let above = |file: &Path| file.ancestors().find_map(|above| fs::canonicalize(above).ok());
    let (above, real) = (above(&file)?, above(&real)?);
    places
        .chain(declared)
        .chain(workspace)
        .find(|place| fs::canonicalize(place).is_ok_and(|place| above.starts_with(&place) || real.starts_with(&place)))
}
