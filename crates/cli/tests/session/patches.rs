//! `sandbar patch` applies a patch completely or not at all, and never outside of the directory.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};

use super::rig::{PATIENCE, Run, Sandbar, each, finish, until};

fn work(sandbar: &Sandbar) -> PathBuf {
    let dir = sandbar.make_dir("work");
    let file = sandbar.make_file("work/a.txt", "one\ntwo\nthree\n");
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).expect("chmod");
    sandbar.make_file("work/gone.txt", "gone\n");
    dir
}

fn patch(sandbar: &Sandbar, dir: &Path, options: &[&str], body: &str) -> Run {
    let text = format!("*** Begin Patch\n{body}*** End Patch\n");
    let dir = dir.display().to_string();
    sandbar.run(&[&["patch", "--workspace", &dir], options, &[&text]].concat())
}

#[test]
fn a_patch_is_applied_and_reported_in_the_format_of_its_profile() {
    each(|sandbar| {
        let dir = work(sandbar);
        let body =
            "*** Update File: a.txt\n@@\n one\n-two\n+2\n*** Add File: sub/new.txt\n+new\n*** Delete File: gone.txt\n";
        let run = patch(sandbar, &dir, &[], body);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        assert_eq!(run.stdout, "Success. Updated the following files:\nA sub/new.txt\nM a.txt\nD gone.txt\n");
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok();
        assert_eq!(read("a.txt").as_deref(), Some("one\n2\nthree\n"));
        assert_eq!(read("sub/new.txt").as_deref(), Some("new\n"));
        assert_eq!(read("gone.txt"), None);
        let mode = fs::metadata(dir.join("a.txt")).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let run = patch(sandbar, &dir, &["--profile", "sdk"], "*** Delete File: sub/new.txt\n");
        assert_eq!((run.code, run.stdout.as_str()), (0, "Deleted sub/new.txt\n"), "{run:?}");
        let run = patch(sandbar, &dir, &["--json"], "*** Update File: a.txt\n*** Move to: b.txt\n@@\n-2\n+two\n");
        let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
        let change = &document["changes"][0];
        assert_eq!((run.code, document["applied"].as_bool()), (0, Some(true)), "{run:?}");
        assert_eq!((change["action"].as_str(), change["to"].as_str()), (Some("moved"), Some("b.txt")), "{document}");
        assert_eq!(read("b.txt").as_deref(), Some("one\ntwo\nthree\n"));
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn a_patch_is_read_from_standard_input_for_the_current_directory() {
    let sandbar = Sandbar::own();
    let output = sandbar.feed(&["patch"], b"*** Begin Patch\n*** Add File: here.txt\n+x\n*** End Patch\n");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(sandbar.dir().join("here.txt")).expect("here"), "x\n");
}

#[test]
fn a_refused_patch_changes_nothing() {
    each(|sandbar| {
        let dir = work(sandbar);
        let outside = sandbar.make_dir("outside");
        symlink(&outside, dir.join("out")).expect("symlink");
        symlink(outside.join("file"), dir.join("link")).expect("symlink");
        let first = "*** Add File: first.txt\n+x\n*** Delete File: gone.txt\n";
        let table = [
            ("*** Update File: a.txt\n@@\n-nowhere\n+x\n", "nowhere"),
            ("*** Update File: missing.txt\n@@\n-a\n+b\n", "missing.txt"),
            ("*** Add File: out/file\n+x\n", "out"),
            ("*** Add File: link\n+x\n", "link"),
            ("*** Add File: ../outside/file\n+x\n", "../outside/file"),
            ("*** Add File: /etc/sandbar-was-here\n+x\n", "/etc/sandbar-was-here"),
        ];
        for (body, word) in table {
            let run = patch(sandbar, &dir, &[], &format!("{first}{body}"));
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{body}: {run:?}");
            assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains(word), "{body}: {run:?}");
            let mut names: Vec<String> = fs::read_dir(&dir)
                .expect("dir")
                .map(|entry| entry.expect("entry").file_name().display().to_string())
                .collect();
            names.sort();
            assert_eq!(names, ["a.txt", "gone.txt", "link", "out"], "{body}");
            assert!(fs::read_dir(&outside).expect("outside").next().is_none(), "{body}");
            assert!(!Path::new("/etc/sandbar-was-here").exists());
        }
        let run = patch(sandbar, &dir, &["--json"], table[0].0);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
        let error: serde_json::Value = serde_json::from_str(&run.stderr).expect("json");
        assert_eq!(error["error"]["code"], "apply_patch_invalid_diff", "{error}");
    });
}

#[test]
fn a_usage_mistake_and_a_refused_patch_have_different_codes() {
    let sandbar = Sandbar::own();
    sandbar.make_file("x.patch", "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch\n");
    sandbar.make_file("[x", "");
    for name in ["x.patch", "./x.patch", "no-such.patch", "[x"] {
        let run = sandbar.run(&["patch", name]);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{name}: {run:?}");
        assert!(run.stderr.contains(&format!("to apply a file: sandbar patch < {name}")), "{name}: {run:?}");
    }
    assert!(!sandbar.dir().join("made").exists());
    assert_eq!(sandbar.run(&["patch", "*** nonsense"]).code, 1);
    assert_eq!(sandbar.run(&["patch", "--workspace", "/no/such", "x"]).code, 2);
    assert_eq!(sandbar.run(&["patch", "--profile", "other", "x"]).code, 2);
    assert_eq!(sandbar.run(&["patch", "a", "b"]).code, 2);
    let bytes = sandbar.feed(&["patch"], b"\xff\xfe");
    assert_eq!(bytes.status.code(), Some(2), "{bytes:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn messages_about_a_patch_contain_no_control_characters() {
    let sandbar = Sandbar::own();
    let dir = work(&sandbar);
    let run = patch(&sandbar, &dir, &[], "*** Add File: a\x1b]0;x\x07\u{202e}b\n+x\n");
    assert_eq!((run.code, run.stdout.as_str()), (0, "Success. Updated the following files:\nA a?]0;x??b\n"), "{run:?}");
    let run = patch(&sandbar, &dir, &[], "*** Update File: a.txt\n@@\n-\x1b[2Jnowhere\n+x\n");
    assert!(run.code == 1 && run.stderr.contains("nowhere") && !run.stderr.contains('\x1b'), "{run:?}");
}

#[test]
fn a_signal_does_not_interrupt_a_patch() {
    let sandbar = Sandbar::own();
    let dir = sandbar.make_dir("work");
    let adds: String = (0..400).map(|at| format!("*** Add File: f{at}\n+x\n")).collect();
    let text = format!("*** Begin Patch\n{adds}*** End Patch\n");
    let words = ["patch", "--workspace", "work", &text];
    let child = sandbar.behind(&["env", "--default-signal=INT"], &words).spawn().expect("spawn");
    let count = || fs::read_dir(&dir).expect("dir").count();
    until("it has begun", PATIENCE, || count() > 0);
    kill_process(Pid::from_child(&child), Signal::INT).expect("kill");
    let run = finish(child);
    assert_eq!((run.code, count()), (0, 400), "{}", run.stderr);
}

/// Everything in a directory, by name.
fn contents(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).expect("dir").map(|entry| entry.expect("entry"));
    let read = |entry: fs::DirEntry| {
        let text = fs::read_to_string(entry.path()).unwrap_or_else(|_| "a directory".to_owned());
        (entry.file_name().display().to_string(), text)
    };
    entries.map(read).collect()
}

#[test]
fn the_next_patch_undoes_a_killed_one() {
    let sandbar = Sandbar::own();
    let dir = sandbar.make_dir("work");
    let file = |at: usize| (format!("f{at}"), format!("old {at}\n"));
    let old: BTreeMap<String, String> = (0..100).map(file).collect();
    let sections: String = (0..100)
        .map(|at| match at % 4 {
            0 => format!("*** Delete File: f{at}\n"),
            _ => format!("*** Update File: f{at}\n@@\n-old {at}\n+new {at}\n"),
        })
        .chain((0..200).map(|at| format!("*** Add File: new{at}\n+x\n")))
        .collect();
    let text = format!("*** Begin Patch\n{sections}*** End Patch\n");
    let mut taken_back = 0;
    for round in 0..40 {
        if taken_back == 4 {
            return;
        }
        fs::remove_dir_all(&dir).expect("remove");
        sandbar.make_dir("work");
        old.iter().for_each(|(name, text)| drop(sandbar.make_file(&format!("work/{name}"), text)));
        let mut child = sandbar.command(&["patch", "--workspace", "work", &text]).spawn().expect("spawn");
        until("it is in the middle", PATIENCE, || fs::read_dir(&dir).expect("dir").count() > 101 + (round % 8) * 20);
        child.kill().expect("kill");
        child.wait().expect("wait");
        // What the machine was asked for before may still happen; the next patch waits for that by itself.
        let next = patch(&sandbar, &dir, &[], "*** Add File: probe\n+x\n");
        assert_eq!(next.code, 0, "{next:?}");
        let mut found = contents(&dir);
        assert_eq!(found.remove("probe").as_deref(), Some("x\n"));
        let complete = found.len() == 275 && found.values().all(|text| !text.starts_with("old"));
        assert!(found == old || complete, "round {round}: {} files, {next:?}", found.len());
        taken_back += usize::from(next.stderr.contains("an earlier patch was interrupted; undid its changes to"));
        // The record is gone, and so is the lock.
        assert_eq!(contents(&sandbar.dir().join("state/sandbar/patches")), BTreeMap::new());
    }
    panic!("it was killed in the middle only {taken_back} times");
}

#[test]
fn a_patch_without_a_journal_is_applied_with_a_warning() {
    let sandbar = Sandbar::own();
    let dir = work(&sandbar);
    let mut command =
        sandbar.command(&["patch", "--workspace", "work", "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch\n"]);
    let run = finish(command.env("XDG_STATE_HOME", "/proc/none").spawn().expect("spawn"));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("a patch that is killed cannot be undone"), "{run:?}");
    assert!(!dir.join("a.txt").exists());
}
