//! Every tool works on a real sandbox, and reaches nothing outside of it.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use super::{
    client::{Client, code, output, running},
    rig::{Sandbar, each},
};

const TOOLS: [&str; 7] =
    ["exec_command", "write_stdin", "apply_patch", "view_image", "read_file", "write_file", "list_directory"];

/// One red pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

#[test]
fn the_server_describes_itself_and_lists_its_tools() {
    let sandbar = Sandbar::own();
    let mut client = Client::silent(&sandbar, &[]);
    let info = client.greet()["result"].clone();
    assert_eq!((&info["serverInfo"]["name"], &info["protocolVersion"]), (&json!("sandbar"), &json!("2025-11-25")));
    let words = info["instructions"].as_str().expect("instructions");
    for part in ["/workspace", "temporary", "no network", "untrusted"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let tools = client.request("1", "tools/list", &json!({}))["result"]["tools"].clone();
    let names = tools.as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name"));
    assert_eq!(names.collect::<Vec<_>>(), TOOLS);
    let expected = json!({"type": "object", "required": ["cmd"], "properties": {
        "cmd": {"type": "string", "minLength": 1},
        "workdir": {"type": ["string", "null"], "default": null},
        "shell": {"type": ["string", "null"], "default": null},
        "login": {"type": "boolean", "default": true},
        "tty": {"type": "boolean", "default": false},
        "yield_time_ms": {"type": "integer", "minimum": 0, "default": 10000},
        "max_output_tokens": {"type": ["integer", "null"], "minimum": 1, "default": null}}});
    assert_eq!(tools[0]["inputSchema"], expected);
    let reads = |at: usize| tools[at]["annotations"]["readOnlyHint"] == true;
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(reads), [false, false, false, true, true, false, true]);
    assert_eq!(client.close().code, 0);
}

#[test]
fn every_tool_runs_as_the_requested_user() {
    each(|sandbar| {
        sandbar.make_file(
            "m.yaml",
            "users: [ada, bob]\nentries: {hers: {type: dir, group: ada, permissions: 'drwxrwx---'}}\n",
        );
        let mut client = Client::start(sandbar, &["--manifest", "m.yaml", "--user", "ada"]);
        assert_eq!(output(&client.exec("id -un")), "ada\n");
        client.done("write_file", json!({"path": "hers/note", "content": "of ada"}));
        assert_eq!(output(&client.exec("stat -c %U hers/note")), "ada\n");
        let text = client.refused("write_file", json!({"path": "elsewhere", "content": "x"}));
        assert!(text.contains("elsewhere") && text.contains("ermission denied"), "{text}");
        assert_eq!(client.close().code, 0);
        // The control: another user may not even look.
        let mut client = Client::start(sandbar, &["--manifest", "m.yaml", "--user", "bob"]);
        let text = client.refused("list_directory", json!({"path": "hers"}));
        assert!(text.contains("ermission denied"), "{text}");
        assert_eq!(client.close().code, 0);
    });
}

#[test]
fn commands_run_continue_and_accept_input() {
    each(|sandbar| {
        let mut client = Client::start(sandbar, &[]);
        let text = client.exec("echo out; echo err >&2; exit 3");
        assert_eq!(code(&text), Some(3), "{text}");
        assert!(output(&text).contains("out\n") && output(&text).contains("err\n"), "{text}");
        let text = client.done("exec_command", json!({"cmd": "cat", "tty": true, "yield_time_ms": 250}));
        let id = running(&text).expect("it runs");
        let text = client.done("write_stdin", json!({"session_id": id, "chars": "hello\n", "yield_time_ms": 30000}));
        assert!(output(&text).contains("hello"), "{text}");
        let text = client.done("write_stdin", json!({"session_id": id, "chars": "\u{3}", "yield_time_ms": 30000}));
        assert_eq!(code(&text), Some(130), "{text}");
        let text = client.refused("write_stdin", json!({"session_id": id}));
        assert!(text.ends_with(&format!("write_stdin failed: PTY session not found: {id}")), "{text}");
        let text = client.refused("exec_command", json!({"cmd": "pwd", "workdir": "../etc"}));
        assert!(text.contains("exec_command failed: "), "{text}");
        assert_eq!(code(&text), Some(1), "{text}");
        assert_eq!(client.close().code, 0);
    });
}

