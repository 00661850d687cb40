//! `--in-place`: the directory changes, except for its repository.

use std::fs;

use super::{
    play::{count, patch, run, say, script, shell},
    rig::{PATIENCE, Sandbar, each, until},
};

#[test]
fn in_place_the_directory_changes_but_not_its_repository() {
    each(|sandbar| {
        let source = sandbar.make_dir("source");
        sandbar.make_dir("source/.git");
        sandbar.make_dir("source/.git/hooks");
        sandbar.make_dir("source/plain");
        sandbar.make_file("source/a.txt", "one\n");
        sandbar.make_file("source/.git/config", "[core]\n");
        let change = "echo two > a.txt; cat .git/config; echo x > .git/hooks/pre-commit; echo x >> .git/config; \
            mv .git moved; rm -rf .git; mkdir -p plain/hooks; echo x > plain/hooks/pre-commit";
        let model = script(sandbar, "change.json", [vec![shell(change)], vec![say("done")]]);
        let told = run(sandbar, &["--model", &model, "--workspace", "source", "--in-place"]);
        assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
        assert!(told.outputs().contains("[core]") && told.outputs().contains("Read-only file system"), "{told:?}");
        assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"two\n");
        assert_eq!(fs::read(source.join(".git/config")).expect("config"), b"[core]\n");
        assert!(!source.join(".git/hooks/pre-commit").exists() && !source.join("moved").exists());
        // The same words, where nothing is mounted over it.
        assert!(source.join("plain/hooks/pre-commit").exists());
        // It is not enough to show it: that could stand in a file.
        let shown = format!("{}:/workspace/.git", source.join(".git").display());
        let model = script(sandbar, "hook.json", [vec![shell("echo x > .git/hooks/mine")], vec![say("done")]]);
        let words = ["--model", &model, "--workspace", "source", "--in-place", "--rw", &shown];
        let told = run(sandbar, &words);
        assert!(told.run.code == 1 && told.message().contains("belongs to a git repository"), "{told:?}");
        assert!(!source.join(".git/hooks/mine").exists(), "{told:?}");
        let told = run(sandbar, &[&words[..], &["--git", "rw"]].concat());
        assert_eq!(told.run.code, 0, "{told:?}");
        assert!(source.join(".git/hooks/mine").exists(), "{told:?}");
        let told = run(sandbar, &["--model", &model, "--workspace", "source:ro", "--in-place"]);
        assert_eq!(told.run.code, 0, "{told:?}");
        assert!(told.outputs().contains("Read-only file system"), "{told:?}");
        assert_eq!(sandbar.run(&["diff", told.id()]).stdout, "");
    });
}

#[test]
fn in_place_a_pointer_to_a_repository_is_protected_and_a_new_repository_reported() {
    each(|sandbar| {
        let source = sandbar.make_dir("tree");
        sandbar.make_file("tree/.git", "gitdir: elsewhere\n");
        let change = "rm -f .git; echo 'gitdir: evil' > .git; mv .git x; cat .git";
        let model = script(sandbar, "change.json", [vec![shell(change)], vec![say("done")]]);
        let told = run(sandbar, &["--model", &model, "--workspace", "tree", "--in-place"]);
        assert_eq!(told.run.code, 0, "{told:?}");
        assert_eq!(fs::read(source.join(".git")).expect("it"), b"gitdir: elsewhere\n");
        let bare = sandbar.make_dir("bare");
        let model = script(sandbar, "init.json", [vec![shell("mkdir .git; echo x > .git/config")], vec![say("done")]]);
        let told = sandbar.run(&["run", "x", "--model", &model, "--workspace", "bare", "--in-place"]);
        assert!(bare.join(".git/config").exists(), "the control: nothing keeps it from that");
        assert!(told.stderr.contains("bare/.git appeared during the work"), "{told:?}");
        std::os::unix::fs::symlink(source.join(".git"), sandbar.make_dir("linked").join(".git")).expect("link");
        let told = sandbar.run(&["run", "x", "--model", &model, "--workspace", "linked", "--in-place"]);
        assert!(told.code == 1 && told.stderr.contains("which is a link"), "{told:?}");
    });
}

