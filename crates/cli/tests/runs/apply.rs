//! Behaviour and output of `sandbar apply`.

use std::fs;

use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use super::{
    layout::{ID, give, make, write},
    rig::{Sandbar, each},
};

#[test]
fn changes_are_applied_once_and_reported() {
    each(|sandbar| {
        let run = make(sandbar, ID);
        let source = sandbar.dir().join("source");
        write(&run.join("workspace"), "dir/changes", "two\n");
        write(&run.join("workspace"), "new/file", "x\n");
        fs::remove_file(run.join("workspace/kept")).unwrap();
        give(sandbar);
        let shown = source.display();
        let dry = sandbar.run(&["apply", ID, "--dry-run"]);
        let steps = format!("D kept\nM dir/changes\nA new/file\nwould apply 3 changes to {shown}\n");
        assert_eq!((dry.code, dry.stdout), (0, steps));
        assert_eq!(fs::read_to_string(source.join("dir/changes")).unwrap(), "one\n");
        let done = sandbar.run(&["apply", ID]);
        assert_eq!(
            (done.code, done.stdout, done.stderr),
            (0, format!("D kept\nM dir/changes\nA new/file\napplied 3 changes to {shown}\n"), String::new())
        );
        assert_eq!(fs::read_to_string(source.join("dir/changes")).unwrap(), "two\n");
        assert_eq!(fs::read_to_string(source.join("new/file")).unwrap(), "x\n");
        assert!(!source.join("kept").exists());
        let mut left: Vec<_> = fs::read_dir(&source).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [".gitignore", "dir", "new"]);
        let again = sandbar.run(&["apply", ID]);
        assert_eq!((again.code, again.stdout), (0, format!("already applied to {shown}\n")));
    });
}

#[test]
fn all_conflicts_are_named_and_nothing_is_changed() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    let source = sandbar.dir().join("source");
    for path in ["kept", "dir/changes"] {
        write(&run.join("workspace"), path, "theirs\n");
    }
    write(&run.join("workspace"), "fine", "x\n");
    write(&source, "kept", "mine\n");
    write(&source, "dir/changes", "mine\n");
    let refused = sandbar.run(&["apply", ID]);
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""));
    for words in [
        "conflict in kept: it was changed",
        "conflict in dir/changes: it was changed",
        "2 conflicts; nothing was changed",
        "--force",
    ] {
        assert!(refused.stderr.contains(words), "{words} in {refused:?}");
    }
    assert!(!source.join("fine").exists());
    let document: Value = serde_json::from_str(&sandbar.run(&["apply", ID, "--json"]).stdout).unwrap();
    assert_eq!((&document["status"], document["conflicts"].as_array().unwrap().len()), (&"conflict".into(), 2));
    assert_eq!(sandbar.run(&["apply", ID, "--force", "--json"]).code, 0);
    assert_eq!(fs::read_to_string(source.join("kept")).unwrap(), "theirs\n");
}

#[test]
fn links_that_lead_out_are_refused_and_the_rest_applied() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    std::os::unix::fs::symlink("/etc/passwd", run.join("workspace/link")).unwrap();
    write(&run.join("workspace"), "fine", "x\n");
    let partly = sandbar.run(&["apply", ID]);
    assert!(partly.code == 1 && partly.stdout.starts_with("A fine\napplied 1 change "), "{partly:?}");
    assert!(partly.stderr.contains("refused link: it is a link that leads out of the directory, to /etc/passwd"));
    assert!(fs::symlink_metadata(sandbar.dir().join("source/link")).is_err());
}

#[test]
fn a_run_in_progress_is_not_changed() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    let hold = fs::File::open(&run).unwrap();
    flock(&hold, FlockOperation::LockExclusive).unwrap();
    for words in [&["apply", ID][..], &["runs", "rm", ID]] {
        let refused = sandbar.run(words);
        assert!(refused.code == 1 && refused.stderr.contains("is still running"), "{refused:?}");
    }
    assert_eq!(sandbar.run(&["diff", ID]).code, 0);
    drop(hold);
    assert_eq!(sandbar.run(&["runs", "rm", ID]).code, 0);
}

#[test]
fn changes_are_applied_to_another_existing_directory() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    write(&run.join("workspace"), "fine", "x\n");
    let other = sandbar.make_dir("other");
    assert_eq!(sandbar.run(&["apply", ID, "--to", "other"]).code, 0);
    assert!(other.join("fine").exists() && !sandbar.dir().join("source/fine").exists());
    fs::remove_dir_all(sandbar.dir().join("source")).unwrap();
    let refused = sandbar.run(&["apply", ID]);
    assert!(
        refused.code == 1 && refused.stderr.contains("No such file or directory; give another directory with --to DIR"),
        "{refused:?}"
    );
}

