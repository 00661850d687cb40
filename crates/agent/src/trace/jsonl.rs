//! A file of traces: one JSON object per line, in the form that trace servers take.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
    sync::Arc,
};

use serde_json::{Map, Value};

use super::{Export, SpanData, TraceExporter, data::cut};

/// How much of what was said is written, per field.
const FIELD: usize = 100_000;
/// How long a line may be.
const LINE: usize = 1 << 20;
/// How much is left of a name where that is not kept.
const NAME: usize = 1000;

/// The end of a file that traces are written to. Use it through [`Batched::jsonl`](super::Batched::jsonl).
#[derive(Debug)]
pub struct JsonlFile {
    file: File,
    /// Whether the last line may be without its end.
    torn: bool,
}

impl JsonlFile {
    /// Opens a file to add to. It is made if need be, for its owner only.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        let torn = file.metadata()?.is_file() && ends_within_a_line(&mut file)?;
        Ok(Self { file, torn })
    }
}

/// Whether a file was left in the middle of a line, by a crash or a full disk.
fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

impl TraceExporter for JsonlFile {
    fn export(&mut self, batch: &[Export]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.torn {
            text.push(b'\n');
        }
        for record in batch {
            text.extend(line(record)?);
            text.push(b'\n');
        }
        self.torn = true;
        self.file.write_all(&text)?;
        self.torn = false;
        Ok(())
    }
}

/// The line of a record, with less in it if it would be very long.
fn line(record: &Export) -> io::Result<Vec<u8>> {
    let line = serde_json::to_vec(record)?;
    if line.len() <= FIELD {
        return Ok(line);
    }
    let mut record = record.clone();
    if let Export::Span(span) = &mut record {
        Arc::make_mut(span).span_data.shorten(FIELD);
    }
    let line = serde_json::to_vec(&record)?;
    if line.len() <= LINE {
        return Ok(line);
    }
    bare(&mut record);
    Ok(serde_json::to_vec(&record)?)
}

/// Leaves only what keeps the tree whole.
fn bare(record: &mut Export) {
    match record {
        Export::Trace(trace) => {
            cut(&mut trace.workflow_name, NAME);
            trace.group_id.iter_mut().for_each(|group| cut(group, NAME));
            trace.metadata = None;
        }
        Export::Span(span) => {
            let span = Arc::make_mut(span);
            let left_out = Map::from_iter([("left_out".to_owned(), Value::from("too long"))]);
            span.span_data = SpanData::custom(span.span_data.label().0, left_out);
            if let Some(error) = &mut span.error {
                cut(&mut error.message, NAME);
                error.data = None;
            }
        }
    }
}
