//! The text files of a working copy at its start, concatenated in `base.data`: the old side of a diff.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use parking_lot::Mutex;

use crate::diff::{TEXT_LIMIT, is_binary};

/// Size limit of `base.data`. Later diffs read the other files from the source directory.
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

    /// Appends the content of a text file. Returns its offset.
    pub(super) fn append(&self, from: &File, size: u64) -> io::Result<Option<u64>> {
        if size == 0 || size > TEXT_LIMIT {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        from.read_exact_at(&mut bytes, 0)?;
        if is_binary(&bytes) {
            return Ok(None);
        }
        let mut end = self.end.lock();
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
