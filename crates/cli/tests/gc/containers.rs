//! Containers and volumes: of a killed harness, of a live one, and of other programs.

use std::{fs, path::PathBuf, process::Child};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{
    engine::{IMAGE, Labels, Thing, alone, container_of, docker, labels, silent, volumes},
    rig::{PATIENCE, Run, Sandbar, finish, has_engine, until},
};

/// A harness with a container, and the container.
fn harness(sandbar: &Sandbar) -> (Child, String) {
    let words = ["exec", "--sandbox", "docker:sandbar-test:bookworm", "--", "sleep", "1000"];
    let child = sandbar.command(&words).spawn().expect("spawn");
    until("it has a container", PATIENCE, || container_of(child.id()).is_some());
    let container = container_of(child.id()).expect("a container");
    (child, container)
}

fn with(labels: &Labels, changes: &[(&str, Option<&str>)]) -> Labels {
    let mut labels = labels.clone();
    for (name, value) in changes {
        match value {
            Some(value) => labels.insert((*name).to_owned(), (*value).to_owned()),
            None => labels.remove(*name),
        };
    }
    labels
}

fn gc(sandbar: &Sandbar, words: &[&str]) -> Run {
    sandbar.run(&[&["gc", "--sandbox", "docker"], words].concat())
}

fn document(run: &Run) -> Value {
    serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
}

/// Whether a list of the document has this.
fn lists(document: &Value, list: &str, thing: &Thing) -> bool {
    let id = docker(&["inspect", "--format", "{{.Name}}", &thing.name]).unwrap_or_default();
    let name = if thing.kind == "volume" { thing.name.as_str() } else { id.trim_start_matches('/') };
    let items = document[list].as_array().expect("a list");
    items.iter().any(|item| item["kind"] == thing.kind && item["name"] == name)
}

/// What a harness left that was killed, and the volumes of it.
fn killed(sandbar: &Sandbar) -> (Thing, Vec<String>) {
    let (dead, left) = harness(sandbar);
    let its_volumes = volumes(&left);
    assert!(!its_volumes.is_empty());
    // It would end with its maker otherwise.
    docker(&["pause", &left]).expect("pause");
    kill_process(Pid::from_child(&dead), Signal::KILL).expect("kill");
    assert_eq!(finish(dead).code, 137);
    (Thing { kind: "container", name: left }, its_volumes)
}

/// What has to go: `theirs` are the labels of a dead harness, `own` those of one that lives.
fn leftovers(left: Thing, theirs: &Labels, own: &Labels) -> [Thing; 7] {
    let create = |labels: &Labels, change| Thing::container(&["create"], &with(labels, &[change]));
    [
        left,
        Thing::container(&["create"], theirs),
        create(theirs, ("sandbar.lifetime", Some("detached"))),
        Thing::container(&["run", "--detach"], &with(theirs, &[("sandbar.lifetime", Some("bound"))])),
        // Another process has the number by now.
        create(own, ("sandbar.pid-started", Some("1"))),
        create(theirs, ("sandbar.boot", Some("another start of this host"))),
        Thing::volume(None, theirs),
    ]
}

/// What has to stay.
fn others(its_container: Thing, theirs: &Labels, own: &Labels) -> [Thing; 14] {
    let create = |changes: &[(&str, Option<&str>)]| Thing::container(&["create"], &with(theirs, changes));
    let used = Thing::volume(None, theirs);
    let mounted = format!("{}:/data", used.name);
    [
        its_container,
        Thing::container(&["create"], own),
        Thing::container(&["create"], &Labels::new()),
        Thing::container(&["run", "--detach"], &with(theirs, &[("sandbar.lifetime", Some("leased"))])),
        create(&[("sandbar.owner", Some("4242@elsewhere"))]),
        create(&[("sandbar.boot", Some("b")), ("sandbar.host", Some("another host"))]),
        create(&[("sandbar.namespaces", Some("elsewhere"))]),
        create(&[("sandbar.pid", Some("many"))]),
        create(&[("sandbar.pid", None)]),
        Thing::container(&["create", "--volume", &mounted], &Labels::new()),
        used,
        Thing::volume(None, &Labels::new()),
        Thing::volume(Some(&format!("sandbar-test-{}", std::process::id())), theirs),
        Thing::volume(None, own),
    ]
}

