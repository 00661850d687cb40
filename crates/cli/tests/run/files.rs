//! Agent files and configuration files: every key works, and errors name the file.

use sandbar::mock::{MockServer, Script, item};

use super::{
    play::{count, run, say, script, shell},
    rig::{Sandbar, each},
};

const TOML: &str = r#"
name = "clerk"
instructions = "Be a clerk."
base_instructions = "Work well."
model = "MODEL"
capabilities = ["shell", { type = "filesystem", transport = "function" }]
max_turns = 1

[settings]
temperature = 0.5

[[ask]]
tool = "exec_command"
matches = "rm *"

[manifest.entries."brief.md"]
type = "file"
content = "brief"
"#;

const YAML: &str = r#"
name: clerk
instructions: Be a clerk.
base_instructions: Work well.
model: MODEL
capabilities: [shell, {type: filesystem, transport: function}]
max_turns: 1
settings: {temperature: 0.5}
ask: [{tool: exec_command, matches: "rm *"}]
manifest: {entries: {brief.md: {type: file, content: brief}}}
"#;

const JSON: &str = r#"{"name": "clerk", "instructions": "Be a clerk.", "base_instructions": "Work well.", "model": "MODEL",
"capabilities": ["shell", {"type": "filesystem", "transport": "function"}], "max_turns": 1,
"settings": {"temperature": 0.5}, "ask": [{"tool": "exec_command", "matches": "rm *"}],
"manifest": {"entries": {"brief.md": {"type": "file", "content": "brief"}}}}"#;

#[test]
fn an_agent_file_supports_every_key_in_each_format() {
    let sandbar = Sandbar::own();
    for (name, text) in [("a.toml", TOML), ("a.yaml", YAML), ("a.json", JSON)] {
        let turns = Script::new().turn(item::function_call("exec_command", serde_json::json!({"cmd": "cat brief.md"})));
        let server = MockServer::start(turns.turn(item::text("never"))).expect("a server");
        sandbar.make_file(name, text.replace("MODEL", "gpt-5.5"));
        let told = run(&sandbar, &["--agent", name, "--base-url", &server.base_url()]);
        // One turn is all it has.
        assert_eq!((told.run.code, told.status()), (4, "max_turns"), "{told:?}");
        assert!(told.outputs().contains("brief"), "{told:?}");
        assert_eq!(told.lines[0]["agent"], "clerk");
        let requests = server.requests();
        let body = &requests[0].body;
        assert_eq!((&body["model"], &body["temperature"]), (&"gpt-5.5".into(), &0.5.into()), "{body}");
        let words = body["instructions"].as_str().expect("instructions");
        assert!(words.starts_with("Work well.") && words.contains("Be a clerk."), "{words}");
        let tools: Vec<&str> =
            body["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
        assert!(tools.contains(&"exec_command") && tools.contains(&"apply_patch"), "{tools:?}");
        assert!(body["context_management"].is_null(), "{body}");
        assert_eq!(server.problems(), []);
    }
    // A rule asks about what it names, and about nothing else; the command line wins.
    let model = script(&sandbar, "rm.json", [vec![shell("rm brief.md")], vec![say("done")]]);
    let asked = run(&sandbar, &["--agent", "a.toml", "--model", &model]);
    assert_eq!((asked.run.code, asked.status()), (3, "interrupted"), "{asked:?}");
    let never = run(&sandbar, &["--agent", "a.toml", "--model", &model, "--ask", "never", "--max-turns", "5"]);
    assert_eq!((never.run.code, never.status()), (0, "completed"), "{never:?}");
}

#[test]
fn every_mistake_in_an_agent_file_is_reported_with_its_name() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    sandbar.make_file("wrong.yaml", "entries: {a: {type: nonsense}}");
    let outside = "[manifest.entries.p]\ntype = \"local_file\"\nsrc = \"../secret\"";
    for (text, said) in [
        ("nmae = \"x\"", "cannot use the agent file agent.toml; unknown field `nmae`"),
        ("instructions = ", "cannot use the agent file agent.toml; the document: TOML parse error at line 1"),
        ("capabilities = [\"shel\"]", "agent.toml; the capability \"shel\": is not known; known are filesystem, shell"),
        ("capabilities = [\"shell\", \"shell\"]", "agent.toml; "),
        ("max_turns = 0", "agent.toml; max_turns must be at least 1"),
        ("model = 3", "agent.toml; invalid type: integer `3`"),
        ("manifest = \"none.yaml\"", "agent.toml; its manifest none.yaml; No such file or directory"),
        ("manifest = \"wrong.yaml\"", "nonsense"),
        (
            "[manifest.entries.\"../x\"]\ntype = \"file\"\ncontent = \"\"",
            "agent.toml; \"../x\" leads out of the workspace",
        ),
        (outside, "cannot copy ../secret: it is neither below"),
        ("run_as = \"no:body\"", "agent.toml; `run_as` cannot be \"no:body\": a name may not begin"),
    ] {
        sandbar.make_file("agent.toml", text);
        let ended = sandbar.run(&["run", "do it", "--model", &model, "--agent", "agent.toml"]);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, ""), "{text}: {ended:?}");
        assert!(ended.stderr.contains(said), "{text}: {ended:?}");
        assert_eq!((count(&sandbar), sandbar.left().len()), (0, 0), "{text}");
    }
    let missing = sandbar.run(&["run", "do it", "--agent", "none.toml"]);
    assert_eq!(
        (missing.code, missing.stderr.as_str()),
        (1, "sandbar: cannot use the agent file none.toml; No such file or directory\n")
    );
}

