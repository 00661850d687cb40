//! A patch as coloured lines: files, removed and added lines.

use sandbar::sandbox::patch::{HunkLine, Operation, Patch};

use super::{line::Line, sanitize, surface::Glyphs};
use crate::render::Style;

/// A patch as lines.
#[derive(Clone, Debug)]
pub(super) struct Diff {
    /// One line per changed file.
    pub files: Vec<Line>,
    pub lines: Vec<Line>,
}

/// Options for reading a patch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadOptions {
    /// Sanitizer for a line of text.
    pub spell: fn(&str) -> String,
    /// Maximum number of lines, checked after each file.
    pub most: usize,
}

/// Options for a live view.
pub(super) const PASSING: ReadOptions = ReadOptions { spell: sanitize::visible_line, most: 2000 };

impl Diff {
    /// Reads a patch in any form that models use.
    pub(super) fn read(text: &str, glyphs: &Glyphs, reading: ReadOptions) -> Option<Self> {
        let patch = Patch::parse(text).ok()?;
        let mut diff = Self { files: Vec::new(), lines: Vec::new() };
        for operation in &patch.operations {
            let name = name(operation, glyphs, reading.spell);
            diff.files.push(name.clone());
            if diff.lines.len() <= reading.most {
                diff.lines.push(name);
                show(operation, reading, &mut diff.lines);
            }
        }
        Some(diff)
    }
}

fn name(operation: &Operation, glyphs: &Glyphs, spell: fn(&str) -> String) -> Line {
    let named = |letter: &str, path: &str| Line::styled(Style::Strong, format!("{letter} {}", spell(path)));
    match operation {
        Operation::Create { path, .. } => named("A", path),
        Operation::Delete { path } => named("D", path),
        Operation::Update { path, move_to: None, .. } => named("M", path),
        Operation::Update { path, move_to: Some(to), .. } => {
            named("M", path).then(format!(" {} {}", glyphs.arrow, spell(to)))
        }
    }
}

fn show(operation: &Operation, ReadOptions { spell, most }: ReadOptions, lines: &mut Vec<Line>) {
    match operation {
        Operation::Create { lines: added, .. } => {
            lines.extend(added.iter().take(most).map(|text| one('+', &spell(text))));
        }
        Operation::Delete { .. } => {}
        Operation::Update { hunks, .. } => {
            for (at, hunk) in hunks.iter().enumerate().take(most) {
                if hunk.anchors.is_empty() && at > 0 {
                    lines.push(Line::styled(Style::Place, "@@"));
                }
                let place = |anchor: &String| Line::styled(Style::Place, format!("@@ {}", spell(anchor)));
                lines.extend(hunk.anchors.iter().map(place));
                lines.extend(hunk.lines.iter().take(most).map(|line| match line {
                    HunkLine::Keep(text) => one(' ', &spell(text)),
                    HunkLine::Remove(text) => one('-', &spell(text)),
                    HunkLine::Add(text) => one('+', &spell(text)),
                }));
            }
        }
    }
}

fn one(sign: char, text: &str) -> Line {
    let text = format!("{sign}{text}");
    match sign {
        '+' => Line::styled(Style::Good, text),
        '-' => Line::styled(Style::Removed, text),
        _ => Line::plain(text),
    }
}

#[cfg(test)]
mod tests {
    use sandbar::Item;
    use serde_json::json;

    use super::super::{
        call::{CallKind, request},
        surface::UNICODE,
    };

    const PATCH: &str = "*** Begin Patch\n*** Update File: a.c\n*** Move to: b.c\n@@ f()\n-x\n+y\n*** End Patch";

    /// The text of a call, without styles.
    fn shown(item: &Item) -> Option<(usize, Vec<String>)> {
        let (tool, arguments) = request(item);
        let CallKind::Patch { diff, .. } = CallKind::read(&tool, &arguments, &UNICODE) else { return None };
        let render = crate::render::Render::new(crate::args::Color::Never);
        Some((diff.files.len(), diff.lines.iter().map(|line| line.painted(&render)).collect()))
    }

    #[test]
    fn a_patch_is_found_in_every_form() {
        let update = json!({ "type": "update_file", "path": "a.c", "moveTo": "b.c", "diff": "@@ f()\n-x\n+y\n" });
        let built_in = Item::from_value(json!({ "type": "apply_patch_call", "call_id": "c", "operation": update }));
        let forms = [
            Item::custom_call("c", "apply_patch", PATCH),
            Item::function_call("c", "apply_patch", json!({ "patch": PATCH }).to_string()),
            Item::function_call("c", "apply_patch", json!({ "command": ["apply_patch", PATCH] }).to_string()),
            Item::function_call("c", "apply_patch", json!({ "operation": update }).to_string()),
            Item::function_call(
                "c",
                "exec_command",
                json!({ "cmd": format!("apply_patch <<'EOF'\n{PATCH}\nEOF") }).to_string(),
            ),
            Item::function_call(
                "c",
                "exec_command",
                json!({ "cmd": format!("cd x && apply_patch '{PATCH}'") }).to_string(),
            ),
            built_in.expect("an object"),
        ];
        let lines = ["M a.c → b.c", "@@ f()", "-x", "+y"].map(str::to_owned).to_vec();
        for form in forms {
            assert_eq!(shown(&form), Some((1, lines.clone())), "{form:?}");
        }
    }

    #[test]
    fn other_text_is_not_shown_as_a_patch() {
        let forms = [
            Item::custom_call("c", "apply_patch", "nonsense"),
            Item::function_call("c", "exec_command", json!({ "cmd": "echo apply_patch" }).to_string()),
            Item::function_call("c", "exec_command", "not json"),
        ];
        for form in forms {
            assert_eq!(shown(&form), None, "{form:?}");
        }
    }
}
