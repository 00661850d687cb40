//! Runs on a working copy: the source does not change until `apply`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    play::{count, kept, patch, run, say, script, shell},
    rig::{Sandbar, each},
};

const CHANGE: &str = "*** Begin Patch
*** Update File: a.txt
@@
-one
+two
*** Add File: new/b.txt
+b
*** Delete File: gone.txt
*** End Patch
";

/// A repository with something to ignore.
fn source(sandbar: &Sandbar) -> PathBuf {
    let source = sandbar.make_dir("source");
    for (name, text) in [("a.txt", "one\n"), ("gone.txt", "x\n"), (".gitignore", "target\n"), (".env", "K=1\n")] {
        sandbar.make_file(&format!("source/{name}"), text);
    }
    sandbar.make_dir("source/target");
    sandbar.make_file("source/target/big", "ignored");
    sandbar.make_dir("source/.git");
    sandbar.make_file("source/.git/HEAD", "ref: refs/heads/main\n");
    source
}

/// Every path with its content.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).expect("dir") {
            let path = entry.expect("entry").path();
            let kind = fs::symlink_metadata(&path).expect("metadata");
            if kind.is_dir() {
                open.push(path);
            } else if kind.is_file() {
                all.push((path.clone(), fs::read(&path).expect("read")));
            } else {
                all.push((path.clone(), fs::read_link(&path).expect("link").into_os_string().into_encoded_bytes()));
            }
        }
    }
    all.sort();
    all
}

#[test]
fn the_changes_of_a_copy_are_shown_and_applied() {
    each(|sandbar| {
        let source = source(sandbar);
        let before = tree(&source);
        let look = "ls -A; cat .git/HEAD; test -e target || echo no target; echo '*' > .git/hooked; echo y > target";
        let model = script(sandbar, "change.json", [vec![shell(look)], vec![patch(CHANGE)], vec![say("done")]]);
        let told = run(sandbar, &["--model", &model, "--workspace", "source"]);
        assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
        let seen = told.outputs();
        assert!(seen.contains("refs/heads/main") && seen.contains("no target") && seen.contains(".env"), "{seen}");
        assert_eq!(tree(&source), before, "the source is untouched");
        let diff = sandbar.run(&["diff", told.id()]);
        assert_eq!(diff.code, 0, "{diff:?}");
        for line in ["-one", "+two", "--- /dev/null", "+++ b/new/b.txt", "deleted file mode"] {
            assert!(diff.stdout.contains(line), "{line} in {diff:?}");
        }
        assert!(!diff.stdout.contains("target") && !diff.stdout.contains("hooked"), "{diff:?}");
        let applied = sandbar.run(&["apply", &told.id()[told.id().len() - 8..]]);
        assert_eq!(applied.code, 0, "{applied:?}");
        assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"two\n");
        assert_eq!(fs::read(source.join("new/b.txt")).expect("b"), b"b\n");
        assert!(!source.join("gone.txt").exists() && !source.join(".git/hooked").exists());
        assert_eq!(fs::read(source.join("target/big")).expect("big"), b"ignored");
    });
}

#[test]
fn files_of_a_manifest_are_not_applied_to_the_source() {
    let sandbar = Sandbar::own();
    let source = source(&sandbar);
    let entries =
        "entries:\n  brief.md: {type: file, content: x}\n  out: {type: dir}\n  a.txt: {type: file, content: given}\n";
    sandbar.make_file("m.yaml", entries);
    let work = "echo changed > brief.md; echo made > out/report.md; cat a.txt; echo own > own.txt; rm gone.txt";
    let model = script(&sandbar, "work.json", [vec![shell(work)], vec![say("done")]]);
    let told = run(&sandbar, &["--model", &model, "--workspace", "source", "--manifest", "m.yaml"]);
    assert_eq!(told.status(), "completed", "{told:?}");
    assert!(told.outputs().contains("given"), "{told:?}");
    let names = sandbar.run(&["diff", told.id(), "--name-only"]);
    assert_eq!(names.stdout, "gone.txt\nout/report.md\nown.txt\n", "{names:?}");
    assert_eq!(sandbar.run(&["apply", told.id()]).code, 0);
    assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"one\n");
    assert!(source.join("out/report.md").exists() && !source.join("brief.md").exists());
}

#[test]
fn a_run_without_changes_says_so_and_a_failed_one_shows_its_changes() {
    let sandbar = Sandbar::own();
    source(&sandbar);
    let idle = script(&sandbar, "idle.json", [vec![say("done")]]);
    let ended = sandbar.run(&["run", "do it", "--model", &idle, "--workspace", "source"]);
    assert!(ended.stderr.contains("nothing was changed") && !ended.stderr.contains("apply"), "{ended:?}");
    let broken = script(&sandbar, "broken.json", [vec![patch(CHANGE)]]);
    let ended = sandbar.run(&["run", "do it", "--model", &broken, "--workspace", "source"]);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("+two") && ended.stderr.contains("sandbar apply"), "{ended:?}");
}