#[test]
fn a_command_that_is_ended_for_another_is_named_in_the_result_and_the_audit() {
    let sandbar = Sandbar::own();
    let mut client = Client::start(&sandbar, &["--pids", "1000", "--audit", "log/audit.jsonl"]);
    let mut start = || client.done("exec_command", json!({"cmd": "sleep 300", "yield_time_ms": 250}));
    let first = running(&start()).expect("it runs");
    for _ in 1..64 {
        let text = start();
        assert_eq!(output(&text), "", "{text}");
    }
    let text = start();
    let notice = format!("[session {first} was ended to make room: at most 64 are kept]\n");
    assert!(running(&text).is_some() && output(&text) == notice, "{text}");
    let text = client.refused("write_stdin", json!({"session_id": first}));
    assert!(text.contains("PTY session not found"), "{text}");
    assert_eq!(client.close().code, 0);
    let audit = fs::read_to_string(sandbar.dir().join("log/audit.jsonl")).expect("audit");
    assert!(audit.contains(&format!("\"evicted\":[{first}]")), "{audit}");
}

#[test]
fn patches_are_applied_in_every_form() {
    let sandbar = Sandbar::own();
    let mut client = Client::start(&sandbar, &[]);
    let patch = |body: &str| format!("*** Begin Patch\n{body}*** End Patch\n");
    let add = |name: &str| patch(&format!("*** Add File: {name}\n+one\n+two\n"));
    let added = |name: &str| format!("Success. Updated the following files:\nA {name}\n");
    assert_eq!(client.done("apply_patch", json!({"patch": add("a")})), added("a"));
    assert_eq!(client.done("apply_patch", json!({"input": add("b")})), added("b"));
    assert_eq!(client.done("apply_patch", json!({"command": ["apply_patch", add("c")]})), added("c"));
    let script = format!("cd sub && apply_patch <<'EOF'\n{}EOF\n", add("d"));
    client.exec("mkdir sub");
    assert_eq!(client.done("apply_patch", json!({"command": ["bash", "-lc", script]})), added("d"));
    let operation = json!({"type": "update_file", "path": "a", "diff": "@@\n one\n-two\n+2\n"});
    assert_eq!(client.done("apply_patch", json!({"operation": operation})), "Updated a");
    let operations = json!([{"type": "delete_file", "path": "b"}, {"type": "delete_file", "path": "c"}]);
    assert_eq!(client.done("apply_patch", json!({"operations": operations})), "Deleted b\nDeleted c");
    let typed = format!("apply_patch <<'EOF'\n{}EOF\n", add("e"));
    let text = client.done("exec_command", json!({"cmd": typed, "workdir": "sub"}));
    assert_eq!((code(&text), output(&text)), (Some(0), added("e").as_str()), "{text}");
    let typed = format!("apply_patch <<'EOF'\n{}EOF\n", add("../../etc/e"));
    let text = client.refused("exec_command", json!({"cmd": typed}));
    assert_eq!(code(&text), Some(1), "{text}");
    assert_eq!(output(&client.exec("cat a; cat sub/*; ls")), "one\n2\none\ntwo\none\ntwo\na\nsub\n");
    for wrong in [json!({}), json!({"patch": "what?"}), json!({"patch": 7}), json!({"operations": [7]})] {
        let text = client.refused("apply_patch", wrong.clone());
        assert!(!text.is_empty(), "{wrong}");
    }
    assert_eq!(client.close().code, 0);
}

#[test]
fn files_are_read_written_listed_and_viewed() {
    each(|sandbar| {
        let mut client = Client::start(sandbar, &[]);
        assert_eq!(client.done("list_directory", json!({})), "[empty]");
        let text = client.done("write_file", json!({"path": "d/e/f.txt", "content": "1\n2\n3\n"}));
        assert_eq!(text, "Wrote 6 bytes to d/e/f.txt");
        assert_eq!(client.done("read_file", json!({"path": "d/e/f.txt"})), "1\n2\n3\n");
        assert_eq!(client.done("read_file", json!({"path": "/workspace/d/e/f.txt", "offset": 3})), "3\n");
        let text = client.done("read_file", json!({"path": "d/e/f.txt", "offset": 2, "limit": 1}));
        assert_eq!(text, "2\n[there is more; continue with offset 3]");
        client.exec("ln -s /etc/passwd link; mkfifo pipe; printf x > \"$(printf 'two\\nlines')\"");
        let listed = "d/\nlink -> /etc/passwd\npipe (not a file)\ntwo?lines (1 bytes)";
        assert_eq!(client.done("list_directory", json!({"path": "."})), listed);
        assert_eq!(client.done("list_directory", json!({"path": "d", "depth": 2})), "e/\ne/f.txt (6 bytes)");
        client.exec(&format!("printf %s {PIXEL} | base64 -d > pixel.dat"));
        let seen = client.call("view_image", json!({"path": "pixel.dat"}));
        assert_eq!(seen.result["content"][0], json!({"type": "image", "data": PIXEL, "mimeType": "image/png"}));
        for (tool, arguments, reason) in [
            ("view_image", json!({"path": "d"}), "is not a file"),
            ("view_image", json!({"path": "d/e/f.txt"}), "not a supported image"),
            ("view_image", json!({"path": "none.png"}), "was not found"),
            ("read_file", json!({"path": "none"}), "none"),
            ("read_file", json!({"path": "d"}), "directory"),
            ("read_file", json!({"path": "pipe"}), "pipe"),
            ("read_file", json!({"path": "pixel.dat"}), "not a text file"),
            ("read_file", json!({"path": ""}), ""),
            ("list_directory", json!({"path": "none"}), "none"),
            ("list_directory", json!({"path": "d/e/f.txt"}), "d/e/f.txt"),
            ("write_file", json!({"path": "d", "content": ""}), "d"),
            ("write_file", json!({"path": "", "content": ""}), ""),
        ] {
            let text = client.refused(tool, arguments.clone());
            assert!(text.contains(reason), "{tool} {arguments}: {text}");
        }
        assert_eq!(client.close().code, 0);
    });
}

