//! Manual pages, made from the help texts that the program prints: one for each of its commands.

use std::{fmt::Write as _, path::Path, process::Command};

use super::{VERSION, output};
use crate::program::Result;

/// Descriptions begin here; what an entry is called begins further left.
const INDENT: usize = 10;

/// File names and texts of all pages.
pub(super) fn pages(program: &Path) -> Result<Vec<(String, String)>> {
    let mut pages = Vec::new();
    let mut ahead = vec![Vec::<String>::new()];
    while let Some(words) = ahead.pop() {
        let help = output(Command::new(program).args(&words).arg("--help"))?;
        let help = Help::read(&help);
        for command in help.commands() {
            ahead.push([words.as_slice(), &[command.to_owned()]].concat());
        }
        let name = [&["sandbar".to_owned()], words.as_slice()].concat().join("-");
        pages.push((format!("{name}.1"), help.page(&name)));
    }
    pages.sort();
    Ok(pages)
}

/// A help text in its parts.
struct Help<'a> {
    /// What stands before the usage.
    about: Vec<&'a str>,
    usage: &'a str,
    /// Headings, each with its lines.
    sections: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Help<'a> {
    fn read(text: &'a str) -> Self {
        let mut help = Self { about: Vec::new(), usage: "", sections: Vec::new() };
        for line in text.lines() {
            let heading = line.strip_suffix(':').filter(|heading| !heading.starts_with(' '));
            if let Some(usage) = line.strip_prefix("Usage: ") {
                help.usage = usage;
            } else if help.usage.is_empty() {
                help.about.push(line);
            } else if let Some(heading) = heading {
                help.sections.push((heading, Vec::new()));
            } else if let Some((_, lines)) = help.sections.last_mut() {
                lines.push(line);
            }
        }
        help
    }

    /// The commands that have a page of their own.
    fn commands(&self) -> Vec<&'a str> {
        let lines = self.sections.iter().filter(|(heading, _)| *heading == "Commands").flat_map(|(_, lines)| lines);
        let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
        names.filter(|name| *name != "help").collect()
    }

    fn page(&self, name: &str) -> String {
        let paragraphs = paragraphs(&self.about);
        let summary = paragraphs.first().map_or("", |first| first.trim_end_matches('.'));
        let mut page = format!(
            ".TH {} 1 \"\" \"sandbar {VERSION}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n",
            escaped(&name.to_uppercase()),
            escaped(name),
            escaped(summary),
            escaped(self.usage)
        );
        let details: Vec<String> = paragraphs.iter().skip(1).map(|paragraph| escaped(paragraph)).collect();
        if !details.is_empty() {
            let _infallible = writeln!(page, ".SH DESCRIPTION\n{}", details.join("\n.PP\n"));
        }
        for (heading, lines) in &self.sections {
            let _infallible = writeln!(page, ".SH {}", escaped(&heading.to_uppercase()));
            match *heading {
                "Commands" => page.push_str(&commands(name, lines)),
                "Examples" | "Exit codes" => page.push_str(&literal(lines)),
                _ => page.push_str(&entries(lines)),
            }
        }
        if let Some((above, _)) = name.rsplit_once('-') {
            let _infallible = writeln!(page, ".SH SEE ALSO\n.BR {} (1)", escaped(above));
        }
        page
    }
}

/// Lines joined to paragraphs, which empty lines separate.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    let paragraphs = lines.split(|line| line.trim().is_empty());
    let joined = paragraphs.map(|lines| lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" "));
    joined.filter(|paragraph| !paragraph.is_empty()).collect()
}

/// Commands with the names of their pages.
fn commands(above: &str, lines: &[&str]) -> String {
    let mut text = String::new();
    for line in lines {
        match line.strip_prefix("  ").filter(|line| !line.starts_with(' ')).and_then(|line| line.split_once(' ')) {
            Some(("help", _)) => break,
            Some((name, about)) => {
                let page = escaped(&format!("{above}-{name}"));
                let _infallible = writeln!(text, ".TP\n.BR {page} (1)\n{}", escaped(about.trim()));
            }
            None if line.trim().is_empty() => {}
            None => {
                let _infallible = writeln!(text, "{}", escaped(line.trim()));
            }
        }
    }
    text
}

/// Arguments and options: what each is called, and its description below.
fn entries(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut is_apart = false;
    for line in lines {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if line.is_empty() {
            is_apart = true;
            continue;
        }
        if indent < INDENT {
            let _infallible = writeln!(text, ".TP\n\\fB{}\\fR", escaped(line));
        } else {
            // A list of values has a line for each.
            let request = if line.starts_with("- ") {
                ".br\n"
            } else if is_apart {
                ".IP\n"
            } else {
                ""
            };
            let _infallible = writeln!(text, "{request}{}", escaped(line));
        }
        is_apart = false;
    }
    text
}

fn literal(lines: &[&str]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| escaped(line.strip_prefix("  ").unwrap_or(line))).collect();
    format!(".nf\n{}\n.fi\n", lines.join("\n").trim_end())
}

/// Text that means itself: no request at the start of a line, no escape, hyphens that can be copied, and other letters by number.
fn escaped(text: &str) -> String {
    let letter = |letter: char| match letter {
        '\\' => "\\e".to_owned(),
        '-' => "\\-".to_owned(),
        _ if letter.is_ascii() => letter.to_string(),
        _ => format!("\\[u{:04X}]", u32::from(letter)),
    };
    let text: String = text.chars().map(letter).collect();
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Run a command
in a sandbox.

It ends.

Usage: sandbar exec [OPTIONS] -- <COMMAND>

Commands:
  one   The first,
        on two lines
  help  Print this

Options:
  -v, --verbose...
          Log more

          Possible values:
          - a: A
      --json
          Print JSON

Examples:
  .hidden -- 'a\\b'
";

    #[test]
    fn a_page_has_the_parts_of_the_help_text() {
        let page = Help::read(HELP).page("sandbar-exec");
        let expected = ".TH SANDBAR\\-EXEC 1 \"\" \"sandbar VERSION\"
.SH NAME
sandbar\\-exec \\- Run a command in a sandbox
.SH SYNOPSIS
sandbar exec [OPTIONS] \\-\\- <COMMAND>
.SH DESCRIPTION
It ends.
.SH COMMANDS
.TP
.BR sandbar\\-exec\\-one (1)
The first,
on two lines
.SH OPTIONS
.TP
\\fB\\-v, \\-\\-verbose...\\fR
Log more
.IP
Possible values:
.br
\\- a: A
.TP
\\fB\\-\\-json\\fR
Print JSON
.SH EXAMPLES
.nf
\\&.hidden \\-\\- 'a\\eb'
.fi
.SH SEE ALSO
.BR sandbar (1)
";
        assert_eq!(page, expected.replace("VERSION", VERSION));
    }

    #[test]
    fn other_letters_are_written_by_number() {
        assert_eq!(escaped("a — b"), "a \\[u2014] b");
    }

    #[test]
    fn commands_have_pages_but_help_has_none() {
        assert_eq!(Help::read(HELP).commands(), ["one"]);
    }
}
