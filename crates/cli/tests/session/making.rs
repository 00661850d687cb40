//! A session is created completely or not at all.

use std::{
    fs,
    path::Path,
    process::Child,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    made::Made,
    rig::{FRESH, PATIENCE, Run, Sandbar, each, finish, until},
    screen::Terminal,
};

/// A manifest that takes a while: a directory with much in it.
fn large(sandbar: &Sandbar) -> String {
    let dir = sandbar.make_dir("large");
    let content = vec![b'x'; 64 << 10];
    for at in 0..1500 {
        fs::write(dir.join(format!("file-{at}")), &content).expect("write");
    }
    let manifest = sandbar.make_file("large.json", r#"{"entries": {"big": {"type": "local_dir", "src": "large"}}}"#);
    manifest.display().to_string()
}

#[test]
fn ctrl_c_during_the_creation_of_a_session_leaves_nothing() {
    each(|sandbar| {
        let manifest = large(sandbar);
        let words = ["session", "create", "--manifest", &manifest];
        let mut interrupted = 0;
        // On a busy machine a session may be made before the signal comes: then everything is tried again.
        for (turn, stage) in ["at once", "machine", "saved", "filling"].into_iter().cycle().take(40).enumerate() {
            if turn >= 4 && interrupted >= 2 {
                break;
            }
            let child = sandbar.behind(&FRESH, &words).spawn().expect("spawn");
            let place = |name: &str| sandbar.dir().join("state/sandbar").join(name);
            let holds = |name: &str| fs::read_dir(place(name)).is_ok_and(|mut found| found.next().is_some());
            match stage {
                "machine" => until("a machine is there", PATIENCE, || holds("machines")),
                "saved" | "filling" => until("it is saved", PATIENCE, || holds("sessions")),
                _ => std::thread::sleep(Duration::from_millis(15)),
            }
            if stage == "filling" {
                std::thread::sleep(Duration::from_millis(40));
            }
            kill_process(Pid::from_child(&child), Signal::INT).expect("kill");
            let run = finish(child);
            if run.code == 130 {
                interrupted += 1;
                assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""), "{stage}: {run:?}");
            } else {
                // It was quicker than the signal.
                assert_eq!(run.code, 0, "{stage}: {run:?}");
                assert_eq!(sandbar.run(&["session", "rm", run.stdout.trim()]).code, 0);
            }
            until(&format!("nothing is left ({stage})"), PATIENCE, || sandbar.left().is_empty());
        }
        assert!(interrupted >= 2, "only {interrupted} came in time");
    });
}

#[test]
fn leftovers_of_a_killed_creator_are_listed_and_removable() {
    let sandbar = Sandbar::own();
    let manifest = large(&sandbar);
    let child = sandbar.command(&["session", "create", "--manifest", &manifest]).spawn().expect("spawn");
    let sessions = sandbar.dir().join("state/sandbar/sessions");
    let saved = || {
        fs::read_dir(&sessions)
            .ok()?
            .filter_map(Result::ok)
            .find(|entry| entry.path().extension().is_some_and(|end| end == "json"))
    };
    until("it is saved", PATIENCE, || saved().is_some());
    kill_process(Pid::from_child(&child), Signal::KILL).expect("kill");
    finish(child);
    let list = sandbar.run(&["session", "ls"]);
    // Killed before its machine could stay, it leaves the record only.
    let states = ["unfinished", "running", "gone"];
    assert!(list.stdout.lines().count() == 2 && states.iter().any(|state| list.stdout.contains(state)), "{list:?}");
    assert_eq!(sandbar.run(&["session", "rm", "--all"]).code, 0);
    assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
}

/// Whether a process waits for a lock that another holds.
fn waits_for_a_lock(child: &Child) -> bool {
    let pid = child.id().to_string();
    let locks = fs::read_to_string("/proc/locks").expect("locks");
    locks.lines().any(|line| line.contains(" -> FLOCK") && line.split_whitespace().any(|word| word == pid))
}

#[test]
fn a_creator_that_is_killed_before_the_record_leaves_no_machine() {
    each(|sandbar| {
        let (machines, sessions) = ("state/sandbar/machines", "state/sandbar/sessions");
        let [machines, sessions] = [machines, sessions].map(|place| sandbar.dir().join(place));
        let count = |place: &Path| fs::read_dir(place).map_or(0, |entries| entries.flatten().count());
        // What a killed process was writing may be beside them.
        let records = || {
            let entries = fs::read_dir(&sessions).into_iter().flatten().flatten();
            entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "json")).count()
        };
        let mut caught = false;
        // It takes luck: a maker writes its record soon after there is a machine.
        for round in 0..200 {
            let name = format!("caught-{round}");
            let child = sandbar.command(&["session", "create", "--name", &name]).spawn().expect("spawn");
            let pid = Pid::from_child(&child);
            let begun = Instant::now();
            while count(&machines) == 0 {
                assert!(begun.elapsed() < PATIENCE, "no machine is made");
            }
            kill_process(pid, Signal::STOP).expect("stop");
            // Now it cannot write its record, unless it was stopped while it does so.
            let lock = fs::File::open(&sessions).expect("open");
            let is_locked = lock.try_lock().is_ok();
            kill_process(pid, Signal::CONT).expect("go on");
            let is_early = is_locked && records() == 0;
            if is_early {
                until("it waits to write its record", PATIENCE, || waits_for_a_lock(&child));
            }
            kill_process(pid, Signal::KILL).expect("kill");
            finish(child);
            drop(lock);
            if is_early {
                caught = true;
                until("its machine ended by itself", PATIENCE, || count(&machines) == 0);
                break;
            }
            assert_eq!(sandbar.run(&["session", "rm", "--all"]).code, 0);
            until("nothing is left of it", PATIENCE, || count(&machines) == 0);
        }
        assert!(caught, "no maker was stopped in time: {:?}", sandbar.left());
        assert_eq!((count(&machines), records()), (0, 0), "{:?}", sandbar.left());
    });
}

