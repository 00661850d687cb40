//! Output of `sandbar diff`.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::Value;

use super::{
    layout::{ID, give, make, write},
    rig::{Sandbar, each},
};

#[test]
fn a_diff_is_a_patch_a_summary_a_list_of_names_or_json() {
    each(|sandbar| {
        let run = make(sandbar, ID);
        let copy = run.join("workspace");
        assert_eq!(sandbar.run(&["diff", ID]).stderr, "sandbar: no changes\n");
        write(&copy, "dir/changes", "two\nthree\n");
        write(&copy, "new file", "x");
        write(&copy, "one\n", "the name is in .gitignore, but for the end of the line\n");
        write(&copy, "one", "ignored\n");
        write(&copy, ".git/HEAD", "x");
        give(sandbar);
        let patch = sandbar.run(&["diff", "0199f3a2"]);
        let expected = "\
diff --git a/dir/changes b/dir/changes
--- a/dir/changes
+++ b/dir/changes
@@ -1 +1,2 @@
-one
+two
+three
diff --git a/new file b/new file
new file mode 100644
--- /dev/null
+++ b/new file\t
@@ -0,0 +1 @@
+x
\\ No newline at end of file
";
        assert!(patch.stdout.starts_with(expected), "{}", patch.stdout);
        assert!(patch.stdout.contains("+++ \"b/one\\n\"\n"), "{}", patch.stdout);
        assert_eq!(patch.code, 0);
        let told = "sandbar: left out 1 new path that the copy's ignore rules name; --all includes them\n\
                    sandbar: 1 file of repositories changed; that is neither shown nor applied\n";
        assert_eq!(patch.stderr, told);
        let stat = sandbar.run(&["diff", ID, "--stat"]).stdout;
        assert!(stat.starts_with(" dir/changes |   3 ++-\n new file    |   1 +\n"), "{stat}");
        assert!(stat.ends_with(" 3 files changed, 4 insertions(+), 1 deletion(-)\n"), "{stat}");
        assert_eq!(
            sandbar.run(&["diff", ID, "--name-only", "--all"]).stdout,
            "dir/changes\nnew file\none\n\"one\\n\"\n"
        );
        let document: Value = serde_json::from_str(&sandbar.run(&["diff", ID, "--json"]).stdout).unwrap();
        assert_eq!(document["changes"][0]["path"], "dir/changes");
        assert_eq!(document["changes"][0]["insertions"], 2);
        assert_eq!(document["changes"][1]["change"], "added");
        assert_eq!((&document["git_files_changed"], &document["left_out"]["ignored"]), (&1.into(), &1.into()));
    });
}

#[test]
fn a_coloured_diff_is_sanitized_and_a_plain_one_is_exact() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    write(&run.join("workspace"), "dir/changes", "\x1b]0;owned\x07\ttab\r\n");
    let plain = sandbar.run(&["diff", ID]).stdout;
    assert!(plain.contains("+\x1b]0;owned\x07\ttab\r\n"), "{plain:?}");
    let coloured = sandbar.run(&["diff", ID, "--color", "always"]).stdout;
    assert!(coloured.contains("\x1b[32m+?]0;owned?\ttab?\x1b[0m\n"), "{coloured:?}");
}

#[test]
fn an_unreadable_file_is_named_and_not_shown_as_deleted() {
    let sandbar = Sandbar::unprivileged();
    let run = make(&sandbar, ID);
    let copy = run.join("workspace");
    write(&copy, "kept", "two\n");
    give(&sandbar);
    fs::set_permissions(copy.join("dir"), fs::Permissions::from_mode(0o000)).unwrap();
    let told = sandbar.run(&["diff", ID, "--name-only"]);
    assert_eq!((told.code, told.stdout.as_str()), (0, "kept\n"));
    assert!(told.stderr.contains("cannot read 1 path, among them dir: Permission denied"), "{told:?}");
    let refused = sandbar.run(&["apply", ID]);
    assert!(refused.code == 1 && refused.stderr.contains("cannot read dir of the working copy"), "{refused:?}");
    let gone = sandbar.run(&["runs", "rm", ID]);
    assert_eq!((gone.code, gone.stderr.as_str()), (0, ""));
    assert!(!run.exists());
}

#[test]
fn a_missing_run_is_reported() {
    let sandbar = Sandbar::own();
    make(&sandbar, ID);
    make(&sandbar, "0199f3a2-7c1e-7000-8000-0000000000b2");
    for (given, words) in [
        ("ffff", "run \"ffff\": there is no run with this id; `sandbar runs ls` shows them all"),
        ("a1", "a part of an id has at least 4 characters; `sandbar runs ls` shows them all"),
        ("0199f3a2", "several runs match; give the whole id"),
        ("../x", "there is no run with this id"),
    ] {
        for task in ["diff", "apply"] {
            let run = sandbar.run(&[task, given]);
            assert!(run.code == 1 && run.stderr.contains(words) && run.stdout.is_empty(), "{run:?}");
        }
    }
    let run = sandbar.run(&["diff", "ffff", "--json"]);
    let document: Value = serde_json::from_str(&run.stderr).unwrap();
    assert_eq!(document["error"]["code"], "run_not_found");
    for words in [&["diff"][..], &["apply"], &["runs"], &["runs", "rm"], &["diff", ID, "--stat", "--json"]] {
        assert_eq!(sandbar.run(words).code, 2, "{words:?}");
    }
}

#[test]
fn a_run_without_a_copy_names_the_directory_of_its_files() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    fs::remove_file(run.join("base.json")).unwrap();
    for task in ["diff", "apply"] {
        let refused = sandbar.run(&[task, ID]);
        let words = format!("did not work on a copy; its files are in {}", run.join("workspace").display());
        assert!(refused.code == 1 && refused.stderr.contains(&words), "{refused:?}");
    }
}

#[test]
fn a_summary_lists_the_first_files_and_counts_the_rest() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    for at in 0..2003 {
        write(&run.join("workspace"), &format!("f{at:04}"), "x\n");
    }
    let stat = sandbar.run(&["diff", ID, "--stat"]).stdout;
    let end =
        " f1999 |   1 +\n and 3 more files, whose lines are not counted\n 2003 files changed, 2000 insertions(+)\n";
    assert!(stat.ends_with(end), "{stat}");
}
