//! Sessions with a lost or damaged record are listed, explained and removable.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    made::Made,
    rig::{PATIENCE, Sandbar, each, finish, until},
};

fn record(sandbar: &Sandbar, id: &str) -> PathBuf {
    sandbar.dir().join(format!("state/sandbar/sessions/{id}.json"))
}

fn machines(sandbar: &Sandbar) -> usize {
    fs::read_dir(sandbar.dir().join("state/sandbar/machines")).map_or(0, Iterator::count)
}

#[test]
fn a_damaged_record_is_listed_explained_and_removed_with_its_machine() {
    each(|sandbar| {
        let (good, cut, odd) = (Made::new(sandbar, &[]), Made::new(sandbar, &[]), Made::new(sandbar, &[]));
        let text = fs::read_to_string(record(sandbar, &odd.id)).expect("saved");
        fs::write(record(sandbar, &odd.id), text.replace("created_at", "made_at")).expect("write");
        fs::write(record(sandbar, &cut.id), &text[..40]).expect("write");
        let list = sandbar.run(&["session", "ls"]);
        assert_eq!((list.code, list.stderr.lines().count()), (0, 2), "{list:?}");
        for id in [&cut.id, &odd.id] {
            let line = list.stdout.lines().find(|line| line.starts_with(id.as_str())).expect("listed");
            assert!(line.contains(" damaged "), "{list:?}");
            assert!(list.stderr.contains(&format!("`sandbar session rm {id}`")), "{list:?}");
            let run = sandbar.run(&["session", "exec", id, "--", "true"]);
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (125, "", 1), "{run:?}");
            assert!(run.stderr.contains("damaged") && run.stderr.contains(&format!("session rm {id}")), "{run:?}");
        }
        let document: Value = serde_json::from_str(&sandbar.run(&["session", "ls", "--json"]).stdout).expect("json");
        let states: Vec<&str> =
            document["sessions"].as_array().expect("a list").iter().filter_map(|one| one["state"].as_str()).collect();
        assert_eq!(states, ["running", "damaged", "damaged"], "{document}");
        assert!(document["sessions"][1]["reason"].is_string(), "{document}");
        assert_eq!(machines(sandbar), 3);
        for (id, left) in [(&odd.id, 2), (&cut.id, 1)] {
            good.does(&["rm", id]);
            assert_eq!(machines(sandbar), left, "{id}");
        }
        assert_eq!(good.sh("echo fine").stdout, "fine\n");
    });
}

#[test]
fn rm_all_removes_machines_without_a_session() {
    each(|sandbar| {
        let (lost, cut) = (Made::new(sandbar, &[]), Made::new(sandbar, &[]));
        fs::remove_file(record(sandbar, &lost.id)).expect("remove");
        fs::write(record(sandbar, &cut.id), "").expect("write");
        // None of these is the directory of a machine.
        let machines = sandbar.dir().join("state/sandbar/machines");
        let foreign = [machines.join("0123456789abcdef"), machines.join("notes")];
        for dir in &foreign {
            fs::create_dir(dir).expect("create");
            fs::write(dir.join("door"), "").expect("write");
        }
        let removed: Value = serde_json::from_str(&lost.does(&["rm", "--all", "--json"])).expect("json");
        assert_eq!(removed["removed"], serde_json::json!([cut.id]), "{removed}");
        assert_eq!(removed["orphans"].as_array().map(Vec::len), Some(2), "{removed}");
        assert!(foreign.iter().all(|dir| dir.join("door").exists()));
        let left: Vec<PathBuf> =
            fs::read_dir(&machines).expect("read").map(|entry| entry.expect("entry").path()).collect();
        assert_eq!(left.len(), foreign.len(), "{left:?}");
        for dir in &foreign {
            fs::remove_dir_all(dir).expect("remove");
        }
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn a_session_in_creation_is_never_removed() {
    let sandbar = Sandbar::own();
    // A pipe without a writer keeps the creator busy for as long as the test needs.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}/x", listener.local_addr().expect("address"));
    let text = format!(r#"{{"entries": {{"f": {{"type": "remote_file", "url": "{url}"}}}}}}"#);
    let manifest = sandbar.make_file("m.json", text).display().to_string();
    let maker = sandbar
        .command(&["session", "create", "--allow-private-addresses", "--manifest", &manifest])
        .spawn()
        .expect("spawn");
    let sessions = sandbar.dir().join("state/sandbar/sessions");
    let saved = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.into_iter().find(|path| path.extension().is_some_and(|end| end == "json"))
    };
    until("it is saved", PATIENCE, || saved(&sessions).is_some());
    // As it is for a moment before it has a record.
    let place = saved(&sessions).expect("saved");
    fs::rename(&place, sandbar.dir().join("aside")).expect("rename");
    let run = sandbar.run(&["session", "rm", "--all"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stderr.contains("is being created"), "{run:?}");
    assert_eq!(machines(&sandbar), 1);
    kill_process(Pid::from_child(&maker), Signal::KILL).expect("kill");
    assert_eq!(finish(maker).code, 137);
    until("the creator has ended", PATIENCE, || {
        assert_eq!(sandbar.run(&["session", "rm", "--all"]).code, 0);
        sandbar.left().is_empty()
    });
}
