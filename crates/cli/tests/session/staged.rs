//! Copies that are killed, or that fill the disk: no partial file is visible, and the next copy removes the leftovers.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::Made,
    rig::{PATIENCE, Sandbar, each, finish},
};

/// Large enough that a copy can be seen half way.
const BIG: u64 = 48 << 20;

/// Every path below a directory. What vanishes meanwhile is left out.
fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

fn leftovers(root: &Path) -> Vec<PathBuf> {
    let is_staged =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".sandbar-"));
    below(root).into_iter().filter(is_staged).collect()
}

/// Whether some of the large file is there, wherever it is written, and not all of it.
fn is_half_way(root: &Path, since: u64) -> bool {
    let sizes = below(root).into_iter().filter_map(|path| fs::metadata(path).ok().filter(fs::Metadata::is_file));
    sizes.map(|found| found.len()).any(|size| size > since && size < BIG)
}

/// Starts a copy and kills it while it writes the large file; `false` when it was too quick.
fn kill_half_way(sandbar: &Sandbar, words: &[&str], watched: &Path) -> bool {
    let mut child = sandbar.command(words).spawn().expect("spawn");
    let deadline = Instant::now() + PATIENCE;
    while !is_half_way(watched, 1 << 20) {
        if child.try_wait().expect("wait").is_some() {
            return false;
        }
        assert!(Instant::now() < deadline, "the copy neither writes nor ends");
        thread::sleep(Duration::from_millis(1));
    }
    kill_process(Pid::from_child(&child), Signal::KILL).expect("kill");
    finish(child).code != 0
}

fn sparse(path: &Path, size: u64) {
    fs::File::create(path).expect("create").set_len(size).expect("set_len");
}

/// Kills a copy and looks at what is there, then copies again.
fn check(sandbar: &Sandbar, from: &str, to: &str, tree: &Path) {
    let words = ["session", "cp", from, to];
    let watched = tree.parent().expect("parent");
    let caught = (0..50).any(|_| {
        let old = b"old".to_vec();
        let _not_there = fs::remove_dir_all(tree);
        fs::create_dir(tree).expect("create");
        fs::write(tree.join("big"), &old).expect("write");
        fs::set_permissions(tree, fs::Permissions::from_mode(0o777)).expect("chmod");
        let killed = kill_half_way(sandbar, &words, watched);
        let size = fs::metadata(tree.join("big")).expect("it is always there").len();
        assert!(size == 3 || size == BIG, "{from} {to}: {size} bytes of {BIG}");
        killed
    });
    assert!(caught, "no copy was caught half way");
    let again = sandbar.run(&words);
    assert_eq!((again.code, again.stderr.as_str()), (0, ""), "{again:?}");
    assert_eq!(fs::metadata(tree.join("big")).expect("big").len(), BIG);
    assert_eq!(leftovers(watched), Vec::<PathBuf>::new());
}

#[test]
fn a_killed_copy_leaves_complete_files_and_the_next_copy_removes_its_leftovers() {
    each(|sandbar| {
        let (source, workspace, out) = (sandbar.make_dir("source"), sandbar.make_dir("work"), sandbar.make_dir("out"));
        for dir in [&source, &workspace, &out] {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
        }
        sparse(&source.join("big"), BIG);
        fs::create_dir(workspace.join("in")).expect("create");
        fs::set_permissions(workspace.join("in"), fs::Permissions::from_mode(0o777)).expect("chmod");
        let made = Made::new(sandbar, &["--workspace", &workspace.display().to_string()]);
        assert_eq!(made.sh(&format!("mkdir tree; truncate -s {BIG} tree/big")).code, 0);
        let tree = out.join("tree");
        check(sandbar, &made.at("tree/."), &tree.display().to_string(), &tree);
        check(sandbar, &made.at("tree/big"), &tree.join("big").display().to_string(), &tree);
        let contents = format!("{}/.", source.display());
        check(sandbar, &contents, &made.at("in/tree"), &workspace.join("in/tree"));
    });
}

