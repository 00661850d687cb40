//! Runs and commands in containers.

use std::fs;

use super::{
    play::{patch, run, say, script, shell},
    rig::{Sandbar, has_engine},
};

/// Made by `cargo xtask setup`.
const NAME: &str = "sandbar-test:bookworm";
const IMAGE: &str = "docker:sandbar-test:bookworm";

#[test]
fn an_agent_works_on_a_copy_in_a_container() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    let source = sandbar.make_dir("source");
    sandbar.make_file("source/a.txt", "one\n");
    let change = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
    let look = "head -1 /etc/os-release; cat a.txt; echo made > b.txt";
    let model = script(&sandbar, "work.json", [vec![shell(look)], vec![patch(change)], vec![say("done")]]);
    let told = run(&sandbar, &["--model", &model, "--workspace", "source", "--sandbox", IMAGE]);
    assert_eq!((told.run.code, told.status()), (0, "completed"), "{told:?}");
    assert!(told.outputs().contains("bookworm") && told.outputs().contains("one"), "{told:?}");
    assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"one\n");
    assert_eq!(sandbar.run(&["apply", told.id()]).code, 0);
    assert_eq!(fs::read(source.join("a.txt")).expect("a"), b"two\n");
    assert_eq!(fs::read(source.join("b.txt")).expect("b"), b"made\n");
}

#[test]
fn a_command_runs_in_a_container_and_its_code_passes_through() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    let ran = sandbar.run(&["exec", "--sandbox", IMAGE, "--", "sh", "-c", "grep -c bookworm /etc/os-release; exit 7"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (7, ""), "{ran:?}");
    assert!(ran.stdout.trim().parse::<u32>().is_ok_and(|lines| lines > 0), "{ran:?}");
}

#[test]
fn the_demo_works_in_a_container() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    // Its script gives the program a quarter of a second to answer: a busy machine may need another try.
    let play = || sandbar.run(&["demo", "--sandbox", IMAGE]);
    let played = (0..4).map(|_| play()).find(|played| played.stderr.contains("5 words")).unwrap_or_else(play);
    assert_eq!(played.code, 0, "{played:?}");
    assert!(played.stderr.contains("all tests pass") && played.stderr.contains("5 words"), "{played:?}");
}

#[test]
fn a_missing_image_and_an_unknown_provider_are_named() {
    if !has_engine(NAME) {
        return;
    }
    let sandbar = Sandbar::own();
    let missing = sandbar.run(&["exec", "--sandbox", "docker:sandbar-test:no-such", "--", "true"]);
    assert_eq!(missing.code, 125, "{missing:?}");
    assert!(missing.stderr.contains("sandbar-test:no-such"), "{missing:?}");
    let unknown = sandbar.run(&["run", "x", "--sandbox", "moon"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("docker:IMAGE"), "{unknown:?}");
}
