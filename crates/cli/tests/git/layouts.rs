//! `exec`: no layout lets a command into a repository, unless `--git rw` is typed.

use super::{
    repository::{LAYOUTS, Repository},
    rig::{Sandbar, each, has_engine},
};

fn exec(sandbar: &Sandbar, options: &[&str], script: &str) -> super::rig::Run {
    sandbar.run(&[&["exec"], options, &["--", "sh", "-c", script]].concat())
}

#[test]
fn repositories_of_every_layout_are_protected() {
    each(|sandbar| {
        for layout in LAYOUTS.map(|layout| layout.name) {
            let repository = Repository::make(sandbar, layout);
            let script = format!("{}; touch done", repository.attack);
            let run = exec(sandbar, &["--workspace", "work"], &script);
            assert_eq!(run.code, 0, "{layout}: {run:?}");
            assert!(run.stderr.contains("Read-only file system"), "{layout}: {run:?}");
            assert!(!run.stderr.contains("during the work"), "{layout}: {run:?}");
            assert!(repository.work.join("done").exists(), "the rest can be changed");
            assert!(!repository.is_taken_over(sandbar), "{layout}");
            // The control: the same, when it is asked for.
            let run = exec(sandbar, &["--workspace", "work", "--git", "rw"], &script);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{layout}: {run:?}");
            assert!(repository.is_taken_over(sandbar), "the control, {layout}");
        }
    });
}

#[test]
fn other_mounts_are_protected_like_the_workspace() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "separate");
        let script = format!("cd /data && {{ {}; }}", repository.attack);
        let shown = format!("{}:/data", repository.work.display());
        for options in [["--rw", &shown], ["--grant", &format!("{shown}:rw")]] {
            let run = exec(sandbar, &options, &script);
            assert!(run.stderr.contains("Read-only file system"), "{options:?}: {run:?}");
            assert!(!repository.is_taken_over(sandbar), "{options:?}");
        }
        // A manifest's own mounts, where they are trusted.
        sandbar.make_file(
            "m.yaml",
            "entries: {data: {type: mount, source: work, read_only: false, mount_strategy: {type: local_bind}}}\n",
        );
        let script = format!("cd data && {{ {}; }}", repository.attack);
        let run = exec(sandbar, &["--manifest", "m.yaml", "--allow-mounts"], &script);
        assert!(run.stderr.contains("Read-only file system"), "{run:?}");
        assert!(!repository.is_taken_over(sandbar));
        let run = exec(sandbar, &["--rw", &shown, "--git", "rw"], &format!("cd /data && {{ {}; }}", repository.attack));
        assert_eq!(run.code, 0, "{run:?}");
        assert!(repository.is_taken_over(sandbar), "the control");
    });
}

#[test]
fn the_directory_of_a_repository_is_not_mounted_writable() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "worktrees");
        for place in [".bare", ".bare/hooks"] {
            let place = repository.work.join(place).display().to_string();
            for options in [["--workspace", &place], ["--rw", &place]] {
                let run = exec(sandbar, &options, "echo ran");
                assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{options:?}: {run:?}");
                assert!(run.stderr.contains("belongs to a git repository; show it :ro, or add --git rw"), "{run:?}");
            }
            let run = exec(sandbar, &["--workspace", &format!("{place}:ro")], "echo ran");
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        }
    });
}

#[test]
fn a_worktree_inside_its_repository_is_usable() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "worktrees");
        let added = sandbar.host(&repository.work, &["git", "worktree", "add", "-q", "-b", "x", ".bare/inner"]);
        assert_eq!(added.code, 0, "{added:?}");
        let run = exec(sandbar, &["--workspace", "work/.bare/inner"], "touch made; echo x > .git");
        assert!(run.stderr.contains("cannot create .git: Read-only file system"), "{run:?}");
        assert!(repository.work.join(".bare/inner/made").exists());
    });
}

#[test]
fn a_repository_that_cannot_be_protected_is_refused() {
    each(|sandbar| {
        let repository = Repository::make(sandbar, "directory");
        let run = exec(sandbar, &["--workspace", "work", "--isolation", "landlock"], "echo ran");
        assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{run:?}");
        assert!(run.stderr.contains("cannot protect") && run.stderr.contains("without full isolation"), "{run:?}");
        let run = exec(sandbar, &["--workspace", "work", "--isolation", "landlock", "--git", "rw"], "echo ran");
        assert_eq!((run.code, run.stdout.as_str()), (0, "ran\n"), "{run:?}");
        std::fs::rename(repository.work.join(".git"), repository.work.join("git")).unwrap();
        std::os::unix::fs::symlink("git", repository.work.join(".git")).unwrap();
        let run = exec(sandbar, &["--workspace", "work"], "echo ran");
        assert!(run.code == 125 && run.stderr.contains("which is a link"), "{run:?}");
    });
}

#[test]
fn containers_keep_repositories_read_only_too() {
    const IMAGE: &str = "sandbar-test:bookworm";
    if !has_engine(IMAGE) {
        return;
    }
    let sandbar = Sandbar::own();
    let image = format!("docker:{IMAGE}");
    for layout in ["separate", "nested", "submodule"] {
        let repository = Repository::make(&sandbar, layout);
        let run = exec(&sandbar, &["--sandbox", &image, "--workspace", "work"], &repository.attack);
        assert!(run.stderr.contains("Read-only file system"), "{layout}: {run:?}");
        assert!(!repository.is_taken_over(&sandbar), "{layout}");
    }
    let repository = Repository::make(&sandbar, "nested");
    let script = "mv a old; mkdir -p a/b; cp -r old/b/.git a/b/.git";
    let run =
        exec(&sandbar, &["--sandbox", &image, "--workspace", "work"], &format!("{script}; {}", repository.attack));
    assert!(run.stderr.contains("a/b/.git was moved away and replaced during the work"), "{run:?}");
    assert!(repository.is_taken_over(&sandbar), "what is told of is a danger");
}
