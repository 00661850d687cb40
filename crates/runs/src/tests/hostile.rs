//! Working copies that were prepared to mislead their reader.

use std::{os::unix::fs::symlink, time::Instant};

use rustix::fs::{CWD, Mode};

use super::*;

#[test]
fn nothing_outside_is_ever_read() {
    let world = World::new();
    world.write("dir/secret", "harmless\n");
    world.write("file", "harmless\n");
    write(world.temp.path(), "outside/secret", "TOP SECRET\n");
    let run = world.run();
    let copy = run.workspace();
    let outside = world.temp.path().join("outside");
    fs::remove_dir_all(copy.join("dir")).unwrap();
    symlink(&outside, copy.join("dir")).unwrap();
    fs::remove_file(copy.join("file")).unwrap();
    symlink(outside.join("secret"), copy.join("file")).unwrap();
    symlink(outside.join("secret"), copy.join(".gitignore")).unwrap();
    symlink(&outside, copy.join("new")).unwrap();
    // A naive reader is led outside.
    for path in ["dir/secret", "file", "new/secret"] {
        assert_eq!(fs::read_to_string(copy.join(path)).unwrap(), "TOP SECRET\n", "{path}");
    }
    let text = String::from_utf8(diff(&run)).unwrap();
    assert!(!text.contains("TOP SECRET"), "{text}");
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert_eq!(verbs(&changes), ["added .gitignore", "added dir", "deleted dir/secret", "type file", "added new"]);
}

#[test]
fn nothing_odd_is_waited_for_or_taken_for_gone() {
    let world = World::new();
    world.write("becomes a pipe", "x\n");
    world.write("closed/file", "x\n");
    let run = world.run();
    let copy = run.workspace();
    fs::remove_file(copy.join("becomes a pipe")).unwrap();
    for name in ["becomes a pipe", "new pipe", ".gitignore"] {
        rustix::fs::mkfifoat(CWD, copy.join(name), Mode::RWXU).unwrap();
    }
    std::os::unix::net::UnixListener::bind(copy.join("socket")).unwrap();
    let begun = Instant::now();
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert!(begun.elapsed().as_secs() < 60);
    assert_eq!(verbs(&changes), [""; 0]);
    assert_eq!(changes.special.len(), 4);
}

#[test]
fn a_file_of_ten_gigabytes_of_nothing_costs_nothing() {
    let world = World::new();
    world.write("a", "x\n");
    let run = world.run();
    for name in ["a", "b"] {
        fs::File::create(run.workspace().join(name)).unwrap().set_len(10 << 30).unwrap();
    }
    let begun = Instant::now();
    let text = String::from_utf8(diff(&run)).unwrap();
    assert!(text.contains("Binary files a/a and b/a differ") && text.contains("Binary files /dev/null and b/b differ"));
    assert!(begun.elapsed().as_secs() < 60);
}

#[test]
fn a_tree_without_end_is_named_and_the_rest_is_shown() {
    let world = World::new();
    world.write("a", "x\n");
    let run = world.run();
    let mut dir: std::os::fd::OwnedFd = fs::File::open(run.workspace()).unwrap().into();
    let name = "d".repeat(100);
    for _ in 0..1000 {
        rustix::fs::mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = rustix::fs::openat(&dir, name.as_str(), sandbar_host_files::DIRECTORY, Mode::empty()).unwrap();
    }
    write(&run.workspace(), "a", "y\n");
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert_eq!(verbs(&changes), ["modified a"]);
    assert!(changes.unreadable[0].1.contains("directories deep"));
    let id = run.id().to_owned();
    drop(run);
    world.store.remove(&id).unwrap();
}

#[test]
fn lines_made_to_be_slow_to_compare_are_given_up_and_still_right() {
    let world = World::new();
    let lines = |step: usize| (0..120_000).map(|at| format!("{}\n", (at * step) % 7919)).collect::<String>();
    world.write("a", lines(7));
    let run = world.run();
    write(&run.workspace(), "a", lines(11));
    let begun = Instant::now();
    let text = diff(&run);
    assert!(begun.elapsed().as_secs() < 90, "{:?}", begun.elapsed());
    git_apply(&world.source(), &text).unwrap();
    assert_eq!(tree(&world.source()), tree(&run.workspace()));
}

#[test]
fn rules_planted_in_a_copy_cost_little_and_hide_nothing_once_they_are_too_many() {
    let world = World::new();
    world.write("a", "x\n");
    let run = world.run();
    let copy = run.workspace();
    let rules = |count: usize| (0..count).map(|at| format!("*a{at}*b?[c-d]*x\n")).collect::<String>();
    // One that is too large, also for what is said further up.
    write(&copy, ".gitignore", "*.o\n");
    write(&copy, "large/.gitignore", rules(8_000));
    write(&copy, "large/x.o", "x");
    // And one below another.
    let mut dir = "deep".to_owned();
    for _ in 0..40 {
        write(&copy, &format!("{dir}/.gitignore"), format!("hidden\n{}", rules(1_500)));
        write(&copy, &format!("{dir}/hidden"), "x");
        dir.push_str("/d");
    }
    write(&copy, "x.o", "x");
    let begun = Instant::now();
    let changes = run.changes(Scope::NotIgnored).unwrap();
    assert!(begun.elapsed().as_secs() < 120, "{:?}", begun.elapsed());
    let words = verbs(&changes);
    assert!(words.contains(&"added large/x.o".to_owned()) && !words.contains(&"added x.o".to_owned()), "{words:?}");
    assert!(!words.contains(&"added deep/hidden".to_owned()), "{words:?}");
    let last = format!("added {}/hidden", dir.strip_suffix("/d").unwrap());
    assert!(words.contains(&last), "{words:?}");
}
