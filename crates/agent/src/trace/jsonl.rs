//! A file of traces: one JSON object per line, in the format that trace servers accept.

use std::{io, path::Path, sync::Arc};

use sandbar_jsonl::LineFile;
use serde_json::{Map, Value};

use super::{Export, SpanData, TraceExporter, data::cut};

/// Limit of each input and output, in bytes.
const FIELD: usize = 100_000;
/// Limit of a line, in bytes.
const LINE: usize = 1 << 20;
/// Limit of a name in a line that would be too long, in bytes.
const NAME: usize = 1000;

/// Exporter that appends records to a file. Use it through [`Batched::jsonl`](super::Batched::jsonl).
#[derive(Debug)]
pub struct JsonlFile(LineFile);

impl JsonlFile {
    /// Opens a file to append to. A new file is readable by its owner only.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        LineFile::open(path).map(Self)
    }
}

impl TraceExporter for JsonlFile {
    fn export(&mut self, batch: &[Export]) -> io::Result<()> {
        let lines: Vec<Vec<u8>> = batch.iter().map(line).collect::<io::Result<_>>()?;
        self.0.append(&lines)
    }
}

/// The line of a record. If it would be too long, inputs and outputs are cut or removed.
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

/// Removes all fields that the tree of spans does not need.
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
