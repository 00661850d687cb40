//! Prompts and help texts.

use std::{io::Write, process::Stdio};

use sandbar::mock::{MockServer, Script, item};

use super::{
    play::{say, script},
    rig::{Run, Sandbar, finish},
};

fn fed(sandbar: &Sandbar, words: &[&str], input: &[u8]) -> Run {
    let mut child = sandbar.command(words).stdin(Stdio::piped()).spawn().expect("spawn");
    let _it_may_have_read_enough = child.stdin.take().expect("stdin").write_all(input);
    finish(child)
}

#[test]
fn a_prompt_comes_from_an_argument_or_from_standard_input() {
    let sandbar = Sandbar::own();
    let long = "é".repeat(300_000);
    for (words, input, prompt) in [
        (["run", "first\nsecond line"].as_slice(), "", "first\nsecond line"),
        (&["run", "-"], "typed\nlines\n", "typed\nlines\n"),
        (&["run"], "typed", "typed"),
        (&["run", "argument wins"], "typed", "argument wins"),
        (&["run", "--", "--not-an-option"], "", "--not-an-option"),
        (&["run"], &long, &long),
    ] {
        let server = MockServer::start(Script::new().turn(item::text("done"))).expect("a server");
        let url = server.base_url();
        let mut words = words.to_vec();
        words.insert(1, &url);
        words.insert(1, "--base-url");
        let ended = fed(&sandbar, &words, input.as_bytes());
        assert_eq!((ended.code, ended.stdout.as_str()), (0, "done\n"), "{words:?}: {}", ended.stderr);
        let asked = server.requests()[0].body["input"].clone();
        let text = asked.as_str().or(asked[0]["content"].as_str()).or(asked[0]["content"][0]["text"].as_str());
        assert_eq!(text, Some(prompt), "{words:?}");
    }
}

#[test]
fn an_invalid_prompt_is_refused() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "done.json", [vec![say("done")]]);
    let huge = vec![b'x'; (1 << 20) + 1];
    for (words, input, said) in [
        (
            ["run", "--model", &model].as_slice(),
            b"".as_slice(),
            "the prompt is empty; pass a prompt: sandbar run \"fix",
        ),
        (&["run", " \n", "--model", &model], b"", "the prompt is empty"),
        (&["run", "-", "--model", &model], b"\n", "the prompt is empty"),
        (
            &["run", "-", "--model", &model],
            &huge,
            "the prompt is longer than 1 MiB; write it to a file of the workspace",
        ),
        (&["run", "-", "--model", &model], b"\xff\xfe", "cannot read the prompt from standard input; "),
    ] {
        let ended = fed(&sandbar, words, input);
        assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{ended:?}");
        assert!(ended.stderr.contains(said), "{ended:?}");
    }
}

#[test]
fn help_fits_a_terminal() {
    let sandbar = Sandbar::own();
    for (words, said) in [
        (["run", "--help"].as_slice(), ["--workspace <DIR>", "--max-cost <USD>", "Exit codes:", "script:FILE"]),
        (&["run", "-h"], ["--workspace <DIR>", "--ask <WHEN>", "--in-place", "Examples:"]),
        (&["demo", "--help"], ["--json", "without an API key", "a script", "real"]),
    ] {
        let ended = finish(sandbar.command(words).env("COLUMNS", "80").spawn().expect("spawn"));
        assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{ended:?}");
        for word in said {
            assert!(ended.stdout.contains(word), "{word} in {}", ended.stdout);
        }
        let wide: Vec<&str> = ended.stdout.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
