//! `diff` and `apply` leave out the files of repositories, and create none.

use std::fs;

use serde_json::Value;

use super::{
    play::{kept, run, say, script, shell},
    repository::{Repository, bare_layout},
    rig::{Sandbar, each},
};

/// An agent does something in a copy of `work`. The id of its run.
fn work(sandbar: &Sandbar, command: &str) -> String {
    let model = script(sandbar, "work.json", [vec![shell(command)], vec![say("done")]]);
    let told = run(sandbar, &["--model", &model, "--workspace", "work"]);
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
    told.id().to_owned()
}

#[test]
fn changes_to_a_repository_in_a_copy_are_not_applied() {
    each(|sandbar| {
        for layout in ["directory", "separate", "worktrees", "nested", "submodule", "bare"] {
            let repository = Repository::make(sandbar, layout);
            let id = work(sandbar, &format!("{}; echo x > fine", repository.attack));
            let names = sandbar.run(&["diff", &id, "--name-only"]);
            assert_eq!((names.code, names.stdout.as_str()), (0, "fine\n"), "{layout}: {names:?}");
            assert!(names.stderr.contains("1 file of repositories changed"), "{layout}: {names:?}");
            let applied = sandbar.run(&["apply", &id]);
            assert!(applied.code == 0 && applied.stdout.starts_with("A fine\napplied 1 change "), "{applied:?}");
            assert!(!repository.is_taken_over(sandbar), "{layout}");
            let copy = kept(sandbar, &id).join("workspace").display().to_string();
            let copied = sandbar.host(sandbar.dir(), &["cp", "-rfT", &copy, "work"]);
            assert_eq!(copied.code, 0, "{copied:?}");
            assert!(repository.is_taken_over(sandbar), "the control, {layout}");
        }
    });
}

#[test]
fn files_that_a_repository_runs_are_applied_only_after_consent() {
    each(|sandbar| {
        for (layout, file) in [("hooks path", ".hooks/pre-commit"), ("include", ".shared"), ("program", "tools/watch")]
        {
            let repository = Repository::make(sandbar, layout);
            let id = work(sandbar, &format!("{}; echo x > fine", repository.attack));
            let applied = sandbar.run(&["apply", &id]);
            let words = format!("{file}: git obeys it");
            assert!(applied.code == 3 && applied.stderr.contains(&words), "{layout}: {applied:?}");
            assert!(!repository.work.join("fine").exists() && !repository.is_taken_over(sandbar), "{layout}");
            assert_eq!(sandbar.run(&["apply", &id, "--yes"]).code, 0);
            assert!(repository.is_taken_over(sandbar), "the control, {layout}");
        }
    });
}

#[test]
fn apply_does_not_create_a_repository() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "directory");
        let layout = bare_layout(sandbar);
        let id = work(sandbar, &format!("mkdir sub; cd sub; {layout}; touch objects/x refs/x; echo x > fine"));
        let shown = sandbar.run(&["diff", &id, "--name-only"]);
        assert_eq!(shown.stdout, "sub/config\nsub/fine\n", "{shown:?}");
        assert!(shown.stderr.contains("became a repository"), "{shown:?}");
        let applied = sandbar.run(&["apply", &id]);
        assert!(
            applied.code == 1 && applied.stderr.contains("refused sub: it would become a repository"),
            "{applied:?}"
        );
        let used = sandbar.host(&repository.work.join("sub"), &["git", "status"]);
        assert!(used.code == 0 && !sandbar.dir().join("marker").exists(), "{used:?}");
        assert!(repository.work.join("sub/fine").exists() && !repository.work.join("sub/HEAD").exists());
        let copy = kept(sandbar, &id).join("workspace").display().to_string();
        assert_eq!(sandbar.host(sandbar.dir(), &["cp", "-rfT", &copy, "work"]).code, 0);
        sandbar.host(&repository.work.join("sub"), &["git", "status"]);
        assert!(sandbar.dir().join("marker").exists(), "the control");
    });
}

#[test]
fn apply_does_not_complete_a_partial_repository() {
    each(|sandbar| {
        let work_dir = sandbar.make_dir("work");
        let made = sandbar.host(&work_dir, &["mkdir", "-p", "sub/objects"]);
        assert_eq!(made.code, 0, "{made:?}");
        // In the copy it is never whole.
        let id = work(sandbar, "mkdir -p sub/refs; touch sub/refs/x; echo x > sub/HEAD; rmdir sub/objects");
        let document = sandbar.run(&["apply", &id, "--json", "--dry-run"]);
        let document: Value = serde_json::from_str(&document.stdout).unwrap();
        let refused: Vec<_> = document["refused"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect();
        assert_eq!(refused, ["sub/HEAD", "sub/objects", "sub/refs", "sub/refs/x"], "{document}");
        assert_eq!(fs::read_dir(work_dir.join("sub")).unwrap().count(), 1);
    });
}
