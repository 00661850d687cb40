//! `sandbar runs ls` and `rm`.

use std::fs;

use serde_json::Value;

use super::{
    layout::{ID, make, write},
    rig::{Sandbar, each},
};

const OTHER: &str = "0199f3a2-7c1e-7000-8000-0000000000b2";

#[test]
fn runs_are_listed_as_text_and_as_json() {
    each(|sandbar| {
        assert_eq!(sandbar.run(&["runs", "ls", "--json"]).stdout, "{\"runs\":[]}\n");
        make(sandbar, ID);
        let broken = make(sandbar, OTHER);
        fs::write(broken.join("record.json"), "{").unwrap();
        let listed = sandbar.run(&["runs", "ls"]);
        let lines: Vec<&str> = listed.stdout.lines().collect();
        assert!(lines[0].starts_with("ID ") && lines[0].ends_with("PROMPT"), "{listed:?}");
        assert!(
            lines[1].starts_with(ID) && lines[1].contains("completed") && lines[1].ends_with("Fix the bug and say why")
        );
        assert!(lines[2].starts_with(OTHER) && lines[2].contains("damaged"), "{listed:?}");
        assert!(listed.stderr.contains(&format!("`sandbar runs rm {OTHER}` removes it")), "{listed:?}");
        let document: Value = serde_json::from_str(&sandbar.run(&["runs", "ls", "--json"]).stdout).unwrap();
        assert_eq!(
            (&document["runs"][0]["status"], &document["runs"][1]["status"]),
            (&"completed".into(), &"damaged".into())
        );
        assert_eq!(document["runs"][0]["created_at"], "2026-01-02T03:04:05Z");
    });
}

#[test]
fn runs_are_removed_by_id_by_age_or_all() {
    let sandbar = Sandbar::own();
    let run = make(&sandbar, ID);
    make(&sandbar, OTHER);
    let source = sandbar.dir().join("source");
    std::os::unix::fs::symlink(&source, run.join("workspace/link")).unwrap();
    assert_eq!(sandbar.run(&["runs", "rm", "00a1", "none"]).code, 1);
    assert!(!run.exists() && source.join("kept").exists());
    assert_eq!(sandbar.run(&["runs", "rm", "--older-than", "1000000h", "--json"]).stdout, "{\"removed\":[]}\n");
    assert_eq!(
        sandbar.run(&["runs", "rm", "--older-than", "1h", "--json"]).stdout,
        format!("{{\"removed\":[\"{OTHER}\"]}}\n")
    );
    let broken = make(&sandbar, ID);
    write(&broken, "record.json", "");
    assert_eq!(sandbar.run(&["runs", "rm", "--all"]).code, 0);
    assert_eq!(fs::read_dir(sandbar.dir().join("state/sandbar/runs")).unwrap().count(), 0);
}
