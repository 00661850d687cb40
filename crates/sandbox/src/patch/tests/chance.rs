//! What holds for every file and every patch.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::patch::{
    Hunk, HunkLine, Operation, from_script,
    text::{Edit, Finish, Split, Text},
    undo,
};

/// Few different lines, so that they repeat and nearly match.
fn line() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "a", "b", " a", "a ", "x – y", "x - y", "fn f() {", "}", "ü", "\tz"])
        .prop_map(str::to_owned)
}

fn text() -> impl Strategy<Value = String> {
    text_with(&["\n", "\r\n", "\r"])
}

fn text_with(endings: &'static [&'static str]) -> impl Strategy<Value = String> {
    let endings = prop::sample::select(endings);
    (vec((line(), endings), 0..30), prop::option::of(Just("last"))).prop_map(|(lines, last)| {
        lines.into_iter().map(|(line, ending)| line + ending).chain(last.map(str::to_owned)).collect()
    })
}

/// The hunks that make the second of the first: everything equal at both ends is kept, up to three lines of it shown.
fn difference(old: &[String], new: &[String]) -> Vec<Hunk> {
    let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
    let most = old.len().min(new.len()) - head;
    let tail = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    let keep = |lines: &[String]| lines.iter().cloned().map(HunkLine::Keep).collect::<Vec<_>>();
    // All of the head is shown: lines repeat, and the first match is taken.
    let mut lines = keep(&old[..head]);
    lines.extend(old[head..old.len() - tail].iter().cloned().map(HunkLine::Remove));
    lines.extend(new[head..new.len() - tail].iter().cloned().map(HunkLine::Add));
    lines.extend(keep(&old[old.len() - tail..]));
    vec![Hunk { anchors: vec![String::new()], lines, end_of_file: false }]
}

fn written(hunks: &[Hunk]) -> String {
    let mut text = String::new();
    for hunk in hunks {
        text.push_str("@@\n");
        for line in &hunk.lines {
            let (mark, line) = match line {
                HunkLine::Keep(line) => (' ', line),
                HunkLine::Remove(line) => ('-', line),
                HunkLine::Add(line) => ('+', line),
            };
            text.push_str(&format!("{mark}{line}\n"));
        }
    }
    text
}

/// One operation on one of four files, as text.
fn section() -> impl Strategy<Value = String> {
    let path = || prop::sample::select(vec!["a", "b", "d/c", "d/e/f"]);
    prop_oneof![
        (path(), vec(line(), 0..5)).prop_map(|(path, lines)| {
            format!("*** Add File: {path}\n{}", lines.iter().map(|line| format!("+{line}\n")).collect::<String>())
        }),
        path().prop_map(|path| format!("*** Delete File: {path}\n")),
        (path(), path()).prop_map(|(path, to)| format!("*** Update File: {path}\n*** Move to: {to}\n")),
        (path(), line(), line()).prop_map(|(path, old, new)| format!("*** Update File: {path}\n@@\n-{old}\n+{new}\n")),
        (path(), line()).prop_map(|(path, new)| format!("*** Update File: {path}\n@@\n+{new}\n")),
    ]
}

