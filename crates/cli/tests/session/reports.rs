//! JSON documents, failures and usage mistakes of `session`, `manifest` and `patch`.

use serde_json::Value;

use super::{
    made::Made,
    rig::{Sandbar, each},
};

#[test]
fn lists_are_newest_first_in_one_document() {
    each(|sandbar| {
        let empty: Value = serde_json::from_str(&sandbar.run(&["session", "ls", "--json"]).stdout).expect("json");
        assert_eq!(empty, serde_json::json!({"sessions": []}));
        let old = Made::new(sandbar, &["--name", "old", "--port", "80"]);
        let new = Made::new(sandbar, &[]);
        let run = sandbar.run(&["session", "ls", "--json"]);
        let list: Value = serde_json::from_str(&run.stdout).expect("json");
        let ids: Vec<&str> =
            list["sessions"].as_array().expect("a list").iter().filter_map(|one| one["id"].as_str()).collect();
        assert_eq!(ids, [new.id.as_str(), old.id.as_str()]);
        let second = &list["sessions"][1];
        assert_eq!((second["name"].as_str(), second["state"].as_str()), (Some("old"), Some("running")));
        assert_eq!((second["workspace"].as_str(), second["ports"][0].as_u64()), (Some("/workspace"), Some(80)));
        assert!(second["created_at"].is_string() && list["sessions"][0]["name"].is_null(), "{list}");
        let table = sandbar.run(&["session", "ls"]).stdout;
        let lines: Vec<&str> = table.lines().collect();
        assert!(
            lines[0].starts_with("ID ") && lines[1].starts_with(&new.id) && lines[2].starts_with(&old.id),
            "{table}"
        );
        assert!(lines[2].contains(" old ") && lines[2].contains("running") && !table.contains('\x1b'), "{table}");
        let stopped: Value = serde_json::from_str(&old.does(&["stop", "old", "--json"])).expect("json");
        assert_eq!(stopped, serde_json::json!({"id": old.id, "state": "stopped"}));
        let removed: Value = serde_json::from_str(&old.does(&["rm", "--all", "--json"])).expect("json");
        assert_eq!(removed, serde_json::json!({"removed": [new.id, old.id]}));
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn failures_are_json_on_request() {
    let sandbar = Sandbar::own();
    for words in [
        &["session", "rm", "nothing", "--json"][..],
        &["session", "stop", "nothing", "--json"],
        &["session", "ls", "nothing", "--json"],
        &["session", "ports", "nothing", "--json"],
    ] {
        let run = sandbar.run(words);
        assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{words:?}: {run:?}");
        let error: Value = serde_json::from_str(&run.stderr).expect("json");
        assert_eq!(error["error"]["code"], "session_not_found", "{words:?}: {error}");
        assert_eq!(error["error"]["context"]["session"], "nothing", "{error}");
        assert!(error["error"]["message"].as_str().is_some_and(|text| text.contains("session ls")), "{error}");
    }
    let run = sandbar.run(&["session", "create", "--json", "--workspace", "/no/such"]);
    let error: Value = serde_json::from_str(&run.stderr).expect("json");
    assert!(error["error"]["code"].is_string(), "{error}");
    assert_eq!(sandbar.run(&["session", "rm", "nothing", "--force"]).code, 0);
}

#[test]
fn a_failed_removal_does_not_stop_the_others() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &[]);
    let run = sandbar.run(&["session", "rm", "nothing", &made.id, "missing", "--json"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.stdout, format!("{{\"removed\":[\"{}\"]}}\n", made.id));
    assert_eq!(run.stderr.lines().count(), 2, "{run:?}");
    assert!(run.stderr.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{run:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn usage_mistakes_have_a_code_and_help_has_examples() {
    let sandbar = Sandbar::own();
    let table: [(&[&str], i32); 12] = [
        (&["session"], 2),
        (&["session", "rm"], 2),
        (&["session", "rm", "--all", "x"], 2),
        (&["session", "read", "x"], 2),
        (&["session", "create", "--name", "a b"], 2),
        (&["session", "create", "--name", "-x"], 2),
        (&["session", "ls", "-l"], 2),
        (&["session", "nonsense"], 2),
        (&["session", "exec", "x"], 125),
        (&["session", "shell"], 125),
        (&["session", "exec", "nothing", "--", "true"], 125),
        (&["session", "shell", "nothing"], 125),
    ];
    for (words, code) in table {
        let run = sandbar.run(words);
        assert_eq!((run.code, run.stdout.as_str()), (code, ""), "{words:?}: {run:?}");
    }
    for task in ["create", "ls", "exec", "shell", "read", "write", "cp", "ports", "stop", "rm"] {
        let run = sandbar.run(&["session", task, "--help"]);
        assert!(run.code == 0 && run.stdout.contains("Example"), "{task}: {run:?}");
    }
    for words in [&["manifest", "check"][..], &["manifest", "render"], &["patch"]] {
        let run = sandbar.run(&[words, &["--help"]].concat());
        assert!(run.code == 0 && run.stdout.contains("Examples:"), "{words:?}: {run:?}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = sandbar.run(&["completions", shell]).stdout;
        assert!(script.contains("keep-links") && script.contains("manifest"), "{shell}");
    }
}

#[test]
fn without_a_state_directory_no_session_is_created() {
    let sandbar = Sandbar::own();
    let run = |state: &str, home: Option<&str>| {
        let mut command = sandbar.command(&["session", "create"]);
        command.env("XDG_STATE_HOME", state).env("HOME", home.unwrap_or_default());
        super::rig::finish(command.spawn().expect("spawn"))
    };
    let nowhere = run("/proc/no/such", None);
    assert!(nowhere.code == 1 && nowhere.stderr.contains("XDG_STATE_HOME"), "{nowhere:?}");
    let home = sandbar.make_dir("home").display().to_string();
    let made = run("relative", Some(&home));
    assert_eq!(made.code, 0, "{made:?}");
    let mut remove = sandbar.command(&["session", "rm", made.stdout.trim()]);
    let removed = remove.env("XDG_STATE_HOME", "").env("HOME", &home).output().expect("rm runs");
    assert!(removed.status.success(), "{removed:?}");
    assert!(sandbar.dir().join("home/.local/state/sandbar/sessions").is_dir());
}

#[test]
fn without_isolation_no_session_is_created_and_the_fix_is_named() {
    let sandbar = Sandbar::without_namespaces();
    let run = sandbar.run(&["session", "create"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    for words in ["user namespaces", "max_user_namespaces", "sandbar doctor"] {
        assert!(run.stderr.contains(words), "{words}: {run:?}");
    }
    assert!(sandbar.left().is_empty());
}
