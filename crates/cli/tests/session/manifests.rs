//! Manifests on the command line: checks, rendering, and a command in a filled workspace.

use std::{fs, path::Path};

use super::rig::{Sandbar, each};

const FAULTY: &str = r#"{"root": "/", "entries": {"../x": {"type": "file", "content": ""}, "/abs": {"type": "dir"},
    "a": {"type": "nonsense"}, "C:\\x": {"type": "dir"}}, "unknown": 1}"#;

#[test]
fn all_mistakes_are_listed_with_their_positions() {
    let sandbar = Sandbar::own();
    let faulty = sandbar.make_file("faulty.json", FAULTY).display().to_string();
    let run = sandbar.run(&["manifest", "check", &faulty]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    assert_eq!(run.stdout.lines().count(), 6, "{run:?}");
    let places =
        ["entries[\"../x\"]", "entries[\"/abs\"]", "entries[\"a\"]", "entries[\"C:\\\\x\"]", "root", "manifest"];
    for place in places {
        assert!(run.stdout.lines().any(|line| line.contains(place)), "{place}: {run:?}");
    }
    let run = sandbar.run(&["manifest", "check", "--json", &faulty]);
    assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
    assert_eq!((report["sound"].as_bool(), report["file"].as_str()), (Some(false), Some(faulty.as_str())));
    let faults = report["faults"].as_array().expect("a list");
    for place in places {
        assert!(faults.iter().any(|fault| fault["path"] == place), "{place}: {report}");
    }
    for fault in faults {
        assert!(fault["code"].is_string() && fault["message"].is_string() && fault["context"].is_object(), "{fault}");
    }
}

#[test]
fn failures_on_this_host_are_found_without_a_machine() {
    let sandbar = Sandbar::own();
    let base = sandbar.make_dir("base");
    let other = sandbar.make_dir("other").display().to_string();
    sandbar.make_file("base/file", "");
    fs::create_dir(base.join("dir")).expect("create");
    let text = r#"{"root": "/opt/x", "users": [{"name": "agent"}, {"name": "bob"}], "groups": [{"name": "staff"}],
        "entries": {"fine": {"type": "local_file", "src": "file"}, "no": {"type": "local_file", "src": "no"},
        "d": {"type": "dir", "children": {"kind": {"type": "local_dir", "src": "file"}}},
        "out": {"type": "local_dir", "src": "../other"},
        "g": {"type": "file", "content": "", "group": "staff"},
        "m": {"type": "mount", "source": "dir", "read_only": false, "mount_strategy": {"type": "local_bind"}},
        "cloud": {"type": "s3_mount", "bucket": "b"}, "web": {"type": "remote_file", "url": "https://h.invalid/x"}}}"#;
    let manifest = sandbar.make_file("base/m.json", text).display().to_string();
    let places = |words: &[&str]| {
        let run = sandbar.run(&[&["manifest", "check", "--json", &manifest], words].concat());
        assert_eq!((run.code, run.stderr.as_str()), (1, ""), "{run:?}");
        let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
        assert_eq!(report["not_checked"][0]["source"], "https://h.invalid/x", "{report}");
        assert_eq!(report["not_checked"][0]["path"], "entries[\"web\"]", "{report}");
        let faults = report["faults"].as_array().expect("a list").clone();
        let mut places: Vec<String> =
            faults.iter().map(|fault| fault["path"].as_str().expect("a place").to_owned()).collect();
        places.sort();
        places
    };
    let few = ["entries[\"cloud\"]", "entries[\"d\"].children[\"kind\"].src", "entries[\"no\"].src", "root"];
    let mut all = [few.as_slice(), &["entries[\"m\"]", "entries[\"out\"].src"]].concat();
    all.sort_unstable();
    assert_eq!(places(&[]), all);
    assert_eq!(places(&["--grant", &other, "--allow-mounts"]), few);
    let run = sandbar.run(&["manifest", "check", &manifest]);
    assert_eq!((run.code, run.stdout.lines().count()), (1, all.len() + 1), "{run:?}");
    assert!(run.stdout.contains(": not checked: https://h.invalid/x: in entries[\"web\"]\n"), "{run:?}");
    assert!(!run.stdout.contains("outside_base_dir"), "{run:?}");
    // What comes from a pipe has no directory that sources could begin at.
    let fed = sandbar.feed(
        &["manifest", "check", "-", "--input-format", "json"],
        br#"{"entries": {"a": {"type": "local_file", "src": "no"}}}"#,
    );
    assert!(fed.status.success(), "{fed:?}");
    assert!(String::from_utf8_lossy(&fed.stdout).contains("not checked: no"), "{fed:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn a_valid_manifest_is_accepted_and_shown() {
    let sandbar = Sandbar::own();
    let text = "entries:\n  docs/a.md: {type: file, content: x, description: read me}\n  src: {type: dir}\n";
    let sound = sandbar.make_file("sound.yaml", text).display().to_string();
    let run = sandbar.run(&["manifest", "check", &sound]);
    assert_eq!((run.code, run.stdout.as_str()), (0, format!("{sound}: sound, 2 entries\n").as_str()), "{run:?}");
    let report = sandbar.run(&["manifest", "check", "--json", &sound]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).expect("json");
    assert_eq!((report["sound"].as_bool(), report["entries"].as_u64()), (Some(true), Some(2)));
    let tree = sandbar.run(&["manifest", "render", &sound]).stdout;
    assert!(tree.starts_with("/workspace\n") && tree.contains("a.md") && tree.contains("read me"), "{tree}");
    assert!(!sandbar.run(&["manifest", "render", "--depth", "1", &sound]).stdout.contains("a.md"));
    // Whatever it is written as, it is the same manifest.
    let json = sandbar.run(&["manifest", "render", "--format", "json", &sound]).stdout;
    for format in ["json", "yaml", "toml"] {
        let other = sandbar.run(&["manifest", "render", "--format", format, &sound]).stdout;
        let path = sandbar.make_file(&format!("other.{format}"), other).display().to_string();
        assert_eq!(sandbar.run(&["manifest", "render", "--format", "json", &path]).stdout, json, "{format}");
    }
    let fed = sandbar.feed(&["manifest", "render", "-", "--input-format", "yaml"], b"entries: {a: {type: dir}}");
    assert!(String::from_utf8_lossy(&fed.stdout).contains("a/"), "{fed:?}");
}

#[test]
fn the_text_of_a_manifest_is_sanitized_for_a_terminal() {
    let sandbar = Sandbar::own();
    let text = r#"{"entries": {"a": {"type": "dir", "description": "red \u001b[31m \u202e \u009b"}}}"#;
    let file = sandbar.make_file("m.json", text).display().to_string();
    let run = sandbar.run(&["manifest", "render", &file]);
    assert!(run.code == 0 && run.stdout.contains("red  [31m ?") && !run.stdout.contains(['\x1b', '\u{9b}']), "{run:?}");
    let text = r#"{"entries": {"a\u001b[2J": {"type": "nonsense\u001b[2J"}}}"#;
    let file = sandbar.make_file("faulty.json", text).display().to_string();
    for task in ["check", "render"] {
        let run = sandbar.run(&["manifest", task, &file]);
        assert!(run.code == 1 && !run.stdout.contains('\x1b') && !run.stderr.contains('\x1b'), "{run:?}");
    }
}

#[test]
fn without_a_manifest_the_check_is_a_usage_mistake() {
    let sandbar = Sandbar::own();
    let nameless = sandbar.make_file("nameless", "{}").display().to_string();
    for task in ["check", "render"] {
        for (words, said) in [
            (&[task, "/no/such.json"][..], "No such file"),
            (&[task, &nameless], "--input-format"),
            (&[task, "-"], "--input-format"),
            (&[task], "FILE"),
        ] {
            let run = sandbar.run(&[&["manifest"], words].concat());
            assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{words:?}: {run:?}");
            assert!(run.stderr.contains(said), "{words:?}: {run:?}");
        }
    }
    let broken = sandbar.make_file("broken.json", "{").display().to_string();
    assert_eq!(sandbar.run(&["manifest", "check", &broken]).code, 1);
    assert_eq!(sandbar.run(&["manifest", "render", &broken]).code, 1);
    assert_eq!(sandbar.run(&["manifest", "check", &nameless, "--input-format", "json"]).code, 0);
}

#[test]
fn a_command_runs_in_a_workspace_that_a_manifest_fills() {
    each(|sandbar| {
        let base = sandbar.make_dir("base");
        fs::create_dir(base.join("data")).expect("create");
        fs::write(base.join("data/f"), "from the host\n").expect("write");
        let text = "entries:\n  data: {type: local_dir, src: data}\n  a.txt: {type: file, content: inline}\n\
                    environment:\n  value:\n    TOKEN: {type: secret, name: TOKEN}\n";
        let manifest = sandbar.make_file("base/w.yaml", text).display().to_string();
        let exec = |words: &[&str]| {
            let mut command = sandbar.command(&[&["exec", "--manifest", &manifest], words].concat());
            super::rig::finish(command.env("TOKEN", "copied").env("OTHER", "not").spawn().expect("spawn"))
        };
        let script = "pwd; cat data/f a.txt; echo; echo $TOKEN$OTHER; exit 3";
        let run = exec(&["--secret", "TOKEN", "--", "sh", "-c", script]);
        let expected = "/workspace\nfrom the host\ninline\ncopied\n";
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (3, expected, ""), "{run:?}");
        let run = exec(&["--secret", "TOKEN=given", "--env", "TOKEN=more", "--", "sh", "-c", "echo $TOKEN"]);
        assert_eq!(run.stdout, "more\n", "{run:?}");
        let refused = exec(&["--", "true"]);
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
        assert!(refused.stderr.contains("--secret TOKEN"), "{refused:?}");
        let weaker = exec(&["--isolation", "none", "--secret", "TOKEN", "--", "true"]);
        assert!(weaker.code == 125 && weaker.stderr.contains("full isolation"), "{weaker:?}");
        assert!(sandbar.left().is_empty() && !Path::new("/workspace").exists());
    });
}

