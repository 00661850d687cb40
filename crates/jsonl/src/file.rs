//! A file that lines are appended to.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

/// A file that lines are appended to. Several processes may append to one file: what is appended together is one write
/// at the current end of the file.
#[derive(Debug)]
pub struct LineFile {
    file: File,
    /// Whether the last line may be incomplete.
    torn: bool,
}

impl LineFile {
    /// Opens a file, or creates it for its owner only.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // With `read`, opening a FIFO does not wait for its reader.
        let file = match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options.read(false).open(path)?,
            opened => opened?,
        };
        // A file that can be written but not read is taken for complete.
        let torn = file.metadata()?.is_file() && ends_within_a_line(path).unwrap_or(false);
        Ok(Self { file, torn })
    }

    /// Opens a file, or creates it and its parent directories for their owner only.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn open_with_parents(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let mut builder = DirBuilder::new();
            #[cfg(unix)]
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            builder.recursive(true).create(parent)?;
        }
        Self::open(path)
    }

    /// Appends lines, which do not contain their line feed. If the last line of the file is incomplete, it is ended
    /// first.
    ///
    /// # Errors
    /// The error of the operating system, or that only a part was written.
    pub fn append(&mut self, lines: &[impl AsRef<[u8]>]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        for line in lines {
            text.extend_from_slice(line.as_ref());
            text.push(b'\n');
        }
        // One write, not a loop: the rest would land after lines that other processes wrote meanwhile.
        let written = loop {
            match self.file.write(&text) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        if written == text.len() {
            self.torn = false;
            return Ok(());
        }
        self.torn |= written > 0;
        Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the lines was written"))
    }
}

/// Whether the file ends in the middle of a line, after a crash or on a full disk.
fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
