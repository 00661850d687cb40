//! A worktree whose repository lies elsewhere: the repository is named, or mounted read-only with `--git ro`.

use super::{
    play::{run, say, script, shell},
    rig::{Sandbar, each},
};

/// `tree` is a worktree of `main`, and the repository of `elsewhere` is `secret`.
fn make(sandbar: &Sandbar) {
    let text = "git config --global user.email a@example.com; git config --global user.name a
        git config --global protocol.file.allow always
        git init -q main; cd main; echo x > f; git add f; git commit -qm first; git worktree add -q ../tree; cd ..
        mkdir elsewhere; git init -q --separate-git-dir=$PWD/secret elsewhere";
    let made = sandbar.host(sandbar.dir(), &["sh", "-ec", text]);
    assert_eq!(made.code, 0, "{made:?}");
}

#[test]
fn a_repository_elsewhere_is_named_or_mounted_read_only() {
    each(|sandbar| {
        make(sandbar);
        // As it is written by older and by newer versions of git.
        for pointer in [sandbar.dir().join("main"), "../main".into()] {
            sandbar.make_file("tree/.git", format!("gitdir: {}/.git/worktrees/tree\n", pointer.display()));
            let (tree, repository) = ("tree", sandbar.dir().join("main/.git").display().to_string());
            let words = ["exec", "--workspace", tree, "--", "git", "log", "--oneline"];
            let hidden = sandbar.run(&words);
            let named =
                format!("sandbar: {tree}: its repository {repository} is not shown; --git ro shows it for reading\n");
            assert!(hidden.code != 0 && hidden.stderr.starts_with(&named), "{hidden:?}");
            let shown = sandbar.run(&["exec", "--git", "ro", "--workspace", tree, "--", "git", "log", "--oneline"]);
            assert!(shown.code == 0 && shown.stdout.contains("first"), "{shown:?}");
            assert_eq!(shown.stderr, "");
            let commit =
                "git status --short && git commit --allow-empty -m x || echo x >> $(git rev-parse --git-dir)/config";
            let held = sandbar.run(&["exec", "--git", "ro", "--workspace", tree, "--", "sh", "-c", commit]);
            assert!(held.code != 0 && held.stderr.contains("Read-only file system"), "{held:?}");
        }
        let model = script(sandbar, "log.json", [vec![shell("git log --oneline")], vec![say("done")]]);
        for how in [&["--in-place"][..], &[]] {
            let told = run(sandbar, &[&["--model", &model, "--workspace", "tree"], how].concat());
            let first = told.of("run_started");
            assert!(first[0]["workspace"].as_str().unwrap().contains("main/.git is not shown"), "{first:?}");
            let told = run(sandbar, &[&["--model", &model, "--workspace", "tree", "--git", "ro"], how].concat());
            assert!(told.outputs().contains("first"), "{told:?}");
        }
    });
}

#[test]
fn a_forged_pointer_opens_no_repository() {
    each(|sandbar| {
        make(sandbar);
        sandbar.make_dir("evil");
        for text in ["gitdir: ../main/.git\n", "gitdir: ../main/.git/worktrees/tree\n", "gitdir: ../secret\n"] {
            sandbar.make_file("evil/.git", text);
            let run = sandbar.run(&["exec", "--git", "ro", "--workspace", "evil", "--", "git", "log"]);
            assert!(run.code != 0 && !run.stdout.contains("first"), "{text}: {run:?}");
            assert!(run.stderr.contains("it does not name this directory as its worktree"), "{text}: {run:?}");
        }
        // One that was made up, and would lead on to what is private.
        let fake = "mkdir private other other/fake; echo key > private/key; cd other/fake; echo x > HEAD
            echo $PWD/../../private > commondir; echo $PWD/../../evil/.git > gitdir; echo \"gitdir: $PWD\" > ../../evil/.git";
        let made = sandbar.host(sandbar.dir(), &["sh", "-ec", fake]);
        assert_eq!(made.code, 0, "{made:?}");
        let private = sandbar.dir().join("private/key").display().to_string();
        let run = sandbar.run(&["exec", "--git", "ro", "--workspace", "evil", "--", "cat", &private]);
        assert!(run.code != 0 && run.stdout.is_empty(), "{run:?}");
        assert!(run.stderr.contains("it does not name this directory as its worktree"), "{run:?}");
        let elsewhere = sandbar.run(&["exec", "--workspace", "elsewhere", "--", "true"]);
        assert!(elsewhere.code == 0 && elsewhere.stderr.contains("secret is not shown, for it does"), "{elsewhere:?}");
        sandbar.make_file("evil/.git", format!("gitdir: {}\n", sandbar.dir().display()));
        let run =
            sandbar.run(&["exec", "--git", "ro", "--workspace", "evil", "--", "ls", sandbar.dir().to_str().unwrap()]);
        assert!(run.code != 0 && run.stdout.is_empty(), "{run:?}");
    });
}
