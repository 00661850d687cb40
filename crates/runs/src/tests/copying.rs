//! Copying: which files a working copy has, and with which attributes.

use std::{
    os::unix::fs::{MetadataExt, symlink},
    time::{Duration, SystemTime},
};

use super::*;

#[test]
fn a_copy_has_what_the_rules_do_not_ignore_and_the_repository() {
    let world = World::new();
    for (path, content) in [
        (".gitignore", "target/\n*.log\n.*\n!.gitignore\n!.ignore\n"),
        (".ignore", "!keep.log\nsecret\n"),
        (".git/config", "[core]\n"),
        (".git/target/x.log", "in the repository nothing is ignored"),
        (".git/info/exclude", "mine\n"),
        ("mine", ""),
        ("secret", ""),
        ("src/main.rs", "fn main() {}\n"),
        ("src/.gitignore", "gen\n!debug.log\n"),
        ("src/gen", ""),
        ("src/debug.log", ""),
        ("src/deep/gen", ""),
        ("src/target/out", ""),
        ("target/debug/out", ""),
        ("a.log", ""),
        ("keep.log", ""),
    ] {
        world.write(path, content);
    }
    let run = world.store.begin("x").unwrap();
    let copied = copy(&run, &world.source()).unwrap();
    let names: Vec<String> = tree(&run.workspace()).into_keys().map(|name| PathBytes(name).to_string()).collect();
    let expected = [
        ".git/config",
        ".git/info/exclude",
        ".git/target/x.log",
        ".gitignore",
        ".ignore",
        "keep.log",
        "src/.gitignore",
        "src/debug.log",
        "src/main.rs",
    ];
    assert_eq!(names, expected);
    assert_eq!((copied.files, copied.ignored, copied.left_out.len()), (9, 7, 0));
}

#[test]
fn a_part_of_a_repository_is_copied_by_the_rules_of_the_whole() {
    let world = World::new();
    for (path, content) in [
        (".gitignore", "node_modules/\n/app/web/out\n/out\n*.log\n"),
        (".git/info/exclude", "mine\n"),
        ("app/.gitignore", "!keep.log\n"),
        ("app/web/.gitignore", "!node_modules/\n"),
        ("app/web/node_modules/x", "the deepest word counts"),
        ("app/web/out/x", ""),
        ("app/web/src/out", ""),
        ("app/web/src/node_modules/x", ""),
        ("app/web/a.log", ""),
        ("app/web/keep.log", ""),
        ("app/web/mine", ""),
    ] {
        world.write(path, content);
    }
    let run = world.store.begin("x").unwrap();
    copy(&run, &world.source().join("app/web")).unwrap();
    let names: Vec<String> = tree(&run.workspace()).into_keys().map(|name| PathBytes(name).to_string()).collect();
    assert_eq!(names, [".gitignore", "keep.log", "node_modules/x", "src/node_modules/x", "src/out"]);
    // The same rules hold for what is new, although they are not in the copy.
    for path in ["out/y", "b.log", "new"] {
        write(&run.workspace(), path, "x\n");
    }
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert_eq!((verbs(&changes), changes.ignored), (vec!["added new".to_owned()], 2));
}

