//! A range of lines of a file, read from a stream, with bounded size.

use futures::StreamExt;
use sandbar::{SandboxError, machine::ByteStream, sandbox::MaskStream};

/// Maximum size of a result: as for the output of a command, 10,000 tokens.
pub(crate) const ANSWER: usize = 40_000;

/// Maximum number of bytes to skip in search of the first line.
const SEARCH: u64 = 256 << 20;

/// The requested lines. Secret values are masked before lines are counted and cut, because a cut could leave half a value; a
/// masked value of several lines counts as one line.
pub(crate) struct Window {
    first: u64,
    wanted: u64,
    /// Number of the next line.
    line: u64,
    /// Whether a part of that line was read.
    is_open: bool,
    kept: Vec<u8>,
    end: End,
    mask: Option<MaskStream>,
}

/// Why the window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// End of the file.
    File,
    /// The requested number of lines was read.
    Lines,
    /// The result is full.
    Full,
    /// The first line is too far into the file.
    TooFar,
}

impl Window {
    pub(crate) fn new(first: u64, wanted: u64) -> Self {
        Self { first, wanted, line: 1, is_open: false, kept: Vec::new(), end: End::File, mask: None }
    }

    /// Masks these secret values.
    pub(crate) fn hiding(self, mask: Option<MaskStream>) -> Self {
        Self { mask, ..self }
    }

    pub(crate) async fn fill(&mut self, path: &str, mut file: ByteStream) -> Result<(), SandboxError> {
        let mut passed = 0;
        while let Some(piece) = file.next().await {
            let piece = piece.map_err(|cause| SandboxError::reading(path, cause))?;
            passed += piece.len() as u64;
            self.push(&piece);
            if self.end == End::File && passed > SEARCH {
                self.end = End::TooFar;
            }
            if self.end != End::File {
                return Ok(());
            }
        }
        self.finish();
        Ok(())
    }

    fn push(&mut self, piece: &[u8]) {
        match &mut self.mask {
            Some(mask) => {
                let shown = mask.push(piece);
                self.take(&shown);
            }
            None => self.take(piece),
        }
    }

    /// Takes the rest that the mask withheld as a possible value.
    fn finish(&mut self) {
        if let Some(mask) = &mut self.mask {
            let rest = mask.finish();
            self.take(&rest);
        }
    }

    fn take(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let end = piece.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let (head, rest) = piece.split_at(end.unwrap_or(piece.len()));
            if self.line >= self.first {
                if self.line - self.first >= self.wanted {
                    self.end = End::Lines;
                    return;
                }
                let room = ANSWER - self.kept.len();
                self.kept.extend_from_slice(&head[..head.len().min(room)]);
                if head.len() > room {
                    self.end = End::Full;
                    return;
                }
            }
            self.line += u64::from(end.is_some());
            self.is_open = end.is_none();
            piece = rest;
        }
    }

    /// Text for the model.
    pub(crate) fn answer(self) -> Result<String, String> {
        let Self { first, line, kept, end, is_open, .. } = self;
        if kept.contains(&0) {
            return Err("the file is not a text file; use exec_command, or view_image for an image".to_owned());
        }
        if end == End::TooFar {
            return Err(format!("line {first} is more than 256 MiB into the file; use exec_command"));
        }
        if kept.is_empty() && first > 1 {
            return Err(format!("there is no line {first}; the file has {} lines", line - 1 + u64::from(is_open)));
        }
        let mut text = String::from_utf8_lossy(&kept).into_owned();
        let break_before = if text.ends_with('\n') { "" } else { "\n" };
        let note = match end {
            End::File | End::TooFar => return Ok(text),
            End::Lines => format!("{break_before}[there is more; continue with offset {line}]"),
            End::Full if line == first => {
                format!("{break_before}[line {line} is longer than a result; use exec_command for the rest]")
            }
            End::Full => {
                // The last line is incomplete: continue at its beginning.
                text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
                format!("[there is more; continue with offset {line}]")
            }
        };
        Ok(text + &note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str, first: u64, wanted: u64) -> Result<String, String> {
        looking(&sandbar::SecretStore::new(), text, first, wanted)
    }

    fn looking(secrets: &sandbar::SecretStore, text: &str, first: u64, wanted: u64) -> Result<String, String> {
        let mut answers = Vec::new();
        for size in [1, 3, text.len().max(1)] {
            let mut window = Window::new(first, wanted).hiding(secrets.mask().map(|mask| mask.stream()));
            for piece in text.as_bytes().chunks(size) {
                if window.end == End::File {
                    window.push(piece);
                }
            }
            if window.end == End::File {
                window.finish();
            }
            answers.push(window.answer());
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{text:?} depends on how it comes");
        answers.remove(0)
    }

    #[test]
    fn a_range_of_lines_is_read() {
        let table = [
            ("", 1, 5, Ok("")),
            ("a\nb\n", 1, 5, Ok("a\nb\n")),
            ("a\nb", 1, 5, Ok("a\nb")),
            ("a\nb\nc\n", 2, 1, Ok("b\n[there is more; continue with offset 3]")),
            ("a\nb\nc\n", 3, 1, Ok("c\n")),
            ("a\nb\nc", 3, u64::MAX, Ok("c")),
            ("a\nb\nc\n", 4, 1, Err("there is no line 4; the file has 3 lines")),
            ("a\nb\nc", u64::MAX, 1, Err("there is no line 18446744073709551615; the file has 3 lines")),
        ];
        for (text, first, wanted, expected) in table {
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(window(text, first, wanted), expected, "{text:?} {first} {wanted}");
        }
        assert!(window("a\0b\n", 1, 1).is_err_and(|text| text.contains("not a text file")));
    }

    #[test]
    fn a_cut_never_leaves_a_part_of_a_secret() {
        let value = "first-half-second-half";
        let secrets = sandbar::SecretStore::new().with("TOKEN", value).with("KEY", "line-one\nline-two\n");
        for before in ANSWER - value.len() - 8..=ANSWER + 1 {
            let text = format!("{}{value}{}", "x".repeat(before), "y".repeat(100));
            let shown = looking(&secrets, &text, 1, 1).expect("text");
            assert!(!shown.contains("first"), "{before}: {}", &shown[before..]);
        }
        for first in 1..=3 {
            let shown = looking(&secrets, "a\nline-one\nline-two\nb\nc\n", first, 1).expect("text");
            assert!(!shown.contains("line-"), "{first}: {shown}");
        }
        // A prefix of a value is shown, also at the end of the file.
        assert_eq!(looking(&secrets, "a\nfirst-half", 2, 9), Ok("first-half".to_owned()));
    }

    #[test]
    fn a_result_is_never_longer_than_its_limit() {
        let long = "x".repeat(ANSWER + 10);
        let text = window(&long, 1, 1).expect("text");
        assert!(text.len() < ANSWER + 200 && text.contains("longer than a result"), "{}", text.len());
        let many = "0123456789\n".repeat(ANSWER);
        let text = window(&many, 5, u64::MAX).expect("text");
        let kept = ANSWER / 11;
        assert!(
            text.ends_with(&format!("9\n[there is more; continue with offset {}]", 5 + kept)),
            "{}",
            &text[text.len() - 80..]
        );
    }
}
