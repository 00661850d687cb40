//! Applying changes: all of them or none, and never outside of the destination.

use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// Applies the changes of a run. Returns the outcome in one word, or the error.
pub(super) fn applied(run: &RunDir, options: &ApplyOptions) -> String {
    let changes = run.changes(Scope::NotIgnored).unwrap();
    let mut plan = match run.plan_apply(&changes, options) {
        Ok(plan) if !plan.conflicts().is_empty() => return "conflict".to_owned(),
        Ok(plan) => plan,
        Err(error) => return text(&error),
    };
    let outcome = match (plan.steps().is_empty(), plan.already_applied()) {
        (false, _) => "applied",
        (true, 0) => "nothing",
        (true, _) => "already_applied",
    };
    plan.commit(&CancellationToken::new()).map_or_else(|error| text(&error), |()| outcome.to_owned())
}

/// Conflicts and refusals. Without conflicts, the rest is applied.
fn complaints(run: &RunDir, options: &ApplyOptions) -> Vec<String> {
    let changes = run.changes(Scope::NotIgnored).unwrap();
    let mut plan = run.plan_apply(&changes, options).unwrap();
    let complaints = plan.complaints().iter().map(|(path, reason)| format!("{path}: {reason}")).collect();
    if plan.conflicts().is_empty() {
        plan.commit(&CancellationToken::new()).unwrap();
    }
    complaints
}

fn defaults() -> ApplyOptions {
    ApplyOptions::default()
}

fn forced() -> ApplyOptions {
    defaults().overwrite(Overwrite::Force)
}

#[test]
fn changes_come_home_once() {
    let world = World::new();
    for path in ["changed", "goes", "dir/goes", "program", "becomes a directory", "replaced/inner"] {
        world.write(path, "x\n");
    }
    world.write("dir2/stays", "x\n");
    world.write("dir2/.gitignore", "cache\n");
    world.write("dir2/cache", "x\n");
    mode(&world.source().join("changed"), 0o640);
    let run = world.run();
    let copy = run.workspace();
    write(&copy, "changed", "y\n");
    fs::remove_file(copy.join("goes")).unwrap();
    fs::remove_dir_all(copy.join("dir")).unwrap();
    fs::remove_dir_all(copy.join("dir2")).unwrap();
    mode(&copy.join("program"), 0o6755);
    fs::remove_file(copy.join("becomes a directory")).unwrap();
    write(&copy, "becomes a directory/inner", "y\n");
    fs::remove_dir_all(copy.join("replaced")).unwrap();
    write(&copy, "replaced", "y\n");
    write(&copy, "new/deep/file", "y\n");
    fs::create_dir(copy.join("new/empty")).unwrap();
    symlink("changed", copy.join("link")).unwrap();
    let before = tree(&world.source());
    let plan = run.plan_apply(&run.changes(Scope::NotIgnored).unwrap(), &defaults()).unwrap();
    assert!(plan.steps().len() > 10 && plan.conflicts().is_empty() && plan.refused().is_empty());
    assert_eq!(tree(&world.source()), before);
    assert_eq!(applied(&run, &defaults()), "applied");
    let mut expected = tree(&copy);
    // What was ignored was not copied, and is not touched.
    expected.insert(b"dir2/cache".to_vec(), ("file".to_owned(), b"x\n".to_vec()));
    assert_eq!(tree(&world.source()), expected);
    let at = |name: &str| fs::symlink_metadata(world.source().join(name)).unwrap().mode() & 0o7777;
    assert_eq!((at("changed"), at("program") & 0o7000), (0o640, 0));
    assert!(world.source().join("new/empty").is_dir() && !world.source().join("dir").exists());
    assert_eq!(applied(&run, &defaults()), "already_applied");
    assert_eq!(applied(&run, &forced()), "already_applied");
}

#[test]
fn a_conflict_changes_nothing_and_each_is_named() {
    let world = World::new();
    for path in ["fine", "changed", "removed", "deleted here", "became a directory"] {
        world.write(path, "x\n");
    }
    let run = world.run();
    let (copy, source) = (run.workspace(), world.source());
    for path in ["fine", "changed", "removed", "became a directory"] {
        write(&copy, path, "y\n");
    }
    fs::remove_file(copy.join("deleted here")).unwrap();
    write(&copy, "both made", "y\n");
    write(&copy, "same", "y\n");
    world.write("changed", "z\n");
    world.write("deleted here", "z\n");
    world.write("both made", "z\n");
    world.write("same", "y\n");
    fs::remove_file(source.join("removed")).unwrap();
    fs::remove_file(source.join("became a directory")).unwrap();
    fs::create_dir(source.join("became a directory")).unwrap();
    let before = tree(&source);
    let expected = [
        "became a directory: it is a directory now",
        "both made: it was created meanwhile",
        "changed: it was changed",
        "deleted here: it was changed",
        "removed: it was removed",
    ];
    assert_eq!(complaints(&run, &defaults()), expected);
    assert_eq!(tree(&source), before);
    // What can be overwritten is, only once nothing else is in the way.
    assert_eq!(complaints(&run, &forced()), expected[..1]);
    assert_eq!(tree(&source), before);
    fs::remove_dir(source.join("became a directory")).unwrap();
    assert_eq!(applied(&run, &forced()), "applied");
    assert_eq!(tree(&source), tree(&copy));
}

