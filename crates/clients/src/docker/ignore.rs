//! A `.dockerignore` file: which files of a directory are not sent to the engine.

use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

const NAME: &str = ".dockerignore";
/// Maximum size of the file in bytes.
const LIMIT: u64 = 1 << 20;

/// The excluded paths. The last pattern that matches a path, or a directory above it, decides.
#[derive(Debug, Default)]
pub(super) struct Ignore {
    patterns: Vec<Pattern>,
    /// Files that the engine needs, whatever the patterns say.
    needed: Vec<PathBuf>,
}

#[derive(Debug)]
struct Pattern {
    keeps: bool,
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Eq)]
enum Part {
    Letter(char),
    /// `?`
    One,
    /// `*`: within a name.
    Some,
    /// `**` at the end, or before anything but a slash.
    All,
    /// `**/`: any directories, or none.
    Above,
    /// `[a-z]`, `[^a-z]`
    Of {
        ranges: Vec<(char, char)>,
        others: bool,
    },
}

impl Ignore {
    /// Reads the file of this directory; without one, nothing is excluded.
    pub(super) fn read(directory: &Path, dockerfile: &str) -> io::Result<Self> {
        let file = match fs::File::open(directory.join(NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(LIMIT + 1).read_to_end(&mut text)?;
        if text.len() as u64 > LIMIT {
            return Err(io::Error::other(format!("{NAME} is larger than 1 MiB")));
        }
        let mut ignore = Self::parse(&String::from_utf8_lossy(&text));
        ignore.needed = [dockerfile, NAME].map(|path| cleaned(path).into()).into();
        Ok(ignore)
    }

    fn parse(text: &str) -> Self {
        let lines = text.trim_start_matches('\u{feff}').lines().filter(|line| !line.starts_with('#')).map(str::trim);
        let patterns = lines.filter_map(|line| {
            let (keeps, line) = line.strip_prefix('!').map_or((false, line), |line| (true, line.trim()));
            let line = cleaned(line);
            (!line.is_empty()).then(|| Pattern { keeps, parts: parts(&line) })
        });
        Self { patterns: patterns.collect(), needed: Vec::new() }
    }

    /// Whether a path, relative to the directory, is excluded.
    pub(super) fn leaves_out(&self, path: &Path) -> bool {
        if self.needed.iter().any(|needed| needed == path) {
            return false;
        }
        let path: Vec<char> = path.to_string_lossy().chars().collect();
        let last = self.patterns.iter().rev().find(|pattern| pattern.fits(&path));
        last.is_some_and(|pattern| !pattern.keeps)
    }

    /// Whether a file below an excluded directory may have to be sent.
    pub(super) fn keeps_below(&self, directory: &Path) -> bool {
        self.patterns.iter().any(|pattern| pattern.keeps) || self.needed.iter().any(|path| path.starts_with(directory))
    }
}

/// A path relative to the directory, without `.`, `..` and empty parts.
fn cleaned(line: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for name in line.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(kept.pop()),
            name => kept.push(name),
        }
    }
    kept.join("/")
}

fn parts(line: &str) -> Vec<Part> {
    let mut rest: Vec<char> = line.chars().rev().collect();
    let mut parts = Vec::new();
    while let Some(letter) = rest.pop() {
        parts.push(match letter {
            '*' if rest.last() == Some(&'*') => {
                while rest.last() == Some(&'*') {
                    rest.pop();
                }
                if rest.last() == Some(&'/') {
                    rest.pop();
                    Part::Above
                } else {
                    Part::All
                }
            }
            '*' => Part::Some,
            '?' => Part::One,
            '[' => class(&mut rest),
            '\\' => Part::Letter(rest.pop().unwrap_or('\\')),
            letter => Part::Letter(letter),
        });
    }
    parts
}

/// Reads a class up to its closing bracket; an unclosed bracket is a literal.
fn class(rest: &mut Vec<char>) -> Part {
    let Some(end) = rest.iter().rposition(|letter| *letter == ']') else { return Part::Letter('[') };
    let mut inside: Vec<char> = rest.drain(end..).skip(1).collect();
    let others = inside.pop_if(|letter| *letter == '^').is_some();
    let mut ranges = Vec::new();
    while let Some(first) = inside.pop() {
        let first = if first == '\\' { inside.pop().unwrap_or(first) } else { first };
        let last = if inside.len() > 1 && inside.last() == Some(&'-') {
            inside.pop();
            inside.pop().unwrap_or(first)
        } else {
            first
        };
        ranges.push((first, last));
    }
    Part::Of { ranges, others }
}