#[test]
fn other_directories_are_mounted_as_requested() {
    each(|sandbar| {
        let (ro, rw) = (sandbar.make_dir("ro"), sandbar.make_dir("rw"));
        sandbar.make_file("ro/f", "read me");
        let change = "cat /ro/f; echo x > /ro/g; echo x > /rw/g; echo $GREETING; cat /proc/net/dev | wc -l";
        let model = script(sandbar, "change.json", [vec![shell(change)], vec![say("done")]]);
        let (shown_ro, shown_rw) = (format!("{}:/ro", ro.display()), format!("{}:/rw", rw.display()));
        let words = ["--model", &model, "--ro", &shown_ro, "--rw", &shown_rw, "--env", "GREETING=hello"];
        let told = run(sandbar, &words);
        assert_eq!(told.run.code, 0, "{told:?}");
        let seen = told.outputs();
        assert!(seen.contains("read me") && seen.contains("hello") && seen.contains("Read-only"), "{seen}");
        assert!(!ro.join("g").exists() && rw.join("g").exists());
    });
}

#[test]
fn an_agent_cannot_change_its_records() {
    each(|sandbar| {
        let model = script(sandbar, "done.json", [vec![say("done")]]);
        let here = sandbar.dir().to_str().unwrap();
        let shown = format!("{here}/state:/state");
        for words in [
            ["--workspace", here, "--in-place"].as_slice(),
            &["--workspace", "state", "--in-place"],
            &["--rw", &shown],
            &["--rw", here],
        ] {
            let told = run(sandbar, &[&["--model", &model], words].concat());
            assert_eq!((told.run.code, count(sandbar)), (1, 0), "{words:?}: {told:?}");
            assert!(told.message().contains("set XDG_STATE_HOME to a directory outside of it"), "{told:?}");
        }
        // Reading does no harm, and a copy leaves it out.
        for words in [["--workspace", ".:ro", "--in-place"].as_slice(), &["--workspace", "."]] {
            let told = run(sandbar, &[&["--model", &model], words].concat());
            assert_eq!(told.run.code, 0, "{words:?}: {told:?}");
        }
    });
}

#[test]
fn a_partial_patch_of_a_killed_run_is_undone() {
    let sandbar = Sandbar::own();
    let source = sandbar.make_dir("source");
    let old = |at: usize| format!("old {at}\n");
    let sections: String = (0..100)
        .map(|at| format!("*** Update File: f{at}\n@@\n-old {at}\n+new {at}\n"))
        .chain((0..200).map(|at| format!("*** Add File: new{at}\n+x\n")))
        .collect();
    let change = format!("*** Begin Patch\n{sections}*** End Patch\n");
    let model = script(&sandbar, "change.json", [vec![patch(&change)], vec![shell("sleep 100")], vec![say("done")]]);
    let look = script(&sandbar, "look.json", [vec![say("done")]]);
    let mut taken_back = 0;
    for round in 0..20 {
        if taken_back == 2 {
            return;
        }
        fs::remove_dir_all(&source).expect("remove");
        sandbar.make_dir("source");
        (0..100).for_each(|at| drop(sandbar.make_file(&format!("source/f{at}"), old(at))));
        let words = ["run", "x", "--model", &model, "--workspace", "source", "--in-place"];
        let mut child = sandbar.command(&words).spawn().expect("spawn");
        until("it is in the middle", PATIENCE, || fs::read_dir(&source).expect("dir").count() > 101 + (round % 4) * 40);
        child.kill().expect("kill");
        child.wait().expect("wait");
        let told = sandbar.run(&["run", "x", "--model", &look, "--workspace", "source", "--in-place"]);
        assert_eq!(told.code, 0, "{told:?}");
        let count = fs::read_dir(&source).expect("dir").count();
        let is_old = |at: usize| fs::read_to_string(source.join(format!("f{at}"))).expect("it") == old(at);
        let before = (0..100).filter(|at| is_old(*at)).count();
        assert!((before, count) == (100, 100) || (before, count) == (0, 300), "{before} old of {count}: {told:?}");
        taken_back += usize::from(told.stderr.contains("an earlier patch was interrupted; undid its changes to"));
    }
    panic!("it was killed in the middle only {taken_back} times");
}
