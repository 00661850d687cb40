//! Tests of a run in a real sandbox, in every mode.

use sandbar::{client::UnixLocal, prelude::*};

use super::*;

async fn happens(views: &mut [View]) {
    let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** Add File: b.txt\n+three\n*** End Patch\n";
    let script = ScriptedModel::new([
        vec![Item::custom_call("c1", "apply_patch", patch)],
        vec![
            Item::function_call(
                "c2",
                "exec_command",
                r#"{"cmd":"cat a.txt; printf '\\033[31mred\\033[0m\\n'; exit 3"}"#,
            ),
            Item::function_call(
                "c3",
                "exec_command",
                r#"{"cmd":"apply_patch <<'EOF'\n*** Begin Patch\n*** Delete File: b.txt\n*** End Patch\nEOF"}"#,
            ),
        ],
        vec![Item::assistant("All done.")],
    ]);
    let agent = SandboxAgent::new("coder").model(script).manifest(Manifest::new());
    let mut stream = run(agent, "Do it.").sandbox(SandboxRunConfig::new(UnixLocal::new())).stream();
    views.iter_mut().for_each(start);
    while let Some(event) = stream.next().await {
        views.iter_mut().for_each(|view| {
            view.event(&event);
            view.tick(None);
        });
    }
    let answer = stream.result().await.expect("a result").final_output().clone();
    assert_eq!(answer, "All done.");
    views.iter_mut().for_each(|view| finish(view, "All done."));
}

/// Replaces times, which differ between runs.
fn untimed(text: &str) -> String {
    let is_time = |word: &str| word.strip_suffix('s').is_some_and(|number| number.parse::<f64>().is_ok());
    let line = |line: &str| {
        line.split(' ').map(|word| if is_time(word) { "TIME" } else { word }).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_real_run_is_shown_in_every_mode() {
    let mut views = [terminal(90, Color::Always), plain(), programs()];
    happens(&mut views).await;
    let [live, lines, json] = &mut views;
    let told = untimed(Screen::new(90).play(live).text().trim_end());
    assert_eq!(told, REAL.trim_end());
    let lines = untimed(&captured(lines).stderr);
    assert_eq!(lines, told.replace("\nAll done.\n", ""));
    let json: Vec<Value> =
        captured(json).stdout.lines().map(|line| serde_json::from_str(line).expect("json")).collect();
    let kinds: Vec<&str> = json.iter().filter_map(|line| line["type"].as_str()).collect();
    let printed = kinds.iter().filter(|kind| **kind == "tool_progress").count();
    assert!(printed > 0, "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"run_finished"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "turn_started").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "tool_called").count(), 3);
    assert_eq!(kinds.iter().filter(|kind| **kind == "tool_output").count(), 3);
}

const REAL: &str = r"run_7 · coder · gpt-5.5
copy of /home/ada/hello · own namespaces, no network
> fix the failing test

± apply_patch 2 files
  A a.txt
  +one
  +two
  A b.txt
  +three
  ✓ applied
$ cat a.txt; printf '\033[31mred\033[0m\n'; exit 3
  one
  two
  red
  ✗ exit 3 · TIME
± apply_patch 1 file
  D b.txt
  ✓ exit 0 · TIME

All done.

✓ completed · 3 turns · TIME · 4,321 tokens in (1,200 cached), 321 out · $0.0123
  sandbar diff run_7
  sandbar apply run_7
";