#[test]
fn modes_times_and_links_are_kept_and_odd_things_are_named() {
    let world = World::new();
    let source = world.source();
    world.write("run", "#!/bin/sh\n");
    world.write("closed/file", "x");
    world.write("suid", "");
    mode(&source.join("run"), 0o750);
    mode(&source.join("suid"), 0o4755);
    symlink("/etc/passwd", source.join("out")).unwrap();
    symlink("closed", source.join("in")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, source.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(source.join("run")).unwrap().set_modified(long_ago).unwrap();
    fs::File::open(source.join("closed")).unwrap().set_modified(long_ago).unwrap();
    mode(&source.join("closed"), 0o555);
    let run = world.store.begin("x").unwrap();
    let copied = copy(&run, &source).unwrap();
    let at = |name: &str| fs::symlink_metadata(run.workspace().join(name)).unwrap();
    assert_eq!(at("run").mode() & 0o7777, 0o750);
    assert_eq!(at("suid").mode() & 0o7777, 0o755);
    assert_eq!(at("closed").mode() & 0o7777, 0o755);
    for name in ["run", "closed"] {
        assert_eq!(at(name).modified().unwrap(), long_ago, "{name}");
    }
    assert_eq!(fs::read_link(run.workspace().join("out")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(fs::read_link(run.workspace().join("in")).unwrap(), Path::new("closed"));
    assert_eq!(copied.left_out, [("pipe".to_owned(), "it is a pipe, a socket or a device")]);
    assert_eq!(verbs(&run.changes(Scope::NotIgnored).unwrap()), [""; 0]);
}

#[test]
fn a_link_that_is_put_there_during_the_copy_leads_nowhere() {
    for (name, to) in [("z/secret", "../../outside/secret"), ("z", "../outside")] {
        let world = World::new();
        write(world.temp.path(), "outside/secret", "TOP SECRET\n");
        world.write("a", "x");
        world.write("z/secret", "harmless");
        let run = world.store.begin("x").unwrap();
        let path = world.source().join(name);
        // Told before the first file is copied, after all were found.
        let swapped = path.clone();
        let swap = move |progress: CopyProgress| {
            let path = &swapped;
            if progress.done == 0 {
                if path.is_dir() {
                    fs::remove_dir_all(path).unwrap()
                } else {
                    fs::remove_file(path).unwrap()
                }
                symlink(to, path).unwrap();
            }
        };
        let options = CopyOptions::default().progress(swap);
        let text = text(&run.copy_in(&world.source(), &options).unwrap_err());
        assert!(text.contains("z/secret"), "{text}");
        // A naive copy has the secret.
        assert_eq!(fs::read_to_string(world.source().join("z/secret")).unwrap(), "TOP SECRET\n");
        assert!(tree(&run.workspace()).is_empty());
    }
}

#[test]
fn git_finds_nothing_changed_in_a_copy() {
    let world = World::new();
    let git = |dir: &Path, words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "safe.directory=*"]).args(words);
        let output = command.current_dir(dir).env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (path, content) in [("a", "x\n"), ("dir/b", "y\n"), (".gitignore", "out\n"), ("out/c", "")] {
        world.write(path, content);
    }
    mode(&world.source().join("a"), 0o755);
    symlink("dir", world.source().join("link")).unwrap();
    for words in [&["init", "-q"][..], &["add", "."], &["commit", "-qm", "x"]] {
        git(&world.source(), words);
    }
    let run = world.run();
    assert_eq!(git(&run.workspace(), &["status", "--porcelain"]), "");
    assert!(!run.workspace().join("out").exists());
    git(&run.workspace(), &["commit", "--allow-empty", "-qm", "y"]);
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert!(changes.in_git > 0 && changes.all.is_empty());
}

#[test]
fn a_sparse_file_stays_small() {
    let world = World::new();
    let file = fs::File::create(world.source().join("image")).unwrap();
    file.set_len(24 << 20).unwrap();
    let run = world.run();
    let copy = fs::metadata(run.workspace().join("image")).unwrap();
    assert_eq!(copy.len(), 24 << 20);
    assert!(copy.blocks() * 512 < 4 << 20, "{} blocks", copy.blocks());
}

#[test]
fn the_store_is_never_copied_into_itself() {
    let world = World::new();
    write(world.temp.path(), "source/a", "a");
    world.run();
    // The source is above the store now.
    let run = world.store.begin("x").unwrap();
    let copied = copy(&run, world.temp.path()).unwrap();
    assert_eq!(tree(&run.workspace()).len(), 1);
    assert_eq!(copied.left_out, [("state/sandbar".to_owned(), "sandbar keeps its own state there")]);
    // It is inside of it: the workspace of another run.
    let next = world.store.begin("x").unwrap();
    copy(&next, &run.workspace()).unwrap();
    assert_eq!(tree(&next.workspace()), tree(&run.workspace()));
    // It is the store itself, or what that is in.
    for dir in ["state/sandbar", "state/sandbar/runs"] {
        let error = copy(&world.store.begin("x").unwrap(), &world.temp.path().join(dir)).unwrap_err();
        assert!(text(&error).contains("its own state"), "{dir}");
    }
}

#[test]
fn what_is_too_much_is_refused_before_anything_is_copied() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.write(name, [b'x'; 1000]);
    }
    for (limits, word) in [
        (CopyLimits { entries: 2, ..CopyLimits::default() }, "more than 2 files"),
        (CopyLimits { bytes: 2048, ..CopyLimits::default() }, "more than 2.0K"),
    ] {
        let run = world.store.begin("x").unwrap();
        let text = text(&run.copy_in(&world.source(), &CopyOptions::default().limits(limits)).unwrap_err());
        assert!(text.contains(word) && text.contains(".ignore"), "{text}");
        assert!(tree(&run.workspace()).is_empty());
    }
    let run = world.store.begin("x").unwrap();
    assert!(text(&copy(&run, &world.temp.path().join("none")).unwrap_err()).contains("No such file"));
    assert!(text(&copy(&run, &world.source().join("a")).unwrap_err()).contains("Not a directory"));
}

#[test]
fn a_copy_that_is_given_up_leaves_nothing() {
    let world = World::new();
    for at in 0..600 {
        world.write(&format!("d{}/f{at}", at % 7), "x");
    }
    let run = world.store.begin("x").unwrap();
    let token = CancellationToken::new();
    let cancel = token.clone();
    let stop = move |progress: CopyProgress| {
        if progress.done >= 256 {
            cancel.cancel();
        }
    };
    let ended = run.copy_in(&world.source(), &CopyOptions::default().progress(stop).cancel(token));
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(fs::read_dir(run.workspace()).unwrap().count(), 0);
    assert!(!run.contents_path().exists() && !run.path().join("base.json").exists());
    // And it can be tried again.
    copy(&run, &world.source()).unwrap();
    assert_eq!(tree(&run.workspace()), tree(&world.source()));
}