#[test]
fn omissions_are_reported_before_the_command_runs() {
    each(|sandbar| {
        let base = sandbar.make_dir("base");
        fs::create_dir(base.join("src")).expect("create");
        std::os::unix::fs::symlink("/etc/passwd", base.join("src/o\x1but\nx")).expect("symlink");
        let text = "entries:\n  code: {type: local_dir, src: src, symlinks: drop}\n";
        let manifest = sandbar.make_file("base/w.yaml", text).display().to_string();
        let run = sandbar.run(&["exec", "--manifest", &manifest, "--", "ls", "-A", "code"]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (0, "", 1), "{run:?}");
        assert!(run.stderr.starts_with("sandbar: left out code/o") && !run.stderr.contains('\x1b'), "{run:?}");
    });
}

#[test]
fn a_grant_is_mounted_and_a_source_of_the_manifest() {
    each(|sandbar| {
        sandbar.make_dir("base");
        let other = sandbar.make_dir("other");
        fs::write(other.join("f"), "other\n").expect("write");
        let text = r#"{"entries": {"copy": {"type": "local_dir", "src": "../other"}}}"#;
        let manifest = sandbar.make_file("base/w.json", text).display().to_string();
        let refused = sandbar.run(&["exec", "--manifest", &manifest, "--", "true"]);
        assert!(refused.code == 125 && refused.stderr.contains("--grant"), "{refused:?}");
        let script = format!("cat copy/f {}/f; echo new > {}/g", other.display(), other.display());
        let run = sandbar.run(&["exec", "--manifest", &manifest, "--grant", "other", "--", "sh", "-c", &script]);
        assert!(run.code != 0 && run.stdout == "other\nother\n" && run.stderr.contains("Read-only"), "{run:?}");
        let run = sandbar.run(&["exec", "--manifest", &manifest, "--grant", "other:rw", "--", "sh", "-c", &script]);
        assert_eq!(run.code, 0, "{run:?}");
        assert_eq!(fs::read_to_string(other.join("g")).expect("g"), "new\n");
    });
}
