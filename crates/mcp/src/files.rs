//! The file tools: read_file, write_file and list_directory, with bounded results.

use std::{collections::VecDeque, num::NonZeroU64, ops::ControlFlow, time::Duration};

use rmcp::model::JsonObject;
use sandbar::{
    SandboxError,
    machine::{DirEntry, EntryKind},
};
use serde::{Deserialize, Deserializer, de};
use serde_json::Number;
use tokio::time::timeout;

use super::{
    server::{Answer, Server, read, refused, text_result},
    window::{ANSWER, Window},
};

/// Default number of lines to read.
pub(crate) const LINES: u64 = 2_000;

/// Maximum number of entries in a listing, and so of directories that are read.
const ENTRIES: usize = 1_000;

/// Maximum depth of a listing.
pub(crate) const DEPTH: u64 = 16;

/// Time limit of a call.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadFile {
    path: String,
    #[serde(default, deserialize_with = "count")]
    offset: Option<NonZeroU64>,
    #[serde(default, deserialize_with = "count")]
    limit: Option<NonZeroU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteFile {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListDirectory {
    path: Option<String>,
    #[serde(default, deserialize_with = "count")]
    depth: Option<NonZeroU64>,
}

/// A positive integer as models write it: `3` or `3.0`.
fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    let Some(number) = Option::<Number>::deserialize(from)? else { return Ok(None) };
    let spelt = number.to_string();
    let whole = number.as_u64().or_else(|| spelt.strip_suffix(".0")?.parse().ok());
    whole
        .and_then(NonZeroU64::new)
        .map(Some)
        .ok_or_else(|| de::Error::custom(format!("{spelt} is not a positive integer")))
}

impl Server {
    pub(crate) async fn read_file(&self, arguments: JsonObject) -> Answer {
        let args: ReadFile = read(arguments)?;
        let window = Window::new(args.offset.map_or(1, NonZeroU64::get), args.limit.map_or(LINES, NonZeroU64::get));
        let mut window = window.hiding(self.session.secrets().mask().map(|mask| mask.stream()));
        let reading = async { window.fill(&args.path, self.session.read_stream(&args.path).await?).await };
        within(reading).await?;
        window.answer().map(text_result)
    }

    pub(crate) async fn write_file(&self, arguments: JsonObject) -> Answer {
        let WriteFile { path, content } = read(arguments)?;
        let bytes = content.len();
        within(self.session.write(&path, content)).await?;
        Ok(text_result(format!("Wrote {bytes} bytes to {}", one_line(&path))))
    }

    pub(crate) async fn list_directory(&self, arguments: JsonObject) -> Answer {
        let ListDirectory { path, depth } = read(arguments)?;
        let depth = depth.map_or(1, NonZeroU64::get);
        if depth > DEPTH {
            return Err(format!("invalid arguments: depth must be from 1 to {DEPTH}"));
        }
        let path = path.filter(|path| !path.is_empty()).unwrap_or_else(|| ".".to_owned());
        within(self.listing(&path, depth)).await.map(text_result)
    }

    /// Lists breadth-first, so that deep entries never displace the entries above them.
    async fn listing(&self, path: &str, depth: u64) -> Result<String, SandboxError> {
        let mut listing = Listing::default();
        let mut waiting = VecDeque::from([(String::new(), depth)]);
        while let Some((below, depth)) = waiting.pop_front() {
            let place = if below.is_empty() { path.to_owned() } else { format!("{path}/{below}") };
            let entries = match self.session.list(place).await {
                Ok(entries) => entries,
                Err(error) if below.is_empty() => return Err(error),
                // The directory was removed, or this user cannot read it; its own line remains in the listing.
                Err(_) => continue,
            };
            for entry in &entries {
                if listing.add(line(&below, entry)).is_break() {
                    return Ok(listing.text());
                }
                let name = entry.name.to_str().filter(|_| depth > 1 && entry.kind == EntryKind::Dir);
                waiting.extend(name.map(|name| (format!("{below}{name}/"), depth - 1)));
            }
        }
        Ok(listing.text())
    }
}

/// Lines of a listing, up to the size of a result.
#[derive(Default)]
struct Listing {
    lines: Vec<String>,
    bytes: usize,
    is_full: bool,
}

impl Listing {
    fn add(&mut self, line: String) -> ControlFlow<()> {
        self.is_full = self.lines.len() == ENTRIES || self.bytes + line.len() >= ANSWER;
        if self.is_full {
            return ControlFlow::Break(());
        }
        self.bytes += line.len() + 1;
        self.lines.push(line);
        ControlFlow::Continue(())
    }

    fn text(mut self) -> String {
        self.lines.sort_unstable();
        if self.is_full {
            self.lines.push("[there is more; list a subdirectory, or use exec_command]".to_owned());
        }
        if self.lines.is_empty() { "[empty]".to_owned() } else { self.lines.join("\n") }
    }
}

/// Runs the work with a time limit.
async fn within<T>(work: impl Future<Output = Result<T, SandboxError>>) -> Result<T, String> {
    let done = timeout(PATIENCE, work).await;
    done.map_err(|_elapsed| "the call took too long; use exec_command".to_owned())?.map_err(refused)
}

/// Formats an entry as one line.
fn line(below: &str, entry: &DirEntry) -> String {
    let path = one_line(&format!("{below}{}", entry.name.to_string_lossy()));
    match entry.kind {
        EntryKind::Dir => format!("{path}/"),
        EntryKind::File => format!("{path} ({} bytes)", entry.size),
        EntryKind::Symlink => {
            let link = entry.link.as_ref().map(|link| one_line(&link.to_string_lossy()));
            format!("{path} -> {}", link.unwrap_or_default())
        }
        EntryKind::Other => format!("{path} (not a file)"),
    }
}

/// The text on one line, without control characters and bidirectional overrides.
pub(crate) fn one_line(text: &str) -> String {
    let is_unsafe = |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().map(|c| if is_unsafe(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listing_is_never_longer_than_a_result() {
        for (length, most) in [(3, ENTRIES), (4000, ANSWER / 4000)] {
            let mut listing = Listing::default();
            let taken = (0..ENTRIES + 1).take_while(|_| listing.add("x".repeat(length)).is_continue()).count();
            assert!((most - 1..=most).contains(&taken), "{taken} of {length} bytes");
            let text = listing.text();
            assert!(text.len() < ANSWER + 100 && text.contains("[there is more"), "{}", text.len());
        }
    }

    #[test]
    fn a_count_is_a_positive_integer() {
        let offset = |value: serde_json::Value| {
            let args: Result<ReadFile, _> = serde_json::from_value(json!({"path": "a", "offset": value}));
            args.ok().map(|args| args.offset.map(NonZeroU64::get))
        };
        for (value, expected) in [(json!(null), None), (json!(3), Some(3)), (json!(3.0), Some(3))] {
            assert_eq!(offset(value.clone()), Some(expected), "{value}");
        }
        for value in [json!(0), json!(0.0), json!(-1), json!(1.5), json!(1e300), json!("3"), json!([])] {
            assert_eq!(offset(value.clone()), None, "{value}");
        }
    }
}