#[test]
fn runs_are_found_listed_and_removed() {
    let world = World::new();
    world.write("a", "a");
    let (one, two) = (world.run(), world.store.begin("second").unwrap());
    let (first, second) = (one.id().to_owned(), two.id().to_owned());
    let find =
        |given: &str| world.store.find(given).map(|(run, _)| run.id().to_owned()).map_err(|error| error.to_string());
    assert_eq!(find(&first), Ok(first.clone()));
    assert_eq!(find(&first[first.len() - 8..]), Ok(first.clone()));
    assert!(find(&first[..4]).unwrap_err().contains("several runs match; give the whole id"));
    assert!(find(&first[first.len() - 3..]).unwrap_err().contains("at least 4 characters"));
    assert!(find("../x").is_err());
    let status = |store: &RunStore| store.list().unwrap().0.iter().map(|run| run.status).collect::<Vec<_>>();
    assert_eq!(status(&world.store), [RunStatus::Running, RunStatus::Completed]);
    assert!(world.store.remove(&second).unwrap_err().to_string().contains("still running"));
    drop((one, two));
    assert_eq!(status(&world.store), [RunStatus::Killed, RunStatus::Completed]);
    let dir = world.temp.path().join("state/sandbar/runs");
    for (path, bits) in
        [("", 0o700), ("record.json", 0o600), ("base.json", 0o600), ("base.data", 0o600), ("workspace", 0o755)]
    {
        let found = fs::metadata(dir.join(&first).join(path)).unwrap();
        assert_eq!(found.mode() & 0o777, bits, "{path}");
    }
    fs::write(dir.join(&second).join("record.json"), "{").unwrap();
    assert!(find(&second).unwrap_err().contains("is damaged"));
    assert_eq!(world.store.list().unwrap().1.len(), 1);
    for id in [first, second] {
        world.store.remove(&id).unwrap();
    }
    assert_eq!(fs::read_dir(dir).unwrap().count(), 0);
}

#[test]
fn a_mark_at_the_beginning_of_rules_does_not_hide_the_first_of_them() {
    let world = World::new();
    world.write(".gitignore", "\u{feff}.env\nother\n");
    for path in [".env", "other", "part/.env", "part/kept"] {
        world.write(path, "x");
    }
    let names = |source: &Path| {
        let run = world.store.begin("x").unwrap();
        copy(&run, source).unwrap();
        tree(&run.workspace()).into_keys().map(|name| PathBytes(name).to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&world.source()), [".gitignore", "part/kept"]);
    fs::create_dir(world.source().join(".git")).unwrap();
    assert_eq!(names(&world.source().join("part")), ["kept"]);
}

#[test]
fn rules_that_cannot_be_followed_stop_the_copy_and_are_named() {
    let large = format!(".env\n{}\n", "[a-z]*".repeat(60_000));
    let long = format!("{}.env\n", "# a comment\n".repeat(100_000));
    for (file, rules) in [(".gitignore", &large), ("dir/.ignore", &large), (".gitignore", &long)] {
        let world = World::new();
        world.write(file, rules);
        world.write(".env", "SECRET");
        world.write("part/file", "x");
        let run = world.store.begin("x").unwrap();
        let text = text(&copy(&run, &world.source()).unwrap_err());
        let path = world.source().join(file).display().to_string();
        assert!(text.contains("ignore rules") && text.contains(&path), "{text}");
        assert!(tree(&run.workspace()).is_empty());
        if file == ".gitignore" {
            // The same from above a part of a repository.
            fs::create_dir(world.source().join(".git")).unwrap();
            let text = super::text(&copy(&run, &world.source().join("part")).unwrap_err());
            assert!(text.contains(&path), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_copied_comes_with_one_next_step() {
    let world = World::new();
    world.write("a", "x");
    let run = world.store.begin("x").unwrap();
    let file = world.source().join("a");
    let gone = move |_: CopyProgress| drop(fs::remove_file(&file));
    let text = text(&run.copy_in(&world.source(), &CopyOptions::default().progress(gone)).unwrap_err());
    assert!(text.contains("; leave it out with a line in .ignore"), "{text}");
}

#[test]
fn a_saved_run_is_replaced_in_one_step() {
    let world = World::new();
    let run = world.store.begin("x").unwrap();
    let path = run.path().join("state.json");
    run.save_state("a longer first one").unwrap();
    let first = fs::File::open(&path).unwrap();
    run.save_state("second").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    // A reader of the first file can read all of it.
    assert_eq!(std::io::read_to_string(first).unwrap(), "a longer first one");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut names: Vec<_> = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["record.json", "reserve", "state.json", "workspace"]);
}
