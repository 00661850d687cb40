//! Mounts of host files, and temporary workspaces.

use std::{fs, path::Path};

use super::rig::{each, sh};

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_given_workspace_is_used_in_place() {
    each(|sandbar| {
        let work = sandbar.make_dir("work");
        let script = "pwd; cat in; echo made > out; mkdir -p a/b";
        sandbar.make_file("work/in", "given\n");
        let run = sandbar.run(&["exec", "--workspace", &text(&work), "--", "sh", "-c", script]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "/workspace\ngiven\n"), "{run:?}");
        assert_eq!(fs::read_to_string(work.join("out")).expect("out"), "made\n");
        assert!(work.join("a/b").is_dir());
        let mut here = sandbar.command(&["exec", "--workspace", ".", "--", "ls"]);
        let run = super::rig::finish(here.current_dir(&work).spawn().expect("spawn"));
        assert_eq!(run.stdout, "a\nin\nout\n", "{run:?}");
    });
}

#[test]
fn a_read_only_workspace_cannot_be_changed() {
    each(|sandbar| {
        let work = sandbar.make_dir("work");
        let given = format!("{}:ro", text(&work));
        let run = sandbar.run(&["exec", "--workspace", &given, "--", "touch", "x"]);
        assert!(run.code == 1 && run.stderr.contains("Read-only file system"), "{run:?}");
        assert!(fs::read_dir(&work).expect("read").next().is_none());
    });
}

#[test]
fn a_temporary_workspace_is_empty_and_removed_afterwards() {
    each(|sandbar| {
        let run = sandbar.run(&sh("ls -A; echo x > kept; echo y > ~/kept; cat kept ~/kept; pwd"));
        assert_eq!((run.code, run.stdout.as_str()), (0, "x\ny\n/workspace\n"), "{run:?}");
        assert!(sandbar.left().is_empty());
        assert_eq!(sandbar.run(&sh("ls -A ~ .")).stdout.matches("kept").count(), 0);
    });
}

#[test]
fn ro_mounts_are_readable_and_only_rw_mounts_are_writable() {
    each(|sandbar| {
        let shown = sandbar.make_dir("shown");
        sandbar.make_file("shown/file", "before\n");
        let path = text(&shown);
        let script = format!("cat {path}/file; echo after > {path}/file");
        let run = sandbar.run(&["exec", "--ro", &path, "--", "sh", "-c", &script]);
        assert!(run.code != 0 && run.stdout == "before\n" && run.stderr.contains("Read-only"), "{run:?}");
        let run = sandbar.run(&["exec", "--rw", &path, "--", "sh", "-c", &script]);
        assert_eq!((run.code, run.stdout.as_str()), (0, "before\n"), "{run:?}");
        assert_eq!(fs::read_to_string(shown.join("file")).expect("file"), "after\n");
        let elsewhere = format!("{path}/file:/data/one");
        let run = sandbar.run(&["exec", "--ro", &elsewhere, "--", "cat", "/data/one"]);
        assert_eq!(run.stdout, "after\n", "{run:?}");
        let hidden = sandbar.run(&["exec", "--", "ls", &path]);
        assert!(hidden.code != 0 && hidden.stdout.is_empty(), "{hidden:?}");
    });
}

#[test]
fn weaker_isolation_levels_are_available_by_name() {
    each(|sandbar| {
        for level in ["landlock", "none"] {
            let run = sandbar.run(&["exec", "--isolation", level, "--", "sh", "-c", "echo x > y; cat y; exit 3"]);
            assert_eq!((run.code, run.stdout.as_str()), (3, "x\n"), "{level}: {run:?}");
            assert!(sandbar.left().is_empty());
        }
    });
}