#[test]
fn a_link_in_the_source_is_never_written_through() {
    let world = World::new();
    world.write("dir/file", "x\n");
    world.write("file", "x\n");
    write(world.temp.path(), "outside/file", "x\n");
    let run = world.run();
    for path in ["dir/file", "dir/new", "file"] {
        write(&run.workspace(), path, "y\n");
    }
    let source = world.source();
    fs::remove_dir_all(source.join("dir")).unwrap();
    fs::remove_file(source.join("file")).unwrap();
    symlink("../outside", source.join("dir")).unwrap();
    symlink("../outside/file", source.join("file")).unwrap();
    let outside = || tree(&world.temp.path().join("outside"));
    let before = outside();
    let blocked = "a part of its path is a link or a file";
    for args in [defaults(), forced()] {
        let told = complaints(&run, &args);
        assert!(
            told.contains(&format!("dir/file: {blocked}")) && told.contains(&format!("dir/new: {blocked}")),
            "{told:?}"
        );
    }
    fs::remove_file(source.join("dir")).unwrap();
    assert_eq!(complaints(&run, &defaults()), ["dir/file: it was removed", "file: it was changed"]);
    assert_eq!(applied(&run, &forced()), "applied");
    assert_eq!(outside(), before);
    assert_eq!(tree(&source), tree(&run.workspace()));
}

#[test]
fn links_that_lead_out_and_the_repository_stay_where_they_are() {
    let world = World::new();
    world.write(".git/config", "x\n");
    world.write("file", "x\n");
    let run = world.run();
    let copy = run.workspace();
    symlink("/etc/passwd", copy.join("absolute")).unwrap();
    symlink("../x", copy.join("up")).unwrap();
    symlink(".git/hooks", copy.join("hooks")).unwrap();
    symlink("file", copy.join("fine")).unwrap();
    write(&copy, ".git/config", "[core]\n\tfsmonitor = evil\n");
    write(&copy, "sub/.git/hooks/pre-commit", "evil");
    let told = complaints(&run, &defaults());
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("absolute: it is a link that leads out of the directory, to /etc/passwd"), "{told:?}");
    let names: Vec<String> = tree(&world.source()).into_keys().map(|name| PathBytes(name).to_string()).collect();
    assert_eq!(names, [".git/config", "file", "fine"]);
    assert_eq!(fs::read_to_string(world.source().join(".git/config")).unwrap(), "x\n");
}

#[test]
fn a_directory_with_something_unknown_is_not_replaced() {
    let world = World::new();
    world.write("dir/.gitignore", "cache\n");
    world.write("dir/cache", "precious\n");
    let run = world.run();
    fs::remove_dir_all(run.workspace().join("dir")).unwrap();
    write(&run.workspace(), "dir", "y\n");
    assert_eq!(complaints(&run, &defaults()), ["dir: it is a directory with cache in it, which was not copied"]);
    assert_eq!(fs::read_to_string(world.source().join("dir/cache")).unwrap(), "precious\n");
}

#[test]
fn what_fails_in_the_middle_is_taken_back() {
    let world = World::new();
    for path in ["a", "b", "c/d", "goes"] {
        world.write(path, "x\n");
    }
    let run = world.run();
    let copy = run.workspace();
    for path in ["a", "b", "c/d", "e/f"] {
        write(&copy, path, "y\n");
    }
    fs::remove_file(copy.join("goes")).unwrap();
    let before = tree(&world.source());
    let changes = run.changes(Scope::NotIgnored).unwrap();
    let commit_after = |meddle: &dyn Fn(), cancel: &CancellationToken| {
        let mut plan = run.plan_apply(&changes, &defaults()).unwrap();
        meddle();
        text(&plan.commit(cancel).unwrap_err())
    };
    // Another process replaces a file between the plan and the commit.
    let replace = || {
        fs::remove_file(world.source().join("c/d")).unwrap();
        world.write("c/d", "x\n");
    };
    let error = commit_after(&replace, &CancellationToken::new());
    assert!(error.contains("c/d: it changed while changes were being applied"), "{error}");
    assert_eq!(tree(&world.source()), before);
    assert!(!world.source().join("e").exists());
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let error = commit_after(&|| (), &cancelled);
    assert!(error.contains("cancelled") && error.contains("nothing was changed"), "{error}");
    assert_eq!(tree(&world.source()), before);
    assert_eq!(fs::read_dir(world.source()).unwrap().count(), 4);
    assert_eq!(applied(&run, &defaults()), "applied");
}