#[test]
fn the_name_of_a_record_without_a_machine_is_free() {
    each(|sandbar| {
        let made = |name: &str| {
            let run = sandbar.run(&["session", "create", "--name", name]);
            assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
            run.stdout.trim().to_owned()
        };
        let record = |id: &str| sandbar.dir().join(format!("state/sandbar/sessions/{id}.json"));
        // As a maker leaves it that was killed right after it had written the record.
        let unfinished = |id: &str| {
            let text = fs::read_to_string(record(id)).expect("a record");
            let mut state: serde_json::Value = serde_json::from_str(&text).expect("json");
            state["workspace_root_ready"] = false.into();
            state["unfinished"] = true.into();
            let machine = state["machine"]["state"]["id"].as_str().expect("an id").to_owned();
            fs::write(record(id), state.to_string()).expect("write");
            let place = sandbar.dir().join("state/sandbar/machines").join(machine);
            fs::remove_file(place.join("door")).expect("end it");
            until("it is gone", PATIENCE, || !place.exists());
        };
        let first = made("same");
        unfinished(&first);
        let list = sandbar.run(&["session", "ls"]).stdout;
        assert!(list.contains(&first) && list.contains(" gone "), "{list}");
        let refused = sandbar.run(&["session", "exec", "same", "--", "true"]);
        assert!(refused.code == 125 && refused.stderr.contains("never finished"), "{refused:?}");
        let second = made("same");
        assert!(!record(&first).exists());
        unfinished(&second);
        let run = sandbar.run(&["gc", "--sandbox", "local"]);
        assert!(run.stdout.contains(&format!("removed session {second}: its machine is gone")), "{run:?}");
        sandbar.leaves_nothing("no such words");
    });
}