#[test]
fn a_directory_is_merged_into_an_existing_one() {
    each(|sandbar| {
        let (source, work, mount) = (sandbar.make_dir("source"), sandbar.make_dir("work"), sandbar.make_dir("mount"));
        let script = "mkdir -p shared/deep locked new file_over mounted/sub; echo new > shared/deep/a; echo new > file; \
                      echo new > locked/x; echo new > link_over; rmdir file_over; echo new > file_over; \
                      echo new > mounted/m; echo new > mounted/sub/s; ln -s shared link; \
                      chmod 555 locked shared/deep; chmod 750 shared";
        let old = "mkdir -p shared/deep file_over/x mounted; echo old > shared/deep/a; echo old > shared/b; echo old > file; \
                   ln -s nowhere link_over; echo old > link; echo old > mounted/m; chmod 500 shared/deep";
        assert_eq!(sandbar.host(&source, &["sh", "-c", script]).code, 0);
        let mounted = format!("{}:/workspace/tree/mounted", mount.display());
        let made = Made::new(sandbar, &["--workspace", &work.display().to_string(), "--rw", &mounted]);
        assert_eq!(made.sh(&format!("mkdir -p tree; cd tree; {old}")).code, 0);
        made.does(&["cp", &format!("{}/.", source.display()), &made.at("tree")]);
        let look = "cd tree; cat file link_over file_over shared/deep/a shared/b locked/x mounted/m mounted/sub/s; \
                    readlink link; stat -c %a locked shared shared/deep; ls -A | grep -c sandbar";
        let found = made.sh(look).stdout;
        let lines = "new\nnew\nnew\nnew\nold\nnew\nnew\nnew\nshared\n555\n750\n555\n0\n";
        assert_eq!(found, lines);
        assert_eq!([leftovers(&work), leftovers(&mount)].concat(), Vec::<PathBuf>::new());
        // A directory does not replace what is something else, and then nothing else is replaced either.
        let clash = "mkdir clash; cd clash; echo old > file; echo old > shared";
        assert_eq!(made.sh(clash).code, 0);
        let refused = sandbar.run(&["session", "cp", &format!("{}/.", source.display()), &made.at("clash")]);
        assert!(refused.code == 1 && refused.stderr.contains("clash/shared"), "{refused:?}");
        assert!(!refused.stderr.contains(".sandbar-"), "{refused:?}");
        assert_eq!(made.sh("cd clash; cat file shared; ls -A").stdout, "old\nold\nfile\nshared\n");
    });
}

#[test]
fn leftovers_of_interrupted_commands_are_not_copied() {
    each(|sandbar| {
        let (source, out) = (sandbar.make_dir("source"), sandbar.make_dir("out"));
        let script = "echo half > .sandbar-0123456789abcdef; mkdir -p sub/.sandbar-copy-0123abcd-1-2; echo mine > keep; \
                      echo half > sub/.sandbar-copy-0123abcd-1-2/x; mkfifo sub/.sandbar-copy-0123abcd-1-2/fifo; \
                      echo mine > .sandbar-notes";
        assert_eq!(sandbar.host(&source, &["sh", "-c", script]).code, 0);
        let made = Made::new(sandbar, &[]);
        assert_eq!(made.sh(&format!("mkdir made; cd made; {script}")).code, 0);
        let (from, to) = (source.display().to_string(), out.join("tree").display().to_string());
        for words in [["session", "cp", &from, &made.at("in")], ["session", "cp", &made.at("made"), &to]] {
            let run = sandbar.run(&words);
            assert_eq!((run.code, run.stderr.lines().count()), (0, 1), "{run:?}");
            let note = "left out .sandbar-0123456789abcdef, sub/.sandbar-copy-0123abcd-1-2: leftovers of an interrupted sandbar command";
            assert!(run.stderr.contains(note), "{run:?}");
        }
        assert_eq!(made.sh("cd in; find . | sort").stdout, ".\n./.sandbar-notes\n./keep\n./sub\n");
        let mut copied: Vec<_> =
            below(&out.join("tree")).iter().map(|path| path.file_name().unwrap().to_owned()).collect();
        copied.sort();
        assert_eq!(copied, [".sandbar-notes", "keep", "sub"]);
    });
}

/// A small disk of its own, for as long as this lives.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: PathBuf, size: &str) -> Self {
        let options = format!("size={size},mode=0777");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status();
        assert!(mounted.expect("mount").success(), "this test mounts, which needs root");
        Self(at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _said_by_itself = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_with_the_file_and_changes_nothing() {
    let sandbar = Sandbar::own();
    let (disk, work) = (Disk::mount(sandbar.make_dir("disk"), "2m"), sandbar.make_dir("work"));
    let source = sandbar.make_dir("source");
    fs::create_dir(source.join("sub")).expect("create");
    fs::write(source.join("file"), "new").expect("write");
    sparse(&source.join("sub/large"), 8 << 20);
    let made = Made::new(&sandbar, &["--workspace", &work.display().to_string()]);
    let inside = Made::new(&sandbar, &["--workspace", &disk.0.display().to_string()]);
    made.does(&["cp", &source.display().to_string(), &made.at("tree")]);
    for name in ["new", "tree"] {
        let place = disk.0.join(name);
        if name == "tree" {
            fs::create_dir_all(place.join("sub")).expect("create");
            fs::write(place.join("file"), "old").expect("write");
            fs::write(place.join("sub/large"), "old").expect("write");
            symlink("file", place.join("link")).expect("symlink");
        }
        let before = below(&disk.0);
        let contents = format!("{}/.", source.display());
        for (from, to) in [(made.at("tree/."), place.display().to_string()), (contents, inside.at(name))] {
            let run = sandbar.run(&["session", "cp", &from, &to]);
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
            assert!(run.stderr.contains("sub/large") && run.stderr.contains("No space left"), "{run:?}");
            assert!(!run.stderr.contains(".sandbar-"), "{run:?}");
            assert_eq!(below(&disk.0), before, "{to}");
        }
        if name == "tree" {
            assert_eq!(fs::read_to_string(place.join("file")).expect("file"), "old");
        }
    }
}