#[test]
fn a_new_link_leads_nowhere_else_through_links_that_are_there() {
    let world = World::new();
    world.write(".git/hooks/x", "x\n");
    world.write("dir/file", "x\n");
    write(world.temp.path(), "outside/secret", "s\n");
    let source = world.source();
    symlink("../outside", source.join("up")).unwrap();
    symlink(".git", source.join("g")).unwrap();
    symlink("/", source.join("dir/root")).unwrap();
    symlink("dir", source.join("inside")).unwrap();
    let run = world.run();
    let links = [
        // Through one that is there, at the end of the way and on it, from a directory, and through a new one.
        ("bad1", "up/secret"),
        ("bad2", "up"),
        ("bad3", "g/hooks"),
        ("bad4", "inside/root/etc"),
        ("dir/bad5", "../up"),
        ("bad6", "bad2/secret"),
        ("bad7", "fine7/fine7/up"),
        ("bad8", "x/"),
        ("fine7", "."),
        ("fine8", "fine9"),
        ("fine9", "fine8/x"),
        ("fine1", "inside/file"),
        ("fine2", "fine1"),
        ("fine3", "not/there/yet"),
        ("dir/fine4", "../inside"),
        ("fine5", "new/fine6"),
        ("new/fine6", "file"),
    ];
    write(&run.workspace(), "new/file", "x\n");
    for (path, to) in links {
        // A way that takes too long to go.
        let to = if path == "bad8" { "fine7/".repeat(41) } else { to.to_owned() };
        symlink(to, run.workspace().join(path)).unwrap();
    }
    let told = complaints(&run, &defaults());
    let refused: Vec<&str> = told.iter().map(|text| text.split(':').next().unwrap()).collect();
    assert_eq!(refused, ["bad1", "bad2", "bad3", "bad4", "bad6", "bad7", "bad8", "dir/bad5"], "{told:?}");
    assert!(told[0].ends_with("leads out of the directory through another one, to up/secret"), "{told:?}");
    assert!(told[2].ends_with("a git repository through another one, to g/hooks"), "{told:?}");
    for (path, _) in links {
        let is_there = fs::symlink_metadata(source.join(path)).is_ok();
        assert_eq!(is_there, path.contains("fine"), "{path}");
    }
}

#[test]
fn a_link_of_another_directory_is_looked_at_there() {
    let world = World::new();
    world.write("dir/file", "x\n");
    let run = world.run();
    symlink("dir/file", run.workspace().join("link")).unwrap();
    let other = world.temp.path().join("other");
    fs::create_dir(&other).unwrap();
    symlink("../source", other.join("dir")).unwrap();
    let args = defaults().destination(&other);
    assert!(complaints(&run, &args)[0].contains("through another one"));
    assert!(fs::symlink_metadata(other.join("link")).is_err());
}

#[test]
fn everything_that_waits_or_is_kept_is_on_a_list() {
    let world = World::new();
    world.write("changes", "x\n");
    world.write("goes", "x\n");
    world.write("zdir/file", "x\n");
    let run = world.run();
    write(&run.workspace(), "changes", "y\n");
    write(&run.workspace(), "new", "y\n");
    write(&run.workspace(), "zdir/file", "y\n");
    fs::remove_file(run.workspace().join("goes")).unwrap();
    let changes = run.changes(Scope::NotIgnored).unwrap();
    let slots = run.plan_apply(&changes, &defaults()).unwrap().staged_files();
    let lines = ["1 D goes", "2 M changes", "3 A new", "4 M zdir/file"];
    assert_eq!(slots, lines.map(str::to_owned));
}

#[test]
fn a_killed_run_is_applied_only_if_the_caller_allows_it() {
    let world = World::new();
    world.write("a", "x\n");
    let run = world.run();
    let mut record = run.record().unwrap();
    record.status = RunStatus::Running;
    run.save(&record).unwrap();
    write(&run.workspace(), "a", "half");
    let id = run.id().to_owned();
    drop(run);
    // Nothing locks the run now: the process that created it is gone.
    let (run, record) = world.store.find(&id).unwrap();
    assert_eq!(record.status, RunStatus::Killed);
    assert!(serde_json::to_string(&record).unwrap().contains("\"status\":\"lost\""));
    let changes = run.changes(Scope::NotIgnored).unwrap();
    for _ in 0..2 {
        // Also while this process holds the lock of the run.
        assert_eq!(run.plan_apply(&changes, &defaults()).unwrap_err().kind(), ErrorKind::RunKilled);
        assert!(run.lock());
    }
    run.save(&record).unwrap();
    assert_eq!(run.record().unwrap().status, RunStatus::Killed);
    let plan = run.plan_apply(&changes, &defaults().allow_killed()).unwrap();
    drop(run);
    // The plan keeps the lock.
    assert!(world.store.find(&id).unwrap().0.is_held());
    drop(plan);
    assert!(!world.store.find(&id).unwrap().0.is_held());
    assert_eq!(applied(&world.store.find(&id).unwrap().0, &forced()), "applied");
}