#[test]
fn tools_reach_only_the_named_files_of_the_host() {
    each(|sandbar| {
        let secret = sandbar.make_file("secret.txt", "the host's own\n");
        let work = sandbar.make_dir("work");
        sandbar.make_file("work/mine.txt", "mine\n");
        symlink(&secret, work.join("out")).expect("link");
        symlink(sandbar.dir(), work.join("up")).expect("link");
        let shown = sandbar.make_dir("shown");
        sandbar.make_file("shown/data.txt", "data\n");
        let options = ["--workspace", &work.display().to_string(), "--ro", &format!("{}:/data", shown.display())];
        let mut client = Client::start(sandbar, &options);
        // The same calls work where they may, so the refusals below mean something.
        assert_eq!(output(&client.exec("cat mine.txt /data/data.txt")), "mine\ndata\n");
        assert_eq!(client.done("read_file", json!({"path": "mine.txt"})), "mine\n");
        assert_eq!(client.done("read_file", json!({"path": "/data/data.txt"})), "data\n");
        let secret = secret.display().to_string();
        for path in [secret.as_str(), "out", "up/secret.txt", "../secret.txt", "/proc/1/environ", "/etc/passwd"] {
            for tool in ["read_file", "view_image"] {
                let text = client.refused(tool, json!({"path": path}));
                assert!(!text.contains("the host's own"), "{text}");
            }
        }
        for path in [secret.as_str(), "out", "up/new", "../new", "/data/new", "/etc/new"] {
            let text = client.refused("write_file", json!({"path": path, "content": "changed"}));
            // What the client did not write itself must not be told.
            assert!(path == secret || !text.contains(&*sandbar.dir().to_string_lossy()), "{path}: {text}");
            let patch = format!("*** Begin Patch\n*** Add File: {path}\n+changed\n*** End Patch\n");
            client.refused("apply_patch", json!({"patch": patch}));
        }
        client.refused("list_directory", json!({"path": "up"}));
        client.refused("list_directory", json!({"path": "/"}));
        for cmd in [&format!("cat {secret}"), "cat out", "cat up/secret.txt", "echo x > /data/new", "ls /root/"] {
            let text = client.exec(cmd);
            assert!(code(&text) != Some(0) && !text.contains("the host's own"), "{cmd}: {text}");
        }
        assert_eq!(client.done("write_file", json!({"path": "new.txt", "content": "new"})), "Wrote 3 bytes to new.txt");
        assert_eq!(client.close().code, 0);
        assert_eq!(fs::read_to_string(&secret).expect("secret"), "the host's own\n");
        assert_eq!(fs::read_to_string(work.join("new.txt")).expect("new"), "new");
        assert!(!sandbar.dir().join("new").exists() && !shown.join("new").exists());
    });
}

#[test]
fn a_read_only_workspace_does_not_change() {
    let sandbar = Sandbar::own();
    let work = sandbar.make_dir("work");
    sandbar.make_file("work/a.txt", "a\n");
    let mut client = Client::silent(&sandbar, &["--workspace", &format!("{}:ro", work.display())]);
    let info = client.greet();
    assert!(info["result"]["instructions"].as_str().is_some_and(|words| words.contains("only be read")), "{info}");
    assert_eq!(client.done("read_file", json!({"path": "a.txt"})), "a\n");
    client.refused("write_file", json!({"path": "a.txt", "content": "b"}));
    client.refused("apply_patch", json!({"patch": "*** Begin Patch\n*** Delete File: a.txt\n*** End Patch\n"}));
    assert_ne!(code(&client.exec("rm a.txt")), Some(0));
    client.close();
    assert_eq!(fs::read_to_string(work.join("a.txt")).expect("a"), "a\n");
}

