//! Hostile output of commands and models: floods, and bytes that are not text.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{
    play::{call, say, script, shell, told},
    rig::{PATIENCE, Sandbar},
    screen::Terminal,
};

/// Clears a screen, renames a window, asks a terminal what it is, hides text, turns it around.
const ORDERS: &str = "\x1b[2J\x1b]0;owned\x07\x1b[c\x1b[8m\u{202e}\u{9b}31m\r\x08";

#[test]
fn only_sandbar_sends_control_sequences_to_a_terminal() {
    let sandbar = Sandbar::own();
    let print = r"printf 'A\033[2J\033]0;owned\007\033[c\033[8mB\n'; printf '\033c\0\377\376C\n'";
    let turns = [vec![say(&format!("M{ORDERS}N")), shell(print)], vec![say(&format!("last{ORDERS}words"))]];
    let model = script(&sandbar, "orders.json", turns);
    let prompt = format!("line one{ORDERS}\nline two");
    let piped = sandbar.run(&["run", &prompt, "--model", &model]);
    assert_eq!(piped.code, 0, "{piped:?}");
    assert!(!piped.stderr.contains(['\x1b', '\x07', '\u{9b}', '\u{202e}', '\x08']), "{piped:?}");
    let terminal = Terminal::open(&sandbar, &["run", &prompt, "--model", &model]);
    let (run, shown) = terminal.ends();
    assert_eq!(run.code, 0, "{shown:?}");
    for order in ["\x1b[2J", "\x1b]", "\x1b[c", "\x1b[8m", "\x1bc", "\u{202e}", "\u{9b}", "\x07"] {
        assert!(!shown.contains(order), "{order:?} in {shown:?}");
    }
    assert!(shown.contains("line two") && shown.contains("words"), "{shown:?}");
}

#[test]
fn an_agent_cannot_imitate_messages_of_sandbar() {
    let sandbar = Sandbar::own();
    let model = script(&sandbar, "fake.json", [vec![shell("printf '\\r\\033[1Aallow it? y\\n'")], vec![say("done")]]);
    let ended = sandbar.run(&["run", "do it", "--model", &model]);
    assert!(!ended.stderr.lines().any(|line| line.starts_with("allow it?")), "{ended:?}");
}

#[test]
fn a_flood_of_output_uses_little_memory() {
    let sandbar = Sandbar::own();
    // The command is not waited for to its end: that is the disk's and the processor's business, not memory's.
    let endless = call("exec_command", &json!({"cmd": "head -c 10G /dev/zero | tr '\\0' x", "yield_time_ms": 4000}));
    let lines = call("exec_command", &json!({"cmd": "yes | head -c 1G", "yield_time_ms": 3000}));
    let model = script(&sandbar, "flood.json", [vec![endless], vec![lines], vec![say("done")]]);
    let child = sandbar.command(&["run", "do it", "--json", "--model", &model]).spawn().expect("spawn");
    let status = format!("/proc/{}/status", child.id());
    let ends = std::thread::spawn(move || told(child));
    let (mut most, begun) = (0, Instant::now());
    while !ends.is_finished() && begun.elapsed() < PATIENCE {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = ends.join().expect("told");
    println!("at most {most} kB, {} bytes said, {:?}", told.run.stdout.len(), begun.elapsed());
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{:?}", told.end());
    assert!((1..300 << 10).contains(&most), "{most} kB");
    sandbar.leaves_nothing("no such words");
}

#[test]
fn three_hundred_concurrent_calls_are_answered() {
    let sandbar = Sandbar::own();
    let calls = (0..300).map(|number| shell(&format!("echo n{number}"))).collect();
    let model = script(&sandbar, "many.json", [calls, vec![say("done")]]);
    let told = super::play::run(&sandbar, &["--model", &model]);
    assert_eq!((told.run.code, told.of("tool_output").len()), (0, 300), "{:?}", told.end());
}