#[test]
fn options_are_read_from_a_file_and_typed_options_win() {
    each(|sandbar| {
        let (one, two) = (script(sandbar, "1.json", [vec![say("one")]]), script(sandbar, "2.json", [vec![say("two")]]));
        sandbar.make_dir("config");
        sandbar.make_dir("config/sandbar");
        sandbar.make_file(
            "config/sandbar/config.toml",
            format!("model = \"{one}\"\nmax_turns = 3\nenv = [\"A=1\", \"B=2\"]\n"),
        );
        sandbar.make_file("other.yaml", format!("model: {two}\nmax-turns: 1\n"));
        for (words, answer) in [
            (["run", "hi"].as_slice(), "one\n"),
            (&["run", "hi", "--model", &two], "two\n"),
            (&["run", "hi", "--model", &two, "--max-turns", "1", "--env", "A=3"], "two\n"),
            (&["--color", "never", "run", "hi", "--config", "other.yaml"], "two\n"),
            (&["-v", "run", "hi", "--config=other.yaml", "--model", &one], "one\n"),
        ] {
            let ended = sandbar.run(words);
            assert_eq!((ended.code, ended.stdout.as_str()), (0, answer), "{words:?}: {ended:?}");
        }
    });
}

#[test]
fn an_invalid_configuration_is_named_and_affects_only_run() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    sandbar.make_dir("config");
    sandbar.make_dir("config/sandbar");
    for (text, said) in [
        ("modle = \"x\"", "there is no option \"modle\""),
        ("max-turns = \"many\"", "invalid value 'many' for '--max-turns <N>'"),
        ("max-turns = 0", "0 is not in 1"),
        ("max-turns = -1", "'--max-turns <N>'"),
        ("ask = \"sometimes\"", "invalid value 'sometimes' for '--ask <WHEN>'"),
        ("in-place = true", "--workspace <DIR>"),
        ("model = { a = 1 }", "\"model\" must be text"),
        ("config = \"other\"", "there is no option \"config\""),
        ("prompt = \"x\"", "there is no option \"prompt\""),
        ("json = \"yes\"", "--json"),
        ("x = [", "the document: TOML parse error at line 1"),
        ("", ""),
    ] {
        let path = sandbar.make_file("config/sandbar/config.toml", text);
        let ended = sandbar.run(&["run", "do it", "--model", &model]);
        if said.is_empty() {
            assert_eq!(ended.code, 0, "{ended:?}");
            continue;
        }
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{text}: {ended:?}");
        let opening = format!("sandbar: cannot use {}; ", path.display());
        assert!(ended.stderr.starts_with(&opening) && ended.stderr.contains(said), "{text}: {ended:?}");
        assert!(!ended.stderr.contains("For more information"), "{ended:?}");
        // What is typed is not blamed on the file, nor is the file on what is typed.
        let typed = sandbar.run(&["run", "--nonsense"]);
        if typed.stderr.starts_with(&opening) {
            assert!(!text.contains("max") && !text.contains("in-place"), "{text}: {typed:?}");
        }
        for words in
            [["run", "--help"].as_slice(), &["demo", "--help"], &["runs", "ls"], &["exec", "--", "echo", "run"]]
        {
            assert_eq!(sandbar.run(words).code, 0, "{text}: {words:?}");
        }
    }
}

#[test]
fn a_rule_about_files_applies_to_every_spelling_and_form_of_patch() {
    let sandbar = Sandbar::own();
    sandbar.make_file("asks.toml", "[[ask]]\ntool = \"apply_patch\"\nmatches = \"deploy/*\"\n");
    let patch = |path: &str| format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n");
    let typed = |before: &str, path: &str| shell(&format!("{before}apply_patch <<'EOF'\n{}EOF\n", patch(path)));
    let calls = [
        (super::play::patch(&patch("deploy/x")), 3),
        (super::play::patch(&patch("./deploy/x")), 3),
        (super::play::patch(&patch("/workspace/deploy/x")), 3),
        (super::play::patch(&patch("src/../deploy/x")), 3),
        (super::play::patch(&patch("src/x")), 0),
        (typed("", "deploy/x"), 3),
        (typed("cd deploy && ", "x"), 3),
        (typed("cd src && ", "x"), 0),
    ];
    for (place, (call, code)) in calls.into_iter().enumerate() {
        let model = script(&sandbar, &format!("{place}.json"), [vec![call.clone()], vec![say("done")]]);
        let told = run(&sandbar, &["--model", &model, "--agent", "asks.toml"]);
        assert_eq!(told.run.code, code, "{call}: {told:?}");
    }
}
