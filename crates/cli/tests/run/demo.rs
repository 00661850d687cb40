//! The demo: a script replaces the model, and everything else is real.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use serde_json::Value;

use super::{
    play::{JsonRun, count, kept, told},
    rig::{Sandbar, each, finish},
};

fn output<'a>(told: &'a JsonRun, call: &str) -> &'a str {
    let outputs = told.of("tool_output");
    let found = outputs.into_iter().find(|line| line["call_id"] == call);
    found.unwrap_or_else(|| panic!("{call} in {told:?}"))["output"].as_str().unwrap_or_default()
}

fn is_in_time(told: &JsonRun) -> bool {
    let answers = [("call_live", "type a line>"), ("call_type", "5 words"), ("call_stop", "exited with code")];
    answers.iter().all(|(call, words)| output(told, call).contains(words))
}

#[test]
fn the_output_of_the_demo_is_real() {
    each(|sandbar| {
        // No network at all, and nothing that could be a key.
        let played = || told(sandbar.command(&["demo", "--json"]).spawn().expect("spawn"));
        // Its script waits a second for the program, and less for its answers: a busy machine may need another try.
        let told = (0..4).map(|_| played()).find(is_in_time).unwrap_or_else(played);
        assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
        assert_eq!(told.lines[0]["scripted"], true);
        assert_eq!(told.lines[0]["isolation"], "namespaces");
        let red = output(&told, "call_red");
        assert!(red.contains("3 tests fail") && red.contains("exited with code 1"), "{red}");
        let green = output(&told, "call_green");
        assert!(green.contains("all tests pass") && green.contains("exited with code 0"), "{green}");
        assert!(output(&told, "call_live").contains("type a line>"));
        assert!(output(&told, "call_type").contains("5 words"), "{}", output(&told, "call_type"));
        assert!(output(&told, "call_stop").contains("exited with code 130"), "{}", output(&told, "call_stop"));
        let escape = output(&told, "call_escape");
        for refusal in [
            "cat: /etc/shadow: ",
            "ls: cannot access '/root'",
            "cannot create /usr/bin/sandbar-was-here",
            "unshare failed: Operation not permitted",
            "cat: /proc/1/environ: Permission denied",
        ] {
            assert!(escape.contains(refusal), "{refusal} in {escape}");
        }
        assert!(!Path::new("/usr/bin/sandbar-was-here").exists());
        let image = told.of("tool_output").into_iter().find(|line| line["call_id"] == "call_chart").expect("the image");
        assert!(image["output"].to_string().contains("image"), "{image}");
        let (asked, decided) = (told.of("approval_requested"), told.of("approval_decided"));
        assert_eq!((asked.len(), &asked[0]["call_id"]), (1, &Value::from("call_publish")));
        assert_eq!((decided.len(), &decided[0]["by"]), (1, &Value::from("the demo itself")));
        let dir = kept(sandbar, told.id());
        let published = Command::new(dir.join("workspace/dist/counter")).output();
        assert!(published.is_ok(), "{published:?}");
        let audit = fs::read_to_string(dir.join("audit.jsonl")).expect("audit");
        assert!(audit.contains("publish.sh") && audit.contains("apply_patch"), "{audit}");
        sandbar.leaves_nothing("./counter");
    });
}

#[test]
fn the_demo_names_the_model_the_approver_and_the_files() {
    each(|sandbar| {
        // The demo needs no network and no API key.
        let played = || sandbar.run(&["demo"]);
        let ended = (0..4).map(|_| played()).find(|ended| ended.stderr.contains("5 words")).unwrap_or_else(played);
        assert_eq!(ended.code, 0, "{ended:?}");
        let workspace = format!("{}/", super::play::runs(sandbar).display());
        for said in [
            "The model is scripted; what it does is real.",
            "? demo asks to use exec_command",
            "approved by the demo itself",
            "5 words",
            "all tests pass",
            "its files are in ",
            "audit.jsonl",
            &workspace,
        ] {
            assert!(ended.stderr.contains(said), "{said:?} in {}", ended.stderr);
        }
        assert!(ended.stdout.starts_with("`count_words` counted spaces.") && ended.stdout.lines().count() == 1);
    });
}

#[test]
fn the_demo_needs_no_network_and_its_program_counts_on_the_host() {
    let sandbar = Sandbar::own();
    let mut command = sandbar.behind(&["unshare", "--net"], &["demo", "--json"]);
    let told = told(command.spawn().expect("spawn"));
    assert_eq!(told.run.code, 0, "{told:?}");
    let counter = kept(&sandbar, told.id()).join("workspace/dist/counter");
    let script = format!("echo 'one two   three' | {}", counter.display());
    let counted = Command::new("sh").args(["-c", &script]).output().expect("run");
    assert!(String::from_utf8_lossy(&counted.stdout).contains("3 words"), "{counted:?}");
}

#[test]
fn without_a_compiler_the_demo_fails_and_leaves_nothing() {
    let sandbar = Sandbar::own();
    // A host on which this process cannot run the compiler.
    let hide = "for name in cc gcc clang c99; do for dir in /usr/bin /bin /usr/local/bin; do \
        test -e $dir/$name && mount --bind /dev/null $dir/$name; done; done; exec \"$@\"";
    for words in [["demo"].as_slice(), &["demo", "--json"]] {
        let mut command = sandbar.behind(&["unshare", "--mount", "sh", "-c", hide, "sh"], words);
        let ended = finish(command.spawn().expect("spawn"));
        assert_eq!(ended.code, 1, "{ended:?}");
        let said = if words.len() == 1 { &ended.stderr } else { &ended.stdout };
        assert!(said.contains("there is no C compiler here; install one"), "{ended:?}");
        assert_eq!(count(&sandbar), 0);
        sandbar.leaves_nothing("no such words");
    }
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let sandbar = Sandbar::unprivileged();
    let home = sandbar.make_dir("home");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o555)).expect("chmod");
    let mut command = sandbar.command(&["demo"]);
    let ended = finish(command.env_remove("XDG_STATE_HOME").env("HOME", &home).spawn().expect("spawn"));
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("Permission denied") && ended.stderr.contains("XDG_STATE_HOME"), "{ended:?}");
}
