//! The id of a list of sessions: a moved or copied state directory is another list, and does not own the machines of the first.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use uuid::Uuid;

use crate::error::other;

/// The id of the list in a directory: its random part, and where the directory is.
pub(super) fn list_id(directory: &Path) -> io::Result<String> {
    let (path, found) = (directory.canonicalize()?, directory.metadata()?);
    Ok(format!("{}:{}:{}:{}", random_id(directory)?, found.dev(), found.ino(), path.display()))
}

/// Random id of this session directory, written once.
fn random_id(directory: &Path) -> io::Result<String> {
    let path = directory.join("register");
    if !path.try_exists()? {
        let id = Uuid::now_v7().simple().to_string();
        let temporary = directory.join(format!(".register.{id}"));
        let written = File::create_new(&temporary).and_then(|mut file| {
            file.write_all(id.as_bytes())?;
            file.sync_all()?;
            // The first process decides.
            match fs::hard_link(&temporary, &path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        });
        let _was_never_made = fs::remove_file(&temporary);
        written?;
    }
    let id = fs::read_to_string(&path)?;
    // A damaged id could be that of another list.
    if Uuid::try_parse(&id).is_err() {
        return Err(other(format!("{} is damaged; remove it", path.display())));
    }
    Ok(id)
}