impl Pattern {
    /// Whether the pattern matches a path or a directory above it. All alternatives are followed at once, so that the
    /// cost is bounded by the pattern's length times the path's.
    fn fits(&self, path: &[char]) -> bool {
        let end = self.parts.len();
        let mut at = vec![false; end + 1];
        self.enter(&mut at, 0);
        for letter in path {
            if *letter == '/' && at[end] {
                return true;
            }
            let mut next = vec![false; end + 1];
            for (index, part) in self.parts.iter().enumerate().filter(|(index, _)| at[*index]) {
                let is_inside = *letter != '/';
                match part {
                    Part::Letter(wanted) if wanted == letter => self.enter(&mut next, index + 1),
                    Part::One if is_inside => self.enter(&mut next, index + 1),
                    Part::Of { ranges, others } if is_inside => {
                        let is_among = ranges.iter().any(|(first, last)| (first..=last).contains(&letter));
                        if is_among != *others {
                            self.enter(&mut next, index + 1);
                        }
                    }
                    Part::Some if is_inside => self.enter(&mut next, index),
                    Part::All => self.enter(&mut next, index),
                    Part::Above => {
                        // `**/` ends only after a slash.
                        next[index] = true;
                        if !is_inside {
                            self.enter(&mut next, index + 1);
                        }
                    }
                    _ => {}
                }
            }
            at = next;
        }
        at[end]
    }

    /// Marks a position, and those after it as long as the parts between may be empty.
    fn enter(&self, at: &mut [bool], from: usize) {
        for (index, place) in at.iter_mut().enumerate().skip(from) {
            // If the position was already marked, the positions after it are too.
            let was_there = std::mem::replace(place, true);
            if was_there || !matches!(self.parts.get(index), Some(Part::Some | Part::All | Part::Above)) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_as_an_engine_would_say() {
        let table: &[(&str, &[&str], &[&str])] = &[
            ("target", &["target", "target/debug/x"], &["src/target", "targets", "a"]),
            ("/target/", &["target", "target/x"], &["src/target"]),
            ("*.log", &["a.log", ".log"], &["a/b.log", "a.logs"]),
            ("**/*.log", &["a.log", "a/b.log", "a/b/c.log"], &["a/b.txt"]),
            ("*/temp*", &["a/temp", "a/temporary/x"], &["temp", "a/b/temp"]),
            ("a/**", &["a/b", "a/b/c"], &["b/a"]),
            ("a/**/z", &["a/z", "a/b/z", "a/b/c/z"], &["a/bz", "z"]),
            ("temp?", &["tempa", "tempé"], &["temp", "temp/"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "x"]),
            ("[^a]x", &["bx"], &["ax", "/x"]),
            (r"\*", &["*"], &["a"]),
            ("x[", &["x["], &["x"]),
            ("./a/../b", &["b"], &["a"]),
            ("../b", &["b"], &["a/b"]),
        ];
        for (pattern, left_out, sent) in table {
            let ignore = Ignore::parse(pattern);
            for path in *left_out {
                assert!(ignore.leaves_out(Path::new(path)), "{pattern} {path}");
            }
            for path in *sent {
                assert!(!ignore.leaves_out(Path::new(path)), "{pattern} {path}");
            }
        }
    }

    #[test]
    fn the_last_pattern_that_fits_decides() {
        let ignore = Ignore::parse("# all of it\n*\n!src\nsrc/*.o\n ! src/keep.o \n\n!\n");
        let sent = |path: &str| !ignore.leaves_out(Path::new(path));
        assert!(sent("src") && sent("src/a.c") && sent("src/keep.o"));
        assert!(!sent("a") && !sent("src/a.o") && !sent("#"));
        assert!(ignore.keeps_below(Path::new("a")) && !Ignore::parse("a").keeps_below(Path::new("a")));
    }

    #[test]
    fn files_that_the_engine_needs_are_always_sent() {
        let place = tempfile::tempdir().expect("a directory");
        fs::write(place.path().join(NAME), "*\n").expect("write");
        let ignore = Ignore::read(place.path(), "./docker/Dockerfile").expect("read");
        for path in [NAME, "docker/Dockerfile"] {
            assert!(!ignore.leaves_out(Path::new(path)), "{path}");
        }
        assert!(ignore.leaves_out(Path::new("docker/other")) && ignore.keeps_below(Path::new("docker")));
        assert!(!ignore.keeps_below(Path::new("src")));
        fs::write(place.path().join(NAME), vec![b'x'; 2 << 20]).expect("write");
        Ignore::read(place.path(), "Dockerfile").expect_err("too long");
    }

    #[test]
    fn no_pattern_takes_long() {
        let begun = std::time::Instant::now();
        for costly in ["*a", "**/", "**/*"] {
            let ignore = Ignore::parse(&format!("{}x", costly.repeat(5000)));
            assert!(!ignore.leaves_out(Path::new(&"a".repeat(1500))));
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
