//! A Rust file taken apart just far enough: code without comments and strings, and the strings by themselves.

/// One file's code, and the literals that were cut out of it.
pub(super) struct Source {
    /// As long as the text, line for line and byte for byte; comments and the insides of literals are spaces.
    pub(super) code: String,
    pub(super) strings: Vec<Literal>,
}

/// A string literal: where its content starts, and what it says as written.
pub(super) struct Literal {
    pub(super) offset: usize,
    pub(super) content: String,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let mut parser = Parser { text, code: text.as_bytes().to_vec(), strings: Vec::new(), at: 0 };
        parser.run();
        Self { code: String::from_utf8(parser.code).unwrap_or_default(), strings: parser.strings }
    }

    /// The line of an offset, counted from one.
    pub(super) fn line_of(&self, offset: usize) -> usize {
        self.code.as_bytes()[..offset].iter().filter(|byte| **byte == b'\n').count() + 1
    }

    /// How many lines come before the module of unit tests.
    pub(super) fn production_lines(&self) -> usize {
        let lines: Vec<&str> = self.code.lines().map(str::trim).collect();
        let is_tests = |at: usize| {
            let test_only = lines[at].starts_with("#[cfg(test)]") || lines[at].starts_with("#[cfg(all(test");
            let item = lines[at + 1..].iter().find(|line| !line.is_empty() && !line.starts_with("#["));
            test_only && item.is_some_and(|item| item.contains("mod ") && item.ends_with('{'))
        };
        (0..lines.len()).find(|at| is_tests(*at)).unwrap_or(lines.len())
    }

    /// Every place where a word stands by itself in the code.
    pub(super) fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.code.match_indices(word).map(|(at, _)| at).filter(move |at| {
            let before = self.code[..*at].chars().next_back();
            let after = self.code[at + word.len()..].chars().next();
            !before.is_some_and(is_ident) && !after.is_some_and(is_ident)
        })
    }
}

pub(super) fn is_ident(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Parser<'a> {
    text: &'a str,
    code: Vec<u8>,
    strings: Vec<Literal>,
    at: usize,
}

impl Parser<'_> {
    fn run(&mut self) {
        while let Some(next) = self.rest().chars().next() {
            match next {
                '/' if self.rest().starts_with("//") => self.blank_until(self.line_end()),
                '/' if self.rest().starts_with("/*") => self.blank_until(self.comment_end()),
                '"' => self.string(),
                '\'' => self.quote(),
                c if is_ident(c) => self.word(),
                c => self.at += c.len_utf8(),
            }
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn line_end(&self) -> usize {
        self.rest().find('\n').map_or(self.text.len(), |length| self.at + length)
    }

    /// The end of a block comment; they nest.
    fn comment_end(&self) -> usize {
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (self.at, 0);
        while at < bytes.len() {
            match (bytes[at], bytes.get(at + 1)) {
                (b'/', Some(b'*')) => (at, depth) = (at + 2, depth + 1),
                (b'*', Some(b'/')) => (at, depth) = (at + 2, depth - 1),
                _ => at += 1,
            }
            if depth == 0 {
                return at;
            }
        }
        bytes.len()
    }

    /// A word, which may turn out to be the prefix of a raw string: `r"`, `br##"`, `cr"`.
    fn word(&mut self) {
        let length = self.rest().find(|c| !is_ident(c)).unwrap_or(self.rest().len());
        let word = &self.text[self.at..self.at + length];
        let raw = matches!(word, "r" | "br" | "cr");
        self.at += length;
        let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
        if raw && self.rest()[hashes..].starts_with('"') {
            self.at += hashes;
            self.raw_string(hashes);
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        let end = format!("\"{}", "#".repeat(hashes));
        let length = self.rest()[1..].find(&end).unwrap_or(self.rest().len() - 1);
        self.literal(length);
        self.at = (self.at + end.len()).min(self.text.len());
    }

    fn string(&mut self) {
        let inside = &self.rest()[1..];
        let mut escaped = false;
        let length = inside.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        self.literal(length.unwrap_or(inside.len()));
        self.at = (self.at + 1).min(self.text.len());
    }

    /// Keeps a literal of this length, which opens with the quote at hand, and blanks it.
    fn literal(&mut self, length: usize) {
        let offset = self.at + 1;
        let content = self.text[offset..offset + length].to_owned();
        self.strings.push(Literal { offset, content });
        self.at = offset;
        self.blank_until(offset + length);
    }

    /// A character literal or a lifetime.
    fn quote(&mut self) {
        let mut inside = self.rest()[1..].chars();
        let first = inside.next().unwrap_or('\'');
        let length = match (first, inside.next()) {
            ('\\', Some(escaped)) => {
                let skip = 1 + escaped.len_utf8();
                self.rest()[1 + skip..].find('\'').map(|more| skip + more)
            }
            (_, Some('\'')) => Some(first.len_utf8()),
            _ => None,
        };
        self.at += 1;
        if let Some(length) = length {
            self.blank_until(self.at + length);
            self.at += 1;
        }
    }

    fn blank_until(&mut self, end: usize) {
        for byte in &mut self.code[self.at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        self.at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, code: &str, strings: &[&str]) {
        let source = Source::parse(text);
        let words: Vec<&str> = source.code.split_whitespace().collect();
        assert_eq!(words.join(" "), code);
        assert_eq!(source.code.len(), text.len());
        let found: Vec<&str> = source.strings.iter().map(|literal| literal.content.as_str()).collect();
        assert_eq!(found, strings);
        for literal in &source.strings {
            assert!(text[literal.offset..].starts_with(&literal.content));
        }
    }

    #[test]
    fn comments_and_strings_leave_the_code() {
        check("a // b\nc /* d /* e */ f */ g", "a c g", &[]);
        check(r#"f("x \" // y", b"z")"#, r#"f(" ", b" ")"#, &[r#"x \" // y"#, "z"]);
        check("r#\"a \"quoted\" b\"# + r\"c\" + r#match", "r#\" \"# + r\" \" + r#match", &["a \"quoted\" b", "c"]);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        check("fn f<'a>(x: &'a str) { '\"' }", "fn f<'a>(x: &'a str) { ' ' }", &[]);
        check(r"['\'', '\\', '\u{41}', 'é', 'x']", "[' ', ' ', ' ', ' ', ' ']", &[]);
    }

    #[test]
    fn a_file_cut_short_is_no_reason_to_panic() {
        for text in ["\"abc", "r#\"abc", "/* abc", "'", "'\\", "b'", "\"\\", "r\"", "é\"é"] {
            assert_eq!(Source::parse(text).code.len(), text.len(), "{text}");
        }
    }

    #[test]
    fn production_ends_where_the_test_module_starts() {
        let lines = |text: &str| Source::parse(text).production_lines();
        assert_eq!(lines("fn a() {}\n\n#[cfg(test)]\nmod tests {\n}\n"), 2);
        assert_eq!(lines("#[cfg(test)]\nmod tests;\nfn a() {}\n"), 3);
        assert_eq!(lines("#[cfg(test)]\nfn only_for_tests() {\n}\nfn a() {}\n"), 4);
        assert_eq!(lines("a\n#[cfg(all(test, unix))]\n#[allow(x)]\npub(crate) mod tests {\n}\n"), 1);
    }
}