#[test]
fn a_session_that_cannot_be_created_leaves_nothing() {
    each(|sandbar| {
        sandbar.make_dir("base");
        sandbar.make_dir("outside");
        let write = |name: &str, text: &str| sandbar.make_file(name, text).display().to_string();
        let missing = write("base/missing.json", r#"{"entries": {"a": {"type": "local_dir", "src": "nowhere"}}}"#);
        let outside = write("base/outside.json", r#"{"entries": {"a": {"type": "local_dir", "src": "../outside"}}}"#);
        let secret = write("base/secret.yaml", "environment:\n  value:\n    T: {type: secret, name: TOKEN}\n");
        let faulty = write("base/faulty.toml", "[entries.\"../x\"]\ntype = \"file\"\ncontent = \"\"\n");
        let mount = write("base/mount.json", r#"{"entries": {"a": {"type": "local_file", "src": "missing.json/x"}}}"#);
        let own = sandbar.dir().display().to_string();
        let table: [(&[&str], &[&str]); 12] = [
            (&["--manifest", &missing], &["nowhere", "does not exist"]),
            (&["--manifest", &outside], &["../outside", "--grant"]),
            (&["--manifest", &secret], &["TOKEN", "--secret TOKEN"]),
            (&["--manifest", &faulty], &["../x", "leads out", "sandbar manifest check"]),
            (&["--manifest", &mount], &["missing.json/x"]),
            (&["--manifest", "/no/such.json"], &["--manifest /no/such.json", "No such file"]),
            (&["--manifest", "/etc/passwd"], &["format", ".json"]),
            (&["--secret", "SANDBAR_NOT_SET"], &["SANDBAR_NOT_SET", "--secret SANDBAR_NOT_SET=VALUE"]),
            (&["--env", "SANDBAR_NOT_SET"], &["SANDBAR_NOT_SET", "--env SANDBAR_NOT_SET=VALUE"]),
            (&["--grant", "/no/such"], &["--grant /no/such", "No such file"]),
            (&["--isolation", "none"], &["full isolation"]),
            (&["--workspace", &own], &["its own door", "XDG_STATE_HOME"]),
        ];
        for (options, words) in table {
            let run: Run = sandbar.run(&[&["session", "create"], options].concat());
            assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{options:?}: {run:?}");
            for word in words {
                assert!(run.stderr.contains(word), "{options:?} should mention {word:?}: {run:?}");
            }
            assert!(run.stderr.starts_with("sandbar: ") && !run.stderr.contains("os error"), "{run:?}");
            assert!(sandbar.left().is_empty(), "{options:?}: {:?}", sandbar.left());
        }
        assert!(!std::path::Path::new("/workspace").exists(), "something was made on the host itself");
    });
}

#[test]
fn a_session_starts_as_its_manifest_and_options_declare() {
    each(|sandbar| {
        let base = sandbar.make_dir("base");
        fs::create_dir(base.join("src")).expect("create");
        fs::write(base.join("src/main.c"), "int main;\n").expect("write");
        std::os::unix::fs::symlink("/etc/passwd", base.join("src/out")).expect("symlink");
        let granted = sandbar.make_dir("granted");
        fs::write(granted.join("data"), "granted\n").expect("write");
        let text = "entries:\n  code: {type: local_dir, src: src, symlinks: drop}\n  brief.md: {type: file, content: do it}\n\
                    environment:\n  value:\n    PLAIN: manifest\n    SECRET: {type: secret, name: TOKEN}\n";
        let manifest = sandbar.make_file("base/w.yaml", text).display().to_string();
        let grant = format!("{}:/data", granted.display());
        let words = ["session", "create", "--json", "--manifest", &manifest, "--secret", "TOKEN=hunter22", "--env"];
        let run = sandbar.run(&[&words[..], &["PLAIN=option", "--grant", &grant, "--port", "80"]].concat());
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let document: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
        let made = Made { sandbar, id: document["id"].as_str().expect("id").to_owned() };
        assert_eq!(document["files"], 2, "{document}");
        assert_eq!(document["left_out"][0]["path"], "code/out", "{document}");
        assert_eq!(document["workspace"], "/workspace");
        assert_eq!((document["isolation"].as_str(), document["name"].is_null()), (Some("namespaces"), true));
        assert!(document["created_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{document}");
        let script = "cat code/main.c brief.md; echo; echo $PLAIN $SECRET; cat /data/data; ! touch /data/x 2>/dev/null";
        let run = made.sh(script);
        assert_eq!((run.code, run.stdout.as_str()), (0, "int main;\ndo it\noption hunter22\ngranted\n"), "{run:?}");
        let saved = fs::read_to_string(sandbar.dir().join(format!("state/sandbar/sessions/{}.json", made.id)));
        let saved = saved.expect("saved");
        for hidden in ["hunter22", "option", &granted.display().to_string()] {
            assert!(!saved.contains(hidden), "{hidden} is saved: {saved}");
        }
    });
}

#[test]
fn progress_is_shown_only_on_a_terminal() {
    let sandbar = Sandbar::own();
    let manifest = large(&sandbar);
    let terminal = Terminal::open(&sandbar, &["session", "create", "--manifest", &manifest]);
    // What is shown may come a little after the end.
    terminal.shows("\r\n");
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown}");
    assert!(shown.contains("filling the workspace: "), "{shown}");
    let id = shown.trim_end().rsplit(|c: char| c.is_whitespace() || c == 'K').next().expect("an id").to_owned();
    assert_eq!(sandbar.run(&["session", "rm", &id]).code, 0, "{shown}");
    let terminal = Terminal::open(&sandbar, &["session", "create", "--json", "--manifest", &manifest]);
    terminal.shows("}\r\n");
    let (_, shown) = terminal.ends();
    assert!(shown.starts_with('{') && !shown.contains("filling"), "{shown}");
    assert_eq!(sandbar.run(&["session", "rm", "--all"]).code, 0);
}

#[test]
fn a_session_whose_id_cannot_be_printed_is_removed() {
    let sandbar = Sandbar::own();
    let full = fs::File::options().write(true).open("/dev/full").expect("open");
    let run = finish(sandbar.command(&["session", "create"]).stdout(full).spawn().expect("spawn"));
    assert!(run.code == 1 && run.stderr.contains("No space left"), "{run:?}");
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let run = finish(sandbar.command(&["session", "create", "--json"]).stdout(writer).spawn().expect("spawn"));
    assert_eq!((run.code, run.stderr.as_str()), (141, ""));
    assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
}

#[test]
fn one_of_several_creators_gets_a_name() {
    each(|sandbar| {
        for round in 0..3 {
            let name = format!("same-{round}");
            let words = ["session", "create", "--name", &name];
            let children: Vec<_> = (0..6).map(|_| sandbar.command(&words).spawn().expect("spawn")).collect();
            let runs: Vec<Run> = children.into_iter().map(finish).collect();
            let (made, refused): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.code == 0);
            assert_eq!(made.len(), 1, "{runs:?}");
            let id = made[0].stdout.trim();
            assert!(refused.iter().all(|run| run.stderr.contains(&name)), "{runs:?}");
            assert_eq!(sandbar.run(&["session", "exec", &name, "--", "true"]).code, 0);
            assert_eq!(sandbar.run(&["session", "rm", id]).code, 0);
        }
        sandbar.leaves_nothing("no such words");
    });
}