#[test]
fn links_to_the_host_are_not_followed() {
    each(|sandbar| {
        let source = sandbar.make_dir("source");
        sandbar.make_dir("outside");
        let secret = sandbar.make_file("outside/secret", "host only");
        let links = [
            ("secret", secret.to_str().unwrap()),
            ("outside", sandbar.dir().join("outside").to_str().unwrap()),
            ("up", "../outside"),
            ("passwd", "/etc/shadow"),
            ("root", "/"),
            ("dangling", "/no/such/place"),
            ("loop", "loop"),
            ("self", "."),
            ("proc", "/proc/1/root"),
        ]
        .map(|(name, to)| (name, to.to_owned()));
        for (name, to) in &links {
            symlink(to, source.join(name)).expect("link");
        }
        let before = tree(&source);
        let look = "cat secret outside/secret up/secret root/root/.profile; ls root/home root/work; \
            echo x > secret; echo x > outside/new; echo x > up/new; echo x > dangling; cat loop; ls self/self | head -3; \
            rm -rf outside; mkdir outside; echo real > outside/secret; ln -s /etc/hostname host";
        let model = script(sandbar, "links.json", [vec![shell(look)], vec![say("done")]]);
        let told = run(sandbar, &["--model", &model, "--workspace", "source"]);
        assert_eq!(told.run.code, 0, "{told:?}");
        assert!(!told.outputs().contains("host only"), "{told:?}");
        let applied = sandbar.run(&["apply", told.id()]);
        assert!(!applied.stderr.contains("panic"), "{applied:?}");
        assert_eq!(fs::read_to_string(&secret).expect("secret"), "host only");
        assert_eq!(fs::read_dir(sandbar.dir().join("outside")).expect("outside").count(), 1);
        assert!(applied.code == 1 || tree(&source) != before);
        sandbar.leaves_nothing("no such words");
    });
}

#[test]
fn unreadable_and_special_files_are_named() {
    let sandbar = Sandbar::unprivileged();
    let source = sandbar.make_dir("source");
    let model = script(&sandbar, "done.json", [vec![shell("ls -A")], vec![say("done")]]);
    fs::set_permissions(&source, fs::Permissions::from_mode(0o000)).expect("chmod");
    let closed = run(&sandbar, &["--model", &model, "--workspace", "source"]);
    assert_eq!(closed.run.code, 1, "{closed:?}");
    assert!(closed.message().contains("source") && closed.message().contains("Permission denied"), "{closed:?}");
    fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).expect("chmod");
    let hidden = sandbar.make_file("source/hidden", "x");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).expect("chmod");
    let denied = run(&sandbar, &["--model", &model, "--workspace", "source"]);
    assert_eq!(denied.run.code, 1, "{denied:?}");
    assert!(denied.message().contains("hidden") && denied.message().contains("Permission denied"), "{denied:?}");
    fs::remove_file(&hidden).expect("remove");
    assert_eq!(count(&sandbar), 0);
    let made = Command::new("mkfifo").arg(source.join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let odd = run(&sandbar, &["--model", &model, "--workspace", "source"]);
    assert_eq!(odd.run.code, 0, "{odd:?}");
    assert!(odd.run.stderr.contains("left out pipe"), "{odd:?}");
    assert!(!kept(&sandbar, odd.id()).join("workspace/pipe").exists());
}

#[test]
fn the_files_of_a_run_are_private() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![shell("echo x > f")], vec![say("done")]]);
    let told = run(&sandbar, &["--model", &model]);
    let dir = kept(&sandbar, told.id());
    let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o077;
    assert_eq!(mode(&dir), 0);
    for name in ["record.json", "audit.jsonl", "trace.jsonl"] {
        assert!(fs::metadata(dir.join(name)).expect(name).len() > 0);
        assert_eq!(mode(&dir.join(name)), 0, "{name}");
    }
    assert_eq!(fs::read(dir.join("workspace/f")).expect("f"), b"x\n");
}

#[test]
fn leftovers_of_an_interrupted_command_are_not_copied() {
    let sandbar = Sandbar::own();
    let source = source(&sandbar);
    fs::create_dir(source.join(".sandbar-apply-dead")).unwrap();
    fs::write(source.join(".sandbar-apply-dead/1"), "half").unwrap();
    fs::write(source.join(".sandbar-0123456789abcdef"), "half").unwrap();
    fs::write(source.join(".sandbar-notes"), "mine").unwrap();
    let model = script(&sandbar, "look.json", [vec![shell("ls -A")], vec![say("done")]]);
    let told = run(&sandbar, &["--model", &model, "--workspace", "source"]);
    assert_eq!(told.run.code, 0, "{told:?}");
    assert!(told.outputs().contains(".sandbar-notes"), "{told:?}");
    assert!(!told.outputs().contains("apply-dead") && !told.outputs().contains("0123456789"), "{told:?}");
    assert!(told.run.stderr.contains("left out .sandbar-apply-dead"), "{told:?}");
}