/// Where, how many lines go, which come, and whether the end may stay open.
fn change() -> impl Strategy<Value = (usize, usize, Vec<String>, bool)> {
    let odd = prop::sample::select(vec!["\u{feff}x", "x\r", "y\rz", "\r", "1\n2"]).prop_map(str::to_owned);
    (0_usize..20, 0_usize..4, vec(prop_oneof![6 => line(), 1 => odd], 0..4), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
        fn a_text_that_was_changed_is_taken_apart_as_if_it_were_read_again(
            text in text(), marked in prop::option::of(Just("\u{feff}")), changes in vec(change(), 1..6),
        ) {
            let mut text = Text::new(marked.unwrap_or_default().to_owned() + &text);
            for (from, removed, added, open) in changes {
                let at = from.min(text.len());
                let removed = removed.min(text.len() - at);
                let edit = Edit { at, removed, added: added.iter().map(String::as_str).collect() };
                let style = text.style(Profile::Codex).unwrap_or_default();
                let finish = if open && text.is_open() { Finish::Open } else { Finish::Closed };
                if text.change(&[edit], style, finish) == Split::Stale {
                    text.again();
                }
                let again = Text::new(text.to_string());
                let lines = |text: &Text| (0..text.len()).map(|at| text.line(at).to_owned()).collect::<Vec<_>>();
                prop_assert_eq!(lines(&text), lines(&again));
                prop_assert_eq!((text.is_open(), text.size()), (again.is_open(), text.to_string().len()));
                for profile in BOTH {
                    prop_assert_eq!(text.style(profile), again.style(profile));
                }
            }
        }

    #[test]
    fn reading_any_text_ends_well(text in "\\PC{0,80}") {
        let _any = Patch::parse(&text).is_ok();
        let _any = from_script(&text);
        let _any = Patch::parse(&enveloped(&text)).is_ok();
        for profile in BOTH {
            let _any = updated(profile, &text, "@@ x\n a\n-b\n+c").is_ok();
        }
    }

    #[test]
    fn reading_any_lines_of_a_patch_ends_well(lines in vec(prop::sample::select(vec![
        "*** Begin Patch", "*** End Patch", "*** Add File: a", "*** Update File: a", "*** Delete File: a", "*** Move to: b",
        "*** End of File", "***", "@@", "@@ a", "+a", "-a", " a", "", "a", "\r", "<<'EOF'", "EOF",
    ]), 0..20), file in text()) {
        let text = lines.join("\n");
        let _any = Patch::parse(&text).is_ok();
        if let Ok(patch) = Patch::parse(&enveloped(&text)) {
            for profile in BOTH {
                let machine = machine(&[("a", file.as_bytes())]);
                let before = tree(&machine);
                if wait(apply(&machine, &paths(), &patch, &with(profile))).is_err() {
                    prop_assert_eq!(tree(&machine), before);
                }
            }
        }
    }

    #[test]
    fn the_difference_of_two_texts_makes_the_second_of_the_first(old in vec(line(), 0..20), new in vec(line(), 0..20)) {
        let joined = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let hunks = difference(&old, &new);
        prop_assume!(!hunks[0].lines.is_empty());
        for profile in BOTH {
            let result = updated(profile, &joined(&old), written(&hunks).trim_end_matches('\n'));
            prop_assert_eq!(result.unwrap(), joined(&new));
        }
    }

    #[test]
    fn what_is_kept_keeps_its_bytes(file in text_with(&["\n", "\rx\n"]), at in 0_usize..30) {
        let lines: Vec<&str> = file.split_inclusive(['\r', '\n']).collect();
        prop_assume!(!file.is_empty());
        let at = at % lines.len();
        let keep: String = lines[..at].iter().map(|line| format!(" {}\n", line.trim_end_matches(['\r', '\n']))).collect();
        let body = format!("@@\n{keep}-{}\n+new", lines[at].trim_end_matches(['\r', '\n']));
        let result = updated(Profile::Sdk, &file, &body).unwrap();
        prop_assert!(result.starts_with(&lines[..at].concat()));
        prop_assert!(result.ends_with(&lines[at + 1..].concat()));
    }

    #[test]
    fn a_patch_applied_and_undone_was_never_there(
        a in text(), c in text(), sections in vec(section(), 1..6), codex in any::<bool>(),
    ) {
        let machine = machine(&[("a", a.as_bytes()), ("d/c", c.as_bytes())]);
        wait(machine.write(&at("a").mode(0o700), once(a.clone()))).unwrap();
        let before = tree(&machine);
        let profile = if codex { Profile::Codex } else { Profile::Sdk };
        match run(&machine, &enveloped(&sections.concat()), profile) {
            Ok(applied) => {
                let unchanged = applied.delta.is_empty();
                prop_assert_eq!(unchanged, tree(&machine) == before);
                wait(undo(&machine, &applied)).unwrap();
            }
            Err(error) => prop_assert!(error.code().starts_with("apply_patch_"), "{}", error),
        }
        prop_assert_eq!(tree(&machine), before);
    }
}

#[test]
fn an_operation_can_be_made_without_text() {
    let machine = machine(&[]);
    let patch = Patch {
        operations: vec![Operation::Create { path: "n".to_owned(), lines: vec!["x".to_owned()], ending: Ending::Lf }],
    };
    wait(apply(&machine, &paths(), &patch, &PatchOptions::default())).unwrap();
    assert_eq!(tree(&machine)[0].2, b"x\n");
}
