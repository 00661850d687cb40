//! A patch as people read one: files, and what goes and comes in them.

use sandbar::patch::{HunkLine, Operation, Patch};

use super::{line::Line, surface::Glyphs, tame};
use crate::render::Style;

/// A patch, ready to be shown.
#[derive(Clone, Debug)]
pub(super) struct Diff {
    /// What happens to each file.
    pub files: Vec<Line>,
    pub lines: Vec<Line>,
}

/// How a patch is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// How a line of text is made visible.
    pub spell: fn(&str) -> String,
    /// The most lines that are made of it, or a file's more.
    pub most: usize,
}

/// For those who only see it pass.
pub(super) const PASSING: Reading = Reading { spell: tame::visible_line, most: 2000 };

impl Diff {
    /// The patch in a text of any form that patches come in.
    pub(super) fn read(text: &str, glyphs: &Glyphs, reading: Reading) -> Option<Self> {
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

fn show(operation: &Operation, Reading { spell, most }: Reading, lines: &mut Vec<Line>) {
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
        call::{Called, request},
        surface::UNICODE,
    };

    const PATCH: &str = "*** Begin Patch\n*** Update File: a.c\n*** Move to: b.c\n@@ f()\n-x\n+y\n*** End Patch";

    /// What is shown of a call, without styles.
    fn shown(item: &Item) -> Option<(usize, Vec<String>)> {
        let (tool, arguments) = request(item);
        let Called::Patch { diff, .. } = Called::read(&tool, &arguments, &UNICODE) else { return None };
        let render = crate::render::Render::new(crate::args::Color::Never);
        Some((diff.files.len(), diff.lines.iter().map(|line| line.painted(&render)).collect()))
    }

    #[test]
    fn a_patch_is_found_in_every_form_it_comes_in() {
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
    fn what_is_no_patch_is_not_shown_as_one() {
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
