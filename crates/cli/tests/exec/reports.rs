//! `doctor` and `completions`.

use sandbar::doctor::LandlockReport;

use super::rig::{Sandbar, each};

#[test]
fn the_doctor_reports_full_isolation_as_json() {
    each(|sandbar| {
        let run = sandbar.run(&["doctor", "--json"]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{run:?}");
        let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
        assert_eq!((report["demanded"].as_str(), report["reached"].as_str()), (Some("full"), Some("full")));
        assert_eq!(report["levels"][0]["level"], "full");
        assert_eq!(report["levels"][0]["works"], true);
        assert!(report["levels"][0]["layers"].as_array().is_some_and(|layers| layers.len() > 5), "{report}");
        for limit in ["pids", "open_files", "core", "tmp", "time"] {
            assert_eq!(report["limits"][limit], "hard", "{limit}");
        }
        for limit in ["memory", "cpu", "disk"] {
            assert!(report["limits"][limit].is_string(), "{limit}");
        }
        for cost in ["create_p50_us", "create_p95_us", "exec_p50_us", "exec_p95_us"] {
            assert!(report["cost"][cost].as_u64().is_some_and(|cost| cost > 0), "{cost}: {report}");
        }
        for key in ["version", "user", "kernel", "settings", "fixes"] {
            assert!(!report[key].is_null(), "{key}");
        }
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn the_doctor_prints_text_without_colour_to_a_pipe() {
    let sandbar = Sandbar::own();
    let run = sandbar.run(&["doctor"]);
    assert_eq!(run.code, 0);
    for words in ["reaches full isolation", "seccomp", "processes", "to make a sandbox", "p95"] {
        assert!(run.stdout.contains(words), "{words}: {run:?}");
    }
    assert!(!run.stdout.contains('\x1b'));
    assert!(sandbar.run(&["doctor", "--color", "always"]).stdout.contains('\x1b'));
    assert_eq!(sandbar.run(&["doctor", "--nonsense"]).code, 2);
}

/// The rows of `SECURITY.md` by the versions they are for.
#[test]
fn the_doctor_describes_landlock_as_the_security_page_does() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../SECURITY.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    for (first, versions) in [("none", 0..=0), ("1", 1..=1), ("2 to 5", 2..=5), ("6 and newer", 6..=9)] {
        let row = page.lines().map(cells).find(|cells| cells.len() == 7 && cells[1] == first).expect("a row");
        for version in versions {
            let report = LandlockReport::of(Some(version).filter(|version| *version > 0));
            assert_eq!([&report.full, &report.containers, &report.landlock], [&row[3], &row[4], &row[5]], "{version}");
        }
    }
    let run = Sandbar::own().run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&run.stdout).expect("json");
    let version = report["landlock"]["version"].as_u64().expect("a version");
    let layers = report["levels"][0]["layers"].to_string();
    assert!(layers.contains(&format!("landlock {version}")), "{report}");
    assert_eq!(report["apparmor"]["restricts"], false, "{report}");
}

#[test]
fn without_isolation_no_command_runs_and_the_fix_is_named() {
    let sandbar = Sandbar::without_namespaces();
    let refused = sandbar.run(&["exec", "--", "echo", "ran"]);
    assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:?}");
    for words in ["user namespaces", "max_user_namespaces", "sandbar doctor"] {
        assert!(refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let doctor = sandbar.run(&["doctor"]);
    assert_eq!(doctor.code, 1, "{doctor:?}");
    for words in ["refuses to run", "--isolation landlock", "to fix", "max_user_namespaces"] {
        assert!(doctor.stdout.contains(words), "{words}: {doctor:?}");
    }
    let json = sandbar.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("json");
    assert_eq!((json.code, report["reached"].is_null(), report["cost"].is_null()), (1, true, true), "{report}");
    assert!(report["fixes"].as_array().is_some_and(|fixes| !fixes.is_empty()), "{report}");
    let asked = sandbar.run(&["exec", "--isolation", "landlock", "--", "echo", "ran"]);
    assert_eq!((asked.code, asked.stdout.as_str()), (0, "ran\n"), "{asked:?}");
    assert!(sandbar.left().is_empty());
}

#[test]
fn shells_can_complete_the_command_line() {
    let sandbar = Sandbar::own();
    for shell in ["bash", "zsh", "fish"] {
        let run = sandbar.run(&["completions", shell]);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""));
        assert!(run.stdout.contains("isolation") && run.stdout.contains("landlock"), "{shell}");
    }
    assert_eq!(sandbar.run(&["completions", "tcsh"]).code, 2);
}
