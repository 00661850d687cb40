//! Leftover and live machines, sessions and runs on this host.

use std::{fs, path::PathBuf, process::Child};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::rig::{PATIENCE, Run, Sandbar, each, finish, until};

/// The file by which a directory is known to be a machine's.
const MARK: &str = ".sandbar";

fn gc(sandbar: &Sandbar, words: &[&str]) -> Run {
    sandbar.run(&[&["gc", "--sandbox", "local"], words].concat())
}

fn document(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// What live or dead machines keep in the directory of passing ones.
fn passing(sandbar: &Sandbar) -> Vec<PathBuf> {
    let places = fs::read_dir(sandbar.dir()).expect("read").flatten().map(|entry| entry.path());
    let place = places
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name.display().to_string().starts_with("sandbar-")));
    place
        .map(|place| fs::read_dir(place).expect("read").flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default()
}

/// Children of a process.
fn children(pid: u32) -> Vec<Pid> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// A command that runs on a machine, and the machine's directory.
fn working(sandbar: &Sandbar, marker: &str) -> (Child, PathBuf) {
    let before = passing(sandbar);
    let child = sandbar.command(&["exec", "--", "sleep", marker]).spawn().expect("spawn");
    let new = || passing(sandbar).into_iter().find(|path| !before.contains(path) && path.join("home").exists());
    until("it has a machine", PATIENCE, || new().is_some() && !children(child.id()).is_empty());
    (child, new().expect("a machine"))
}

/// Kills a machine's supervisor, which would clean up, and then its harness.
fn cut(child: Child) {
    let harness = Pid::from_child(&child);
    kill_process(harness, Signal::STOP).expect("stop");
    for supervisor in children(child.id()) {
        kill_process(supervisor, Signal::KILL).expect("kill");
    }
    kill_process(harness, Signal::KILL).expect("kill");
    assert_eq!(finish(child).code, 137);
}

