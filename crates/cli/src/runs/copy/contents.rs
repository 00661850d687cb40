//! The texts that a working copy began with, one after the other in a file: what a diff compares with.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::runs::contents::{TEXT_LIMIT, is_binary};

/// As much is kept in all; what does not fit is looked for in the source later.
const LIMIT: u64 = 1 << 30;

pub(super) struct Contents {
    file: File,
    end: Mutex<u64>,
}

impl Contents {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self { file, end: Mutex::default() })
    }

    /// Keeps what a file holds, if that is text of which a diff could show something. Where it is then.
    pub(super) fn keep(&self, from: &File, size: u64) -> io::Result<Option<u64>> {
        if size == 0 || size > TEXT_LIMIT {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        from.read_exact_at(&mut bytes, 0)?;
        if is_binary(&bytes) {
            return Ok(None);
        }
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let at = *end;
        if at + size > LIMIT {
            return Ok(None);
        }
        *end += size;
        drop(end);
        self.file.write_all_at(&bytes, at)?;
        Ok(Some(at))
    }
}
