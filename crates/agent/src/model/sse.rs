//! Decoder of server-sent events with bounded memory. The bytes may arrive in pieces of any size.

use std::ops::Range;

use crate::ModelError;

/// Default limit of a line and of an event, in bytes. The last event of a stream repeats the whole reply, including
/// pictures.
const USUAL_LIMIT: usize = 32 << 20;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Decodes the bytes of an event stream into events. How the bytes are split makes no difference.
///
/// ```
/// use sandbar_agent::SseDecoder;
///
/// let mut decoder = SseDecoder::new();
/// decoder.push(b"event: greeting\ndata: {\"text\":");
/// assert!(decoder.next_event()?.is_none());
/// decoder.push(b"\"hi\"}\n\n");
/// let event = decoder.next_event()?.expect("a whole event");
/// assert_eq!((event.name, event.data), (Some("greeting"), &br#"{"text":"hi"}"#[..]));
/// # Ok::<(), sandbar_agent::ModelError>(())
/// ```
#[derive(Debug)]
pub struct SseDecoder {
    /// Received bytes. Those before `event` are used; the next `push` drops them.
    buffer: Vec<u8>,
    /// Start of the current event.
    event: usize,
    /// Start of the current line.
    line: usize,
    /// Where the search for the end of the line continues.
    scan: usize,
    name: Option<Range<usize>>,
    data: Data,
    joined: Vec<u8>,
    after_return: bool,
    opening: bool,
    max_line: usize,
    max_event: usize,
}

/// Data of the current event.
#[derive(Debug)]
enum Data {
    None,
    /// One line, which is the usual case; not copied out of the buffer.
    Line(Range<usize>),
    /// Several lines, in `joined`.
    Joined,
}

/// One event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The `event` field, if it is valid UTF-8.
    pub name: Option<&'a str>,
    /// The `data` field. Not checked to be UTF-8.
    pub data: &'a [u8],
}

impl SseEvent<'_> {
    /// Whether this is `[DONE]`, with which some servers end a stream.
    #[must_use]
    pub fn is_done_mark(&self) -> bool {
        self.data.trim_ascii() == b"[DONE]"
    }
}

impl Default for SseDecoder {
    fn default() -> Self {
        Self::with_limits(USUAL_LIMIT, USUAL_LIMIT)
    }
}

impl SseDecoder {
    /// A decoder for a new stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder with other limits, in bytes.
    #[must_use]
    pub fn with_limits(max_line: usize, max_event: usize) -> Self {
        Self {
            buffer: Vec::new(),
            event: 0,
            line: 0,
            scan: 0,
            name: None,
            data: Data::None,
            joined: Vec::new(),
            after_return: false,
            opening: true,
            max_line,
            max_event,
        }
    }

    /// Adds bytes of the stream. Take all complete events before the next push; otherwise the limits do not hold.
    pub fn push(&mut self, bytes: &[u8]) {
        self.drop_used();
        self.buffer.extend_from_slice(bytes);
    }

    /// The next event, if it is complete.
    ///
    /// # Errors
    /// [`ModelError::Malformed`] when a line or an event is longer than allowed.
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, ModelError> {
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                if self.close_event() {
                    return Ok(self.current());
                }
            } else {
                self.field(line);
            }
        }
        Ok(None)
    }

    /// The last event of a stream that ended without closing it; the event may be cut.
    ///
    /// # Errors
    /// As [`next_event`](Self::next_event).
    pub fn finish(&mut self) -> Result<Option<SseEvent<'_>>, ModelError> {
        self.push(b"\n\n");
        self.next_event()
    }

    /// Number of buffered bytes.
    #[must_use]
    pub fn held(&self) -> usize {
        self.buffer.len() + self.joined.len()
    }

    /// The next line without its end, which is `\n`, `\r` or `\r\n`.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, ModelError> {
        if self.after_return && self.scan < self.buffer.len() {
            self.after_return = false;
            if self.buffer[self.scan] == b'\n' {
                self.scan += 1;
                self.line = self.scan;
            }
        }
        let end = self.buffer[self.scan..].iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        let end = end.map(|found| self.scan + found);
        let reached = end.unwrap_or(self.buffer.len());
        self.check(reached)?;
        self.scan = reached;
        let Some(end) = end else { return Ok(None) };
        let mut line = self.line..end;
        self.after_return = self.buffer[end] == b'\r';
        self.scan = end + 1;
        self.line = self.scan;
        if self.opening {
            self.opening = false;
            if self.buffer[line.clone()].starts_with(BOM) {
                line.start += BOM.len();
            }
        }
        Ok(Some(line))
    }

    fn check(&self, reached: usize) -> Result<(), ModelError> {
        let (line, event) = (self.line.saturating_add(self.max_line), self.event.saturating_add(self.max_event));
        if reached <= line.min(event) {
            return Ok(());
        }
        // The limit that comes first in the stream, so that the error does not depend on how the bytes are split.
        let (what, limit) = if line <= event { ("a line", self.max_line) } else { ("an event", self.max_event) };
        Err(ModelError::Malformed(format!("{what} of its event stream is longer than {limit} bytes")))
    }

    fn field(&mut self, line: Range<usize>) {
        let text = &self.buffer[line.clone()];
        let colon = text.iter().take(6).position(|byte| *byte == b':').unwrap_or(text.len());
        let space = usize::from(text.get(colon + 1) == Some(&b' '));
        let value = (line.start + colon + 1 + space).min(line.end)..line.end;
        match &text[..colon] {
            b"data" => self.add_data(value),
            b"event" => self.name = Some(value),
            // Keep-alive comments before an event must not count towards its size.
            b"" if matches!(self.data, Data::None) && self.name.is_none() => self.event = self.line,
            _ => {}
        }
    }

    fn add_data(&mut self, value: Range<usize>) {
        match &self.data {
            Data::None => {
                self.data = Data::Line(value);
                return;
            }
            Data::Line(first) => {
                self.joined.clear();
                self.joined.extend_from_slice(&self.buffer[first.clone()]);
                self.data = Data::Joined;
            }
            Data::Joined => {}
        }
        self.joined.push(b'\n');
        self.joined.extend_from_slice(&self.buffer[value]);
    }

    /// Ends the event. Returns whether it has data; without data there is no event.
    fn close_event(&mut self) -> bool {
        self.event = self.line;
        let is_event = !matches!(self.data, Data::None);
        if !is_event {
            self.name = None;
        }
        is_event
    }

    /// Takes the event that was just closed.
    fn current(&mut self) -> Option<SseEvent<'_>> {
        let name = self.name.take().and_then(|name| str::from_utf8(&self.buffer[name]).ok());
        let data = match std::mem::replace(&mut self.data, Data::None) {
            Data::None => return None,
            Data::Line(line) => &self.buffer[line],
            Data::Joined => &self.joined,
        };
        Some(SseEvent { name, data })
    }

    fn drop_used(&mut self) {
        let used = self.event;
        if used == 0 {
            return;
        }
        self.buffer.drain(..used);
        self.event = 0;
        self.line -= used;
        self.scan -= used;
        let line = if let Data::Line(line) = &mut self.data { Some(line) } else { None };
        for range in self.name.as_mut().into_iter().chain(line) {
            *range = range.start - used..range.end - used;
        }
    }
}

#[cfg(test)]
mod tests;