#[test]
fn only_leftovers_of_a_killed_harness_are_removed() {
    if !has_engine(IMAGE) {
        return;
    }
    let _alone = alone();
    let sandbar = Sandbar::own();
    let (living, its_container) = harness(&sandbar);
    let (left, its_volumes) = killed(&sandbar);
    let (theirs, own) = (labels(&left.name), labels(&its_container));
    let its_container = Thing { kind: "container", name: its_container };
    let gone = leftovers(left, &theirs, &own);
    let stays = others(its_container, &theirs, &own);
    for words in [&["--dry-run"][..], &["--dry-run", "--json"]] {
        let run = gc(&sandbar, words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        assert!(gone.iter().chain(&stays).all(Thing::is_there), "{words:?} removed something: {run:?}");
        if words.len() == 2 {
            let told = document(&run);
            assert!(gone.iter().all(|thing| lists(&told, "removed", thing)), "{told:#}\n{gone:#?}");
            assert!(!stays.iter().any(|thing| lists(&told, "removed", thing)), "{told:#}\n{stays:#?}");
            assert_eq!(told["dry_run"], true);
        } else {
            assert!(run.stdout.contains("would remove container sandbar-"), "{run:?}");
        }
    }
    // Another process may remove the leftover of another test at the same moment; that failure does not count here.
    let mut said = String::new();
    until("nothing fails", PATIENCE, || {
        let run = gc(&sandbar, &[]);
        said.push_str(&run.stdout);
        (run.code, run.stderr.as_str()) == (0, "")
    });
    let is_summary = |line: &str| line.starts_with("removed ") && line.contains(" containers, ");
    assert!(said.lines().any(is_summary) && said.contains("and is gone"), "{said}");
    let there = |things: &[Thing]| things.iter().map(Thing::is_there).collect::<Vec<_>>();
    assert_eq!(there(&gone), [false; 7], "{said}\n{gone:#?}");
    assert_eq!(there(&stays), [true; 14], "{said}\n{stays:#?}");
    for name in its_volumes {
        assert!(!Thing { kind: "volume", name }.is_there(), "{said}");
    }
    // Other tests leave something too, and have it removed.
    let mut again = Value::Null;
    until("nothing is left to remove", PATIENCE, || {
        again = document(&gc(&sandbar, &["--json"]));
        [&again["removed"], &again["failed"]].iter().all(|list| list.as_array().is_some_and(Vec::is_empty))
    });
    assert!(again["providers"]["docker"]["reached"] == true && lists(&again, "kept", &stays[0]), "{again:#}");
    kill_process(Pid::from_child(&living), Signal::TERM).expect("end");
    finish(living);
}

/// A session in a container, and the container.
fn session(sandbar: &Sandbar) -> (String, Thing) {
    let run = sandbar.run(&["session", "create", "--sandbox", "docker:sandbar-test:bookworm"]);
    assert_eq!(run.code, 0, "{run:?}");
    let id = run.stdout.trim().to_owned();
    let record = fs::read_to_string(record_of(sandbar, &id)).expect("a record");
    let record: Value = serde_json::from_str(&record).expect("json");
    let name = record["machine"]["state"]["container"].as_str().expect("a name").to_owned();
    (id, Thing { kind: "container", name })
}

fn record_of(sandbar: &Sandbar, id: &str) -> PathBuf {
    sandbar.dir().join(format!("state/sandbar/sessions/{id}.json"))
}

#[test]
fn an_unrecorded_container_is_removed_and_those_of_sessions_are_retained() {
    if !has_engine(IMAGE) {
        return;
    }
    let _alone = alone();
    let sandbar = Sandbar::own();
    let ((living, _), (kept, mut its_container), (lost, left)) =
        (harness(&sandbar), session(&sandbar), session(&sandbar));
    // A renamed container still belongs to its session.
    let (own_name, other_name) = (its_container.name.clone(), format!("{}-renamed", its_container.name));
    docker(&["rename", &own_name, &other_name]).expect("rename");
    its_container.name.clone_from(&other_name);
    let (theirs, own) = (labels(&left.name), container_of(living.id()).expect("a container"));
    // As if its maker had been killed a moment earlier.
    fs::remove_file(record_of(&sandbar, &lost)).expect("removed");
    let run = |labels: &Labels, changes: &[(&str, Option<&str>)]| {
        Thing::container(&["run", "--detach"], &with(labels, changes))
    };
    let written = theirs["sandbar.register"].as_str();
    let detached = ("sandbar.lifetime", Some("detached"));
    let stays = [
        its_container,
        run(&theirs, &[("sandbar.register", Some("somewhere else"))]),
        run(&theirs, &[("sandbar.register", None)]),
        run(&theirs, &[("sandbar.owner", Some("4242@elsewhere"))]),
        // Its maker may still write it down.
        run(&labels(&own), &[detached, ("sandbar.register", Some(written))]),
    ];
    // A damaged record may belong to any machine.
    let record = record_of(&sandbar, &kept);
    let whole = fs::read_to_string(&record).expect("read");
    fs::write(&record, &whole[..40]).expect("write");
    let unclear = gc(&sandbar, &["--dry-run"]);
    assert!(unclear.stderr.contains("is damaged") && unclear.stderr.contains("session rm"), "{unclear:?}");
    assert!(!unclear.stdout.contains("no session has it"), "{unclear:?}");
    fs::write(&record, &whole).expect("write");
    // A directory that came to the same place is another one.
    let home = sandbar.dir().join("state/sandbar");
    let (register, aside) = (home.join("register"), home.join("aside"));
    fs::rename(&register, &aside).expect("rename");
    assert!(!gc(&sandbar, &["--dry-run"]).stdout.contains("no session has it"));
    // If the id of the state directory is lost, every container is retained.
    fs::write(&register, "").expect("write");
    let lost_word = gc(&sandbar, &["--dry-run"]);
    assert!(lost_word.code == 1 && lost_word.stderr.contains("is damaged; remove it"), "{lost_word:?}");
    assert!(!lost_word.stdout.contains("no session has it"), "{lost_word:?}");
    fs::rename(&aside, &register).expect("rename");
    let told = document(&gc(&sandbar, &["--dry-run", "--json"]));
    assert!(lists(&told, "removed", &left) && !lists(&told, "kept", &left), "{told:#}");
    let run = gc(&sandbar, &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
    assert!(run.stdout.contains(&format!("removed container {}: no session has it", left.name)), "{run:?}");
    assert!(!left.is_there(), "{run:?}");
    assert!(stays.iter().all(Thing::is_there), "{run:?}\n{stays:#?}");
    docker(&["rename", &other_name, &own_name]).expect("rename");
    let ran = sandbar.run(&["session", "exec", &kept, "--", "echo", "alive"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "alive\n"), "{ran:?}");
    assert_eq!(sandbar.run(&["session", "rm", &kept]).code, 0);
    kill_process(Pid::from_child(&living), Signal::TERM).expect("end");
    finish(living);
}

#[test]
fn unnamed_volumes_are_removed_with_their_container() {
    if !has_engine(IMAGE) {
        return;
    }
    let _alone = alone();
    let sandbar = Sandbar::own();
    let (child, container) = harness(&sandbar);
    let theirs = labels(&container);
    kill_process(Pid::from_child(&child), Signal::TERM).expect("end");
    finish(child);
    let held = Thing::container(&["create", "--volume", "/data", "--volume", "/more"], &theirs);
    let inside = volumes(&held.name);
    assert_eq!(inside.len(), 2);
    until("nothing fails", PATIENCE, || gc(&sandbar, &[]).code == 0);
    assert!(!held.is_there());
    for name in inside {
        assert!(!Thing { kind: "volume", name }.is_there());
    }
}

#[test]
fn a_missing_engine_is_one_line_and_a_failure_only_if_requested() {
    let sandbar = Sandbar::own();
    let run = |words: &[&str], engine: &str| finish(sandbar.command(words).env("DOCKER_HOST", engine).spawn().unwrap());
    for engine in ["unix:///no/such/docker.sock", "tcp://127.0.0.1:1", "nonsense"] {
        let ran = run(&["gc"], engine);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "nothing to remove\n"), "{ran:?}");
        assert!(ran.stderr.contains("docker was not looked at: ") && ran.stderr.lines().count() == 1, "{ran:?}");
        assert!(!ran.stderr.contains("cannot start the machine"), "{ran:?}");
        let told = document(&run(&["gc", "--json"], engine));
        assert_eq!(told["providers"]["docker"]["reached"], false, "{told}");
        let asked = run(&["gc", "--sandbox", "docker"], engine);
        assert_eq!((asked.code, asked.stdout.as_str(), asked.stderr.lines().count()), (1, "", 1), "{asked:?}");
        let local = run(&["gc", "--sandbox", "local"], engine);
        assert_eq!((local.code, local.stderr.as_str()), (0, ""), "{local:?}");
    }
}

#[test]
fn a_signal_ends_gc_and_its_removals_are_reported() {
    let sandbar = Sandbar::own();
    let (listener, address) = silent(sandbar.dir());
    for (words, expected) in
        [(&["gc"][..], "nothing to remove; interrupted\n"), (&["gc", "--json"], "\"interrupted\":true")]
    {
        while listener.accept().is_ok() {}
        let child = sandbar.command(words).env("DOCKER_HOST", &address).spawn().expect("spawn");
        // It listens for signals by then: it has begun to ask.
        let mut asked = None;
        until("it asks", PATIENCE, || {
            asked = listener.accept().ok();
            asked.is_some()
        });
        kill_process(Pid::from_child(&child), Signal::INT).expect("interrupt");
        let run = finish(child);
        assert!(run.code == 130 && run.stdout.contains(expected), "{run:?}");
    }
}