#[test]
fn leftovers_of_a_power_cut_are_removed_and_live_machines_are_retained() {
    each(|sandbar| {
        let (living, its_place) = working(sandbar, "4343.1");
        let (dead, left) = working(sandbar, "4343.2");
        cut(dead);
        assert!(left.exists(), "the rest of the test proves nothing");
        let session = sandbar.run(&["session", "create"]);
        assert_eq!(session.code, 0, "{session:?}");
        let name = |path: &PathBuf| path.file_name().unwrap().display().to_string();
        // None of these is the directory of a machine.
        let foreign = its_place.with_file_name("fedcba9876543210");
        fs::create_dir(&foreign).expect("create");

        let expected =
            format!("would remove machine {}: its supervisor is dead\nwould remove 1 machine\n", name(&left));
        // What the supervisor had begun may outlive it by a moment.
        let mut said = String::new();
        for _ in 0..100 {
            let run = gc(sandbar, &["--dry-run"]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
            said = run.stdout;
            if said == expected {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        assert_eq!(said, expected, "{:?}", passing(sandbar));
        assert!(left.exists());
        let run = gc(sandbar, &["--json"]);
        let told = document(&run);
        let removed = json!([{"kind": "machine", "name": name(&left), "why": "its supervisor is dead"}]);
        assert_eq!((run.code, &told["removed"], &told["failed"]), (0, &removed, &json!([])), "{run:?}");
        assert_eq!(told["kept"].as_array().map(Vec::len), Some(2), "{told}");
        assert!(!left.exists() && its_place.exists() && foreign.exists());
        assert_eq!(gc(sandbar, &[]).stdout, "nothing to remove\n");
        let id = session.stdout.trim();
        assert_eq!(sandbar.run(&["session", "exec", id, "--", "true"]).code, 0);
        assert_eq!(sandbar.run(&["session", "rm", id]).code, 0);
        kill_process(Pid::from_child(&living), Signal::TERM).expect("end");
        finish(living);
    });
}

#[test]
fn a_machine_without_a_session_is_removed_and_others_are_retained() {
    each(|sandbar| {
        let made = || sandbar.run(&["session", "create"]).stdout.trim().to_owned();
        let (kept, lost) = (made(), made());
        fs::remove_file(sandbar.dir().join(format!("state/sandbar/sessions/{lost}.json"))).expect("remove");
        let run = gc(sandbar, &[]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        assert!(run.stdout.contains(": no session has it\n") && run.stdout.ends_with("removed 1 machine\n"), "{run:?}");
        assert_eq!(fs::read_dir(sandbar.dir().join("state/sandbar/machines")).expect("machines").count(), 1);
        assert_eq!(sandbar.run(&["session", "exec", &kept, "--", "true"]).code, 0);
        assert_eq!(sandbar.run(&["session", "rm", &kept]).code, 0);
    });
}

#[test]
fn a_removal_by_another_process_is_not_reported_as_own() {
    each(|sandbar| {
        let lost = sandbar.run(&["session", "create"]).stdout.trim().to_owned();
        let state = sandbar.dir().join("state/sandbar");
        fs::remove_file(state.join(format!("sessions/{lost}.json"))).expect("remove");
        let machine = fs::read_dir(state.join("machines")).expect("machines").flatten().next().expect("one").path();
        let id = machine.file_name().expect("a name").display().to_string();
        // As another sweep does it, which takes long.
        fs::remove_file(machine.join("door")).expect("remove");
        until("its supervisor ended", PATIENCE, || !machine.exists());
        let aside = state.join("machines").join(format!(".dead-{id}"));
        let made = sandbar.host(sandbar.dir(), &["mkdir", "-p", &aside.join("home").display().to_string()]);
        assert_eq!(made.code, 0, "{made:?}");
        let marked = sandbar.host(sandbar.dir(), &["touch", &aside.join(MARK).display().to_string()]);
        assert_eq!(marked.code, 0, "{marked:?}");
        let held = fs::File::open(&aside).expect("open");
        held.lock().expect("lock");
        let said = format!(
            "machine {id} is being removed: another process removes it\nnothing to remove; 1 is being removed\n"
        );
        for _ in 0..2 {
            let run = gc(sandbar, &[]);
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, said.as_str(), ""), "{run:?}");
        }
        let told = document(&gc(sandbar, &["--json"]));
        assert_eq!(
            (&told["removing"][0]["name"], &told["removed"], &told["failed"]),
            (&json!(id), &json!([]), &json!([]))
        );
        assert!(aside.exists(), "the test proves nothing otherwise");
        drop(held);
        let run = gc(sandbar, &[]);
        assert!(run.stdout.starts_with(&format!("removed machine {id}: ")) && !aside.exists(), "{run:?}");
        assert_eq!(gc(sandbar, &[]).stdout, "nothing to remove\n");
    });
}

#[test]
fn a_partly_removed_run_is_removed_and_others_are_retained() {
    let sandbar = Sandbar::own();
    let runs = sandbar.dir().join("state/sandbar/runs");
    let (half, whole) = (runs.join(".0199f3a2-half.removed"), runs.join("0199f3a2-whole"));
    let foreign = [runs.join(".a b.removed"), runs.join("notes.removed"), runs.join(".removed")];
    for dir in [&half, &whole].into_iter().chain(&foreign) {
        fs::create_dir_all(dir.join("workspace/deep")).expect("create");
    }
    fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("chmod");
    assert!(gc(&sandbar, &["--dry-run"]).stdout.contains("would remove run .0199f3a2-half.removed"));
    assert!(half.exists());
    assert_eq!(gc(&sandbar, &[]).code, 0);
    assert!(!half.exists() && whole.exists() && foreign.iter().all(|dir| dir.exists()));
}

#[test]
fn an_old_run_that_never_began_is_removed() {
    let sandbar = Sandbar::own();
    let runs = sandbar.dir().join("state/sandbar/runs");
    let [old, young, held] = ["old", "young", "held"].map(|name| runs.join(format!(".0199f3a2-{name}.begun")));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(24 * 60 * 60);
    for dir in [&old, &young, &held] {
        fs::create_dir_all(dir.join("workspace")).expect("create");
    }
    fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("chmod");
    for dir in [&old, &held] {
        fs::File::open(dir).and_then(|dir| dir.set_modified(long_ago)).expect("long ago");
    }
    let maker = fs::File::open(&held).expect("open");
    maker.lock().expect("lock");
    let run = gc(&sandbar, &[]);
    assert!(run.code == 0 && run.stdout.contains("removed run .0199f3a2-old.begun: it was never begun"), "{run:?}");
    assert!(!old.exists() && young.exists() && held.exists());
    assert!(sandbar.run(&["runs", "ls"]).stdout.lines().count() <= 1, "none of them is a run");
}

#[test]
fn the_record_of_a_session_without_a_machine_is_removed() {
    each(|sandbar| {
        let made = |name: &str| sandbar.run(&["session", "create", "--name", name]).stdout.trim().to_owned();
        let (kept, stopped, gone) = (made("kept"), made("stopped"), made("gone"));
        assert_eq!(sandbar.run(&["session", "stop", &stopped]).code, 0);
        // As a reboot would leave it: a record, and no machine.
        let record = sandbar.dir().join(format!("state/sandbar/sessions/{gone}.json"));
        let text = fs::read_to_string(&record).expect("a record");
        let state: Value = serde_json::from_str(&text).expect("json");
        let machine = state["machine"]["state"]["id"].as_str().expect("an id");
        fs::remove_dir_all(sandbar.dir().join("state/sandbar/machines").join(machine)).expect("remove");
        until("it is gone", PATIENCE, || sandbar.run(&["session", "ls"]).stdout.contains(" gone "));
        let run = gc(sandbar, &[]);
        assert!(run.stdout.contains(&format!("removed session {gone}: its machine is gone")), "{run:?}");
        assert!(!record.exists());
        assert_eq!(sandbar.run(&["session", "exec", &kept, "--", "true"]).code, 0);
        assert!(sandbar.run(&["session", "ls"]).stdout.contains(" stopped "), "a session that was stopped stays");
        assert!(!made("gone").is_empty(), "its name is free");
        assert_eq!(sandbar.run(&["session", "rm", "--all"]).code, 0);
        sandbar.leaves_nothing("no such words");
    });
}

#[test]
fn without_a_state_directory_gc_creates_none() {
    each(|sandbar| {
        let run = gc(sandbar, &[]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "nothing to remove\n", ""), "{run:?}");
        assert!(!sandbar.dir().join("state").exists() && passing(sandbar).is_empty());
    });
}

#[test]
fn a_directory_of_another_user_is_retained_and_does_not_block_gc() {
    let sandbar = Sandbar::unprivileged();
    let user = fs::metadata(sandbar.dir()).map(|found| std::os::unix::fs::MetadataExt::uid(&found)).expect("a user");
    let planted = sandbar.dir().join(format!("sandbar-{user}"));
    fs::create_dir_all(planted.join("0123456789abcdef")).expect("create");
    let run = gc(&sandbar, &[]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "nothing to remove\n", ""), "{run:?}");
    assert_eq!(sandbar.run(&["exec", "--", "true"]).code, 0, "machines are kept elsewhere");
    assert!(planted.join("0123456789abcdef").exists());
}