#[test]
fn leftovers_of_a_killed_apply_are_named_with_advice() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    write(&run.join("workspace"), "fine", "x\n");
    let source = sandbar.dir().join("source");
    write(&source, ".sandbar-apply-dead/1", "precious\n");
    fs::create_dir(source.join(".sandbar-apply-alive")).unwrap();
    let hold = fs::File::open(source.join(".sandbar-apply-alive")).unwrap();
    flock(&hold, FlockOperation::LockExclusive).unwrap();
    let document: Value = serde_json::from_str(&sandbar.run(&["apply", ID, "--dry-run", "--json"]).stdout).unwrap();
    assert_eq!(document["left_behind"], serde_json::json!([".sandbar-apply-dead"]));
    let told = sandbar.run(&["apply", ID]);
    assert_eq!(told.code, 0, "{told:?}");
    for words in [".sandbar-apply-dead was left by an apply that was killed", "moved.json", "remove the directory"] {
        assert!(told.stderr.contains(words), "{words} in {told:?}");
    }
    assert!(!told.stderr.contains("alive"), "{told:?}");
    assert_eq!(fs::read_to_string(source.join(".sandbar-apply-dead/1")).unwrap(), "precious\n");
}

#[test]
fn the_list_of_applied_changes_is_bounded() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    for at in 0..203 {
        write(&run.join("workspace"), &format!("f{at:03}"), "x\n");
    }
    let done = sandbar.run(&["apply", ID]);
    assert_eq!((done.code, done.stdout.lines().count()), (0, 202), "{done:?}");
    assert!(done.stdout.contains("A f199\nand 3 more changes\napplied 203 changes to "), "{done:?}");
}

#[test]
fn changes_of_a_killed_run_are_applied_only_with_force() {
    each(|sandbar| {
        let run = make(sandbar, ID);
        let source = sandbar.dir().join("source");
        write(&run.join("workspace"), "kept", "half\n");
        let record = fs::read_to_string(run.join("record.json")).unwrap();
        write(&run, "record.json", record.replace("completed", "running"));
        give(sandbar);
        let diff = sandbar.run(&["diff", ID]);
        assert!(diff.code == 0 && diff.stdout.contains("+half"), "{diff:?}");
        assert!(diff.stderr.contains("was killed before it ended"), "{diff:?}");
        let refused = sandbar.run(&["apply", ID]);
        assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
        for words in ["was killed before it ended", "nothing was changed", "--force"] {
            assert!(refused.stderr.contains(words), "{refused:?}");
        }
        assert_eq!(fs::read_to_string(source.join("kept")).unwrap(), "one\n");
        assert_eq!(sandbar.run(&["apply", ID, "--force"]).code, 0);
        assert_eq!(fs::read_to_string(source.join("kept")).unwrap(), "half\n");
    });
}

#[test]
fn a_run_that_was_killed_during_its_copy_has_no_changes() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    let record = fs::read_to_string(run.join("record.json")).unwrap();
    write(&run, "record.json", record.replace("completed", "running"));
    fs::remove_file(run.join("base.json")).unwrap();
    for command in ["diff", "apply"] {
        let refused = sandbar.run(&[command, ID, if command == "apply" { "--force" } else { "--stat" }]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.stderr.contains("was never completed"), "{refused:?}");
    }
}

#[test]
fn the_next_apply_completes_a_killed_one_and_leaves_nothing() {
    each(|sandbar| {
        let run = make(sandbar, ID);
        let source = sandbar.dir().join("source");
        write(&run.join("workspace"), "kept", "two\n");
        // As applies that were killed leave it: of this run, and of another.
        write(&source, ".sandbar-apply-own/run", ID);
        write(&source, ".sandbar-apply-own/1", "one\n");
        write(&source, ".sandbar-apply-other/run", ID.replace('a', "b"));
        write(&source, ".sandbar-apply-other/1", "precious\n");
        give(sandbar);
        let dry = sandbar.run(&["apply", ID, "--dry-run"]);
        assert!(dry.code == 0 && source.join(".sandbar-apply-own").exists(), "{dry:?}");
        let done = sandbar.run(&["apply", ID]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.stderr.contains(".sandbar-apply-other") && !done.stderr.contains("-own"), "{done:?}");
        assert!(!source.join(".sandbar-apply-own").exists() && source.join(".sandbar-apply-other/1").exists());
    });
}
