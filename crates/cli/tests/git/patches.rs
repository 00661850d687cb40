//! `patch` neither changes nor creates a repository.

use std::fs;

use super::{
    repository::Repository,
    rig::{Run, Sandbar, each},
};

fn patch(sandbar: &Sandbar, options: &[&str], body: &str) -> Run {
    let text = format!("*** Begin Patch\n{body}*** End Patch\n");
    sandbar.run(&[&["patch", "--workspace", "work"], options, &[&text]].concat())
}

#[test]
fn a_patch_does_not_change_repositories() {
    each(|sandbar| {
        for layout in ["directory", "separate", "nested", "hooks path", "include", "program", "bare"] {
            let repository = Repository::make(sandbar, layout);
            let (belongs, obeyed) = ("it belongs to a repository", "git obeys it");
            let (file, at, why) = match layout {
                "directory" => (".git/config", "", belongs),
                "separate" => (".bare/config", "", belongs),
                "nested" => ("a/b/.git/config", "", belongs),
                "hooks path" => (".hooks/pre-commit", "", obeyed),
                "include" => (".shared", "", obeyed),
                "program" => ("tools/watch", "", obeyed),
                _ => ("store.git/config", "store.git", belongs),
            };
            let before = fs::read(repository.work.join(file)).ok();
            let body = format!("*** Add File: fine\n+x\n*** Add File: {file}\n+x\n");
            let run = patch(sandbar, &[], &body);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{layout}: {run:?}");
            assert!(run.stderr.contains(&format!("cannot change {file}; {why}")), "{run:?}");
            assert_eq!(fs::read(repository.work.join(file)).ok(), before);
            assert!(!repository.work.join("fine").exists() && !repository.is_taken_over(sandbar));
            let dir = repository.work.join(at).display().to_string();
            if !at.is_empty() {
                let text = "*** Begin Patch\n*** Add File: config\n+x\n*** End Patch\n";
                let run = sandbar.run(&["patch", "--workspace", &dir, text]);
                assert!(run.code == 1 && run.stderr.contains("cannot change"), "{run:?}");
            }
        }
        let repository = Repository::make(sandbar, "directory");
        for file in [".GIT/config", "./.git/hooks/x", "sub/../.git/config", ".git"] {
            let run = patch(sandbar, &[], &format!("*** Add File: {file}\n+x\n"));
            assert_eq!(run.code, 1, "{file}: {run:?}");
        }
        let marker = sandbar.dir().join("marker").display().to_string();
        let body = format!("*** Update File: .git/config\n@@\n [core]\n+\tfsmonitor = \"touch {marker}; false\"\n");
        assert_eq!(patch(sandbar, &[], &body).code, 1);
        assert!(!repository.is_taken_over(sandbar));
        let run = patch(sandbar, &["--git", "rw"], &body);
        assert_eq!(run.code, 0, "{run:?}");
        assert!(repository.is_taken_over(sandbar), "the control");
    });
}

#[test]
fn a_patch_does_not_create_a_repository() {
    each(|sandbar| {
        let work = sandbar.make_dir("work");
        let body = "*** Add File: sub/HEAD\n+ref: refs/heads/main\n*** Add File: sub/objects/x\n+x\n\
            *** Add File: sub/refs/x\n+x\n*** Add File: sub/config\n+x\n";
        let run = patch(sandbar, &[], body);
        assert!(run.code == 1 && run.stderr.contains("it would make a repository"), "{run:?}");
        assert!(!work.join("sub").exists());
        // One part after the other is no way either.
        assert_eq!(patch(sandbar, &[], "*** Add File: sub/objects/x\n+x\n*** Add File: sub/refs/x\n+x\n").code, 0);
        let run = patch(sandbar, &[], "*** Add File: sub/HEAD\n+ref: refs/heads/main\n");
        assert!(run.code == 1 && run.stderr.contains("it would make a repository"), "{run:?}");
        assert_eq!(patch(sandbar, &["--git", "rw"], body).code, 0);
    });
}
