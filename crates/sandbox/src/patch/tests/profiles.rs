//! Where two engines differ and where they must not, row by row.

use super::*;

/// The file, the section's body, and what each profile makes of them.
type Row<'t> = (&'t str, &'t str, Result<&'t str, &'t str>, Result<&'t str, &'t str>);

fn check(rows: &[Row<'_>]) {
    for (content, body, codex, sdk) in rows {
        for (profile, expected) in [(Profile::Codex, codex), (Profile::Sdk, sdk)] {
            let result = updated(profile, content, body);
            match (&result, expected) {
                (Ok(text), Ok(expected)) => assert_eq!(text, expected, "{profile:?} {content:?}\n{body}"),
                (Err(message), Err(expected)) => {
                    assert!(message.starts_with(expected), "{profile:?} {content:?}\n{body}\n{message}");
                }
                _ => panic!("{profile:?} {content:?}\n{body}\n{result:?}"),
            }
        }
    }
}

/// Rows that are the same in both.
fn check_same(rows: &[(&str, &str, &str)]) {
    for (content, body, expected) in rows {
        check(&[(content, body, Ok(expected), Ok(expected))]);
    }
}

#[test]
fn a_new_file_ends_as_its_profile_says() {
    let table: &[(&str, &str, Option<&str>)] = &[
        ("*** Add File: n\n+a\n+b", "a\nb\n", Some("a\nb")),
        ("*** Add File: n\n+a\n+", "a\n\n", Some("a\n")),
        ("*** Add File: n\n+", "\n", Some("")),
        ("*** Add File: n", "", None),
    ];
    for (section, codex, sdk) in table {
        for (profile, expected) in [(Profile::Codex, Some(codex)), (Profile::Sdk, sdk.as_ref())] {
            let machine = machine(&[]);
            let result = run(&machine, &enveloped(section), profile);
            match expected {
                Some(text) => {
                    result.unwrap();
                    assert_eq!(tree(&machine), [("n".to_owned(), 0o644, text.as_bytes().to_vec())], "{section}");
                }
                None => {
                    assert_eq!(code_of(result).0, "apply_patch_invalid_diff");
                    assert!(tree(&machine).is_empty());
                }
            }
        }
    }
    let machine = machine(&[]);
    run(&machine, &enveloped("*** Add File: n\n+a\n+b").replace('\n', "\r\n"), Profile::Sdk).unwrap();
    assert_eq!(tree(&machine)[0].2, b"a\r\nb");
}

#[test]
fn the_rows_where_the_profiles_differ() {
    check(&[
        // The last line has no newline.
        ("a\nb", "@@\n-b\n+c", Ok("a\nc\n"), Ok("a\nc")),
        ("a\nb", "@@\n-a\n+c", Ok("c\nb\n"), Ok("c\nb")),
        ("a", "@@\n a\n+b", Ok("a\nb\n"), Ok("a\nb")),
        ("a\nb", "@@\n a\n-b", Ok("a\n"), Ok("a")),
        // Nothing but new lines.
        ("a\nb\n", "@@\n+x", Ok("a\nb\nx\n"), Ok("x\na\nb\n")),
        ("a\nb\n", "@@ a\n+x", Ok("a\nb\nx\n"), Ok("a\nx\nb\n")),
        ("a\nb\nc\n", "@@\n+x\n@@\n-a\n+A", Ok("A\nb\nc\nx\n"), Ok("x\nA\nb\nc\n")),
        ("a\nb\n", "@@\n a\n+1\n@@\n+2", Ok("a\n1\nb\n2\n"), Ok("a\n1\n2\nb\n")),
        // One anchor that is nowhere.
        ("a\nb\n", "@@ nowhere\n-a\n+x", Err("Failed to find context 'nowhere' in f"), Ok("x\nb\n")),
        // The end of the file is elsewhere.
        ("a\nb\n", "@@\n-a\n+x\n*** End of File", Err("Failed to find expected lines in f:\na"), Ok("x\nb\n")),
        // Anchors that stand before and after.
        ("x\na\nx\na\n", "@@\n-x\n+1\n@@ x\n-a\n+2", Ok("1\na\nx\n2\n"), Ok("1\n2\nx\na\n")),
    ]);
}

#[test]
fn what_either_forgives_is_forgiven_in_both() {
    check_same(&[
        // Stacked anchors.
        (
            "class A\n  def f\n    1\nclass B\n  def f\n    1\n",
            "@@ class B\n@@   def f\n-    1\n+    2",
            "class A\n  def f\n    1\nclass B\n  def f\n    2\n",
        ),
        ("class B\n def f\n  1\n", "@@ class B\n@@\n@@ def f\n-  1\n+  2", "class B\n def f\n  2\n"),
        // An anchor that was passed already.
        ("fn\na\nb\n", "@@ fn\n-a\n+1\n@@ fn\n-b\n+2", "fn\n1\n2\n"),
        // Line numbers in the manner of diff.
        ("a\nb\n", "@@ -1,2 +1,2 @@\n-a\n+x\n b", "x\nb\n"),
        ("a\nb\n", "@@ -1 +1 @@ fn main() {\n-a\n+x\n b", "x\nb\n"),
        // Space at the end, at both ends, in the anchor; what is kept stays as the file has it.
        ("a  \nb\n", "@@\n a\n-b\n+c", "a  \nc\n"),
        ("\ta\nb\n", "@@\n a\n-b\n+c", "\ta\nc\n"),
        ("  fn x() \na\n", "@@ fn x()\n-a\n+c", "  fn x() \nc\n"),
        // Typographic dashes, quotes and spaces.
        ("a – b\n", "@@\n-a - b\n+c", "c\n"),
        ("say “hi” ‘x’\nz\n", "@@\n say \"hi\" 'x'\n-z\n+y", "say “hi” ‘x’\ny\n"),
        ("a\u{a0}b\u{3000}c\n", "@@\n-a b c\n+d", "d\n"),
        ("fn – x\na\n", "@@ fn - x\n-a\n+b", "fn – x\nb\n"),
        // A blank line at the end that the file does not have.
        ("a\nb\n", "@@\n-b\n+c\n\n", "a\nc\n"),
        ("a\nb\n", "@@\n-b\n+c\n\n\n*** End of File", "a\nc\n"),
        // The end of the file, found there although it stands before, too.
        ("x\na\nx\n", "@@\n-x\n+y\n*** End of File", "x\na\ny\n"),
        ("a\nb\n", "@@\n+z\n*** End of File", "a\nb\nz\n"),
        // Space of any kind around lines.
        ("\t \u{2003}a\u{a0} \nb\n", "@@\n-a\n+x", "x\nb\n"),
        ("\x0ca\x0b\n", "@@\n- a \n+x", "x\n"),
        ("ä \nö\n", "@@\n-\u{a0}ä\n+x", "x\nö\n"),
        // Without `@@` at first.
        ("a\nb\n", " a\n-b\n+c", "a\nc\n"),
        // The exact place wins over a forgiven one before it.
        (" a\na\n", "@@\n-a\n+b", " a\nb\n"),
        // Deletions, insertions around kept lines, and everything.
        ("a\nb\nc\n", "@@\n a\n-b\n c", "a\nc\n"),
        ("a\nb\n", "@@\n+0\n a\n+1\n b\n+2", "0\na\n1\nb\n2\n"),
        ("a\nb\n", "@@\n-a\n-b", ""),
        ("", "@@\n+x", "x\n"),
        ("a\nb\na\nb\n", "@@\n-a\n+1\n@@\n-a\n+2", "1\nb\n2\nb\n"),
    ]);
}

#[test]
fn line_endings_stay_as_they_are() {
    check_same(&[
        ("a\r\nb\r\n", "@@\n a\n-b\n+c\n+d", "a\r\nc\r\nd\r\n"),
        ("a\nb\r\nc\n", "@@\n-a\n+x\n b", "x\nb\r\nc\n"),
        ("a\r\nb\nc\n", "@@\n b\n+x", "a\r\nb\nx\r\nc\n"),
        ("a\rb\rc\r", "@@\n-b\n+x", "a\rx\rc\r"),
        ("a\n1%\r2%\nb\nc\n", "@@\n-b\n+x\n c", "a\n1%\r2%\nx\nc\n"),
        ("a\n1%\r2%\nb\n", "@@\n 1%\r2%\n-b\n+x", "a\n1%\r2%\nx\n"),
        ("\u{feff}a\nb\n", "@@\n-a\n+x", "\u{feff}x\nb\n"),
        ("\u{feff}a\nb\n", "@@\n-\u{feff}a\n+\u{feff}x", "\u{feff}x\nb\n"),
        ("a\u{2028}b\x0c\nc\n", "@@\n-a\u{2028}b\x0c\n+x\u{85}y", "x\u{85}y\nc\n"),
        ("a\0b\n", "@@\n-a\0b\n+c", "c\n"),
    ]);
    check(&[("a\rb\r\nc\n", "@@\n a\n b\n-c\n+x", Ok("a\rb\r\nx\r"), Ok("a\rb\r\nx\r\n"))]);
    for (profile, expected) in [(Profile::Codex, "b\n"), (Profile::Sdk, "a\r\nb")] {
        let text = enveloped("*** Update File: f\n@@\n a\n+b").replace('\n', "\r\n");
        let machine = machine(&[("f", b"a")]);
        run(&machine, &text, profile).unwrap();
        assert!(String::from_utf8(tree(&machine)[0].2.clone()).unwrap().ends_with(expected), "{profile:?}");
    }
}

#[test]
fn what_does_not_fit_is_said_in_the_words_of_the_profile() {
    check(&[
        ("a\n", "@@\n-x\n-y", Err("Failed to find expected lines in f:\nx\ny"), Err("Invalid Context 0:\nx\ny")),
        ("a\nb\n", "@@\n-a\n+c\n@@\n-a", Err("Failed to find expected lines in f:\na"), Err("Invalid Context 1:\na")),
        (
            "a\n",
            "@@\n-x\n*** End of File",
            Err("Failed to find expected lines in f:\nx"),
            Err("Invalid EOF Context 0:\nx"),
        ),
        ("a\n", "@@ a\n@@ b\n-a", Err("Failed to find context 'b' in f"), Err("Invalid Anchor 1")),
        ("", "@@\n-a", Err("Failed to find expected lines in f:\na"), Err("Invalid Context 0:\na")),
    ]);
}

#[test]
fn a_failure_shows_the_nearest_lines_with_their_numbers() {
    let file: String = (1..=50).map(|n| format!("let value_{n} = {n};\n")).collect();
    let message =
        updated(Profile::Sdk, &file, "@@\n let value_20 = 20;\n-let value_21 = 99;\n let value_22 = 22;").unwrap_err();
    assert_eq!(
        message,
        "Invalid Context 0:\nlet value_20 = 20;\nlet value_21 = 99;\nlet value_22 = 22;\n\nThe nearest lines of f are:\n    \
         20 | let value_20 = 20;\n    21 | let value_21 = 21;\n    22 | let value_22 = 22;"
    );
    let message = updated(Profile::Codex, &file, "@@\n-let valu_33 = 33;").unwrap_err();
    assert!(message.ends_with("The nearest lines of f are:\n    33 | let value_33 = 33;"), "{message}");
    let message = updated(Profile::Codex, "one\ntwo\n", "@@\n-zzzzzz").unwrap_err();
    assert_eq!(message, "Failed to find expected lines in f:\nzzzzzz");
    let message = updated(Profile::Codex, &file, "@@\n-let value_9 = 9;\n@@\n-let value_3 = 3;").unwrap_err();
    assert!(message.contains("     3 | let value_3 = 3;\nThey stand before"), "{message}");
    let wide = format!("{}\nb\n", "x".repeat(10_000));
    let message = updated(Profile::Codex, &wide, &format!("@@\n-{}", "x".repeat(9_999))).unwrap_err();
    assert!(message.ends_with('…') && message.len() < 10_500, "{}", message.len());
    assert!(message.len() < 6_000, "{}", message.len());
    let many = updated(
        Profile::Codex,
        &file,
        &format!("@@\n-x\n{}", file.lines().map(|line| format!(" {line}\n")).collect::<String>()),
    );
    assert_eq!(many.unwrap_err().lines().filter(|line| line.contains(" | ")).count(), 10);
}

#[test]
fn lines_that_nearly_match_everywhere_cost_no_more_than_a_look_at_each() {
    let file = "a\n".repeat(300_000);
    let body = format!("@@\n{}-b", " a\n".repeat(20_000));
    let begin = std::time::Instant::now();
    assert!(updated(Profile::Sdk, &file, &body).is_err());
    // Comparing at each place anew takes minutes.
    assert!(begin.elapsed() < std::time::Duration::from_secs(60));
}

#[test]
fn work_without_end_is_refused() {
    let file = "a\n".repeat(1_000);
    let body: String = "@@ zz\n a\n".repeat(500);
    let message = worked(Profile::Sdk, &file, &body, &mut Work::of(100_000)).unwrap_err();
    assert!(message.starts_with("the work of the patch in steps is larger than allowed"), "{message}");
    assert!(updated(Profile::Sdk, &file, &body).is_ok());
}

#[test]
fn a_failure_repeats_only_the_first_of_many_lines() {
    let wanted = |count: usize, width: usize| format!("@@\n{}", format!("-{}\n", "y".repeat(width)).repeat(count));
    let message = |count, width| updated(Profile::Sdk, "a\n", wanted(count, width).trim_end()).unwrap_err();
    let line = "yyyyyyyyy\n";
    assert_eq!(message(40, 9), format!("Invalid Context 0:\n{}", line.repeat(40).trim_end()));
    assert_eq!(message(100, 9), format!("Invalid Context 0:\n{}… 60 more lines", line.repeat(40)));
    assert!(message(100, 1_000).ends_with("\n… 96 more lines") && message(100, 1_000).len() < 4_200);
    assert!(message(2, 1_000_000).ends_with("y…\n… 1 more lines") && message(2, 1_000_000).len() < 4_200);
    let anchor = format!("@@ a\n@@ {}\n-a", "ä".repeat(100_000));
    assert!(BOTH.iter().all(|profile| updated(*profile, "a\n", &anchor).unwrap_err().len() < 4_200));
}

#[test]
fn a_failure_quotes_no_part_of_a_secret() {
    let secrets = crate::SecretStore::new().with("TOKEN", "first-half-second-half");
    for before in 170..205 {
        let line = format!("let token = {}first-half-second-half", "x".repeat(before));
        let machine = machine(&[("f", format!("{line}\n").as_bytes())]);
        let text = format!("*** Begin Patch\n*** Update File: f\n@@\n-{line} \n-other\n*** End Patch\n");
        let options = PatchOptions { mask: secrets.mask(), ..with(Profile::Codex) };
        let patch = Patch::parse(&text).unwrap();
        let message = wait(apply(&machine, &paths(), &patch, &options)).unwrap_err().full_message();
        assert!(message.contains("The nearest lines of f are:"), "{message}");
        assert!(!message.contains("first"), "{before}: {message}");
    }
}