#[test]
fn an_incomplete_record_is_removed() {
    let sandbar = Sandbar::own();
    let made = sandbar.run(&["session", "create"]);
    assert_eq!(made.code, 0, "{made:?}");
    let place = |drawn: &str| sandbar.dir().join(format!("state/sandbar/sessions/.{}.{drawn}", made.stdout.trim()));
    let (old, fresh) = (place(&"0".repeat(32)), place(&"1".repeat(32)));
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(24 * 60 * 60);
    fs::File::create(&old).expect("a file").set_modified(long_ago).expect("long ago");
    fs::File::create(&fresh).expect("a file");
    let run = gc(&sandbar, &["--dry-run"]);
    assert!(run.stdout.contains("would remove record .") && old.exists(), "{run:?}");
    let run = gc(&sandbar, &[]);
    assert!(run.code == 0 && run.stdout.ends_with("removed 1 record\n"), "{run:?}");
    assert!(!old.exists() && fresh.exists(), "{run:?}");
    assert_eq!(sandbar.run(&["session", "rm", made.stdout.trim()]).code, 0);
}

#[test]
fn while_a_record_is_damaged_every_machine_is_retained() {
    let sandbar = Sandbar::own();
    let made = sandbar.run(&["session", "create"]);
    assert_eq!(made.code, 0, "{made:?}");
    let id = made.stdout.trim();
    let record = sandbar.dir().join(format!("state/sandbar/sessions/{id}.json"));
    fs::write(&record, "{").expect("write");
    let run = gc(&sandbar, &[]);
    assert!(run.code == 0 && run.stdout == "nothing to remove\n", "{run:?}");
    assert!(run.stderr.contains(&format!("the record of {id} is damaged")), "{run:?}");
    // The control: without the record, the machine is a leftover.
    fs::remove_file(&record).expect("remove");
    let told = document(&gc(&sandbar, &["--json"]));
    assert_eq!(told["removed"][0]["why"], "no session has it", "{told}");
    assert_eq!(told["kept"], json!([]), "{told}");
}
