//! Secrets that a command prints: on the screen, in the run's directory, and let through on request.

use std::fs;

use serde_json::json;

use super::{
    play::{run, runs, say, script, shell},
    rig::{Sandbar, each},
};

const VALUE: &str = "s3cretvalue99";

fn manifest(sandbar: &Sandbar) -> String {
    let text = json!({"environment": {"value": {"TOKEN": {"type": "secret", "name": "TOKEN"}}}});
    sandbar.make_file("workspace.json", text.to_string()).display().to_string()
}

/// Everything that was written down about a run, by the name of the file.
fn kept(sandbar: &Sandbar, id: &str) -> Vec<(String, String)> {
    let dir = runs(sandbar).join(id);
    let files = fs::read_dir(&dir).expect("the run's directory").flatten().filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let text = fs::read(entry.path()).expect("readable");
            (entry.file_name().to_string_lossy().into_owned(), String::from_utf8_lossy(&text).into_owned())
        })
        .collect()
}

#[test]
fn a_secret_that_a_command_prints_is_masked_everywhere() {
    each(|sandbar| {
        let manifest = manifest(sandbar);
        let turns = [vec![shell("env; echo $TOKEN | base64 >&2")], vec![say("done")]];
        let model = script(sandbar, "env.json", turns);
        let words = ["--model", &model, "--manifest", &manifest, "--secret", &format!("TOKEN={VALUE}")];
        // A run that stops before its end also leaves what it could be taken up with.
        let told = run(sandbar, &[&words[..], &["--max-turns", "1"]].concat());
        assert_eq!(told.status(), "max_turns", "{told:?}");
        assert!(told.run.stdout.contains("TOKEN=[secret]"), "{told:?}");
        let shown = sandbar.run(&[&["run", "do it"], &words[..]].concat());
        assert!(shown.stderr.contains("TOKEN=[secret]"), "{shown:?}");
        let mut texts = kept(sandbar, told.id());
        let names: Vec<&str> = texts.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["trace.jsonl", "audit.jsonl", "state.json"] {
            assert!(names.contains(&name), "{names:?}");
        }
        texts.push(("--json".to_owned(), told.run.stdout.clone() + &told.run.stderr));
        texts.push(("the screen".to_owned(), shown.stdout.clone() + &shown.stderr));
        for (name, text) in texts {
            for form in [VALUE, "czNjcmV0dmFsdWU5O"] {
                assert!(!text.contains(form), "{name} holds {form}: {text}");
            }
        }
    });
}

#[test]
fn a_secret_is_shown_on_request_and_a_short_one_gets_a_warning() {
    let sandbar = Sandbar::own();
    let manifest = manifest(&sandbar);
    let model = script(&sandbar, "env.json", [vec![shell("echo $TOKEN")], vec![say("done")]]);
    let words = ["run", "do it", "--model", &model, "--manifest", &manifest];
    let shown = sandbar.run(&[&words[..], &["--secret", &format!("TOKEN={VALUE}"), "--show-secret", "TOKEN"]].concat());
    assert!(shown.code == 0 && shown.stderr.contains(VALUE), "{shown:?}");
    let short = sandbar.run(&[&words[..], &["--secret", "TOKEN=s3cret"]].concat());
    assert!(short.stderr.contains("the secret TOKEN has fewer than 8 bytes, and is not hidden"), "{short:?}");
    let unknown = sandbar.run(&[&words[..], &["--secret", "TOKEN=x", "--show-secret", "OTHER"]].concat());
    assert!(unknown.code != 0 && unknown.stderr.contains("--secret OTHER"), "{unknown:?}");
}

#[test]
fn raw_output_is_data() {
    let sandbar = Sandbar::own();
    let manifest = manifest(&sandbar);
    let secret = format!("TOKEN={VALUE}");
    let raw = sandbar.run(&["exec", "--manifest", &manifest, "--secret", &secret, "--", "sh", "-c", "echo $TOKEN"]);
    assert_eq!(raw.stdout, format!("{VALUE}\n"), "{raw:?}");
}
