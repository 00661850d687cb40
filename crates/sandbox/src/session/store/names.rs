//! The names of sessions: one small file for each, so that taking a name reads one file and not every record.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, OFlags, flock};
use sha2::{Digest as _, Sha256};

/// The longest id, in bytes.
const ID_LIMIT: u64 = 64;

/// The names in one store, locked: no other process changes them while this value exists.
pub(super) struct Names {
    store: PathBuf,
    _lock: File,
}

impl Names {
    /// Waits for the lock. Other processes hold it no longer than it takes to write a small file.
    pub(super) fn lock(store: &Path) -> io::Result<Self> {
        let lock = File::open(store)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        Ok(Self { store: store.to_owned(), _lock: lock })
    }

    /// The id that owns a name, whether its session still exists or not.
    pub(super) fn owner(&self, name: &str) -> io::Result<Option<String>> {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        match File::options().read(true).custom_flags(flags.bits().cast_signed()).open(self.file(name)) {
            Ok(file) => io::read_to_string(io::Read::take(file, ID_LIMIT)).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Gives a name to an id atomically: writes a temporary file, then renames it.
    pub(super) fn give(&self, name: &str, id: &str, temporary: &Path) -> io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(temporary)?;
        file.write_all(id.as_bytes())?;
        file.sync_all()?;
        fs::rename(temporary, self.file(name))
    }

    /// Removes a name if this id owns it.
    pub(super) fn release(&self, name: &str, id: &str) -> io::Result<()> {
        if self.owner(name)?.as_deref() == Some(id) { fs::remove_file(self.file(name)) } else { Ok(()) }
    }

    /// The file of a name, called by its hash: a name may contain characters that a file name may not.
    fn file(&self, name: &str) -> PathBuf {
        self.store.join(format!("name-{:x}", Sha256::digest(name)))
    }
}