#[test]
fn a_manifest_fills_the_workspace_and_its_secrets_are_not_in_the_audit() {
    let sandbar = Sandbar::own();
    let manifest = json!({"entries": {"brief.md": {"type": "file", "content": "# Brief\n"}},
        "environment": {"value": {"TOKEN": {"type": "secret", "name": "TOKEN"}}}});
    sandbar.make_file("workspace.json", manifest.to_string());
    let options = ["--manifest", "workspace.json", "--secret", "TOKEN=s3cr3t-value", "--audit", "log/audit.jsonl"];
    let mut client = Client::start(&sandbar, &options);
    assert_eq!(client.done("read_file", json!({"path": "brief.md"})), "# Brief\n");
    let text = client.exec("test ${#TOKEN} = 12; echo $TOKEN | tee kept; echo $TOKEN | base64");
    assert_eq!(code(&text), Some(0), "{text}");
    assert!(text.ends_with("[secret]\n[secret]Cg==\n"), "{text}");
    assert_eq!(client.done("read_file", json!({"path": "kept"})), "[secret]\n");
    // Failures are shortened in the middle, and so are lines that are too long: no cut leaves a part of a value.
    client.exec("printf '%039995d%s\\n' 0 \"$TOKEN\" > long");
    let long = client.done("read_file", json!({"path": "long"}));
    assert!(long.contains("is longer than a result") && !long.contains("s3cr"), "{}", &long[39_980..]);
    for before in 19_900..19_990 {
        let path = format!("{}s3cr3t-value{}", "x/".repeat(before / 2), "/y".repeat(15_000));
        let refused = client.refused("read_file", json!({"path": path}));
        assert!(!refused.contains("s3cr") && !refused.contains("value"), "{before}");
    }
    let refused = client.refused("read_file", json!({"path": "s3cr3t-value"}));
    assert!(!refused.contains("s3cr3t-value"), "{refused}");
    let run = client.close();
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let audit = fs::read_to_string(sandbar.dir().join("log/audit.jsonl")).expect("audit");
    let events: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    assert!(events.iter().any(|event| event["op"] == "pty_start" && event["phase"] == "finish"), "{audit}");
    assert!(events.iter().any(|event| event["op"] == "delete" && event["phase"] == "finish"), "{audit}");
    assert!(!audit.contains("s3cr3t-value"), "{audit}");

    let options = ["--manifest", "workspace.json", "--secret", "TOKEN=s3cr3t-value", "--show-secret", "TOKEN"];
    let mut client = Client::start(&sandbar, &options);
    let text = client.exec("echo $TOKEN");
    assert!(text.ends_with("s3cr3t-value\n"), "{text}");
    client.close();
    let mut client = Client::start(&sandbar, &["--manifest", "workspace.json", "--secret", "TOKEN=short"]);
    let text = client.exec("echo $TOKEN");
    assert!(text.ends_with("short\n"), "{text}");
    assert!(client.close().stderr.contains("the secret TOKEN has fewer than 8 bytes"));
}

#[test]
fn a_sandbox_that_can_write_to_the_journal_has_none() {
    let sandbar = Sandbar::own();
    sandbar.make_file("kept.txt", "old\n");
    let mut client = Client::start(&sandbar, &["--workspace", "."]);
    let patch = "*** Begin Patch\n*** Update File: kept.txt\n@@\n-old\n+new\n*** End Patch\n";
    client.done("apply_patch", json!({"patch": patch}));
    let run = client.close();
    assert!(run.stderr.contains("cannot be undone; the sandbox can write to"), "{run:?}");
    assert!(!sandbar.dir().join("state/sandbar/patches").exists());
    sandbar.make_dir("work");
    sandbar.make_file("work/kept.txt", "old\n");
    let mut client = Client::start(&sandbar, &["--workspace", "work"]);
    client.done("apply_patch", json!({"patch": patch}));
    assert_eq!(client.close().stderr, "");
    assert!(sandbar.dir().join("state/sandbar/patches").exists());
}

#[test]
fn the_repository_of_the_workspace_is_read_only() {
    each(|sandbar| {
        let project = sandbar.make_dir("project");
        sandbar.make_dir("project/.git");
        sandbar.make_dir("project/.git/hooks");
        sandbar.make_file("project/.git/config", "[core]\n");
        let mut client = Client::start(sandbar, &["--workspace", "project"]);
        assert!(client.done("read_file", json!({"path": ".git/config"})).contains("[core]"));
        client.refused("write_file", json!({"path": ".git/hooks/pre-commit", "content": "x"}));
        let text = client.exec("echo x > .git/hooks/pre-commit; echo x > beside");
        assert!(text.contains("Read-only file system"), "{text}");
        client.close();
        assert!(!project.join(".git/hooks/pre-commit").exists() && project.join("beside").exists());
    });
}
