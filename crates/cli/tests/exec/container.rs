//! In an ordinary container without user namespaces: a clear refusal, and Landlock on request.

use std::process::{Command, Output};

use super::rig::has_engine;

const EMPTY: &str = "sandbar-test:empty";

/// Runs sandbar in a container of an empty image, with the host's programs; the engine is made ready by `cargo xtask setup`.
fn in_container(user: &str, args: &[&str]) -> Output {
    let program = format!("{}:/sandbar:ro", env!("CARGO_BIN_EXE_sandbar"));
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--network", "none", "--tmpfs", "/tmp", "--user", user, "--volume", &program]);
    for (host, inside) in [("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64"), ("/usr/bin", "/bin")] {
        command.args(["--volume", &format!("{host}:{inside}:ro")]);
    }
    command.args([EMPTY, "/sandbar"]).args(args).output().expect("the engine's client runs")
}

#[test]
fn without_namespaces_no_command_runs_and_the_missing_feature_is_named() {
    if !has_engine(EMPTY) {
        return;
    }
    for (user, missing) in [("0", "SYS_ADMIN"), ("1001", "user namespaces")] {
        let run = in_container(user, &["exec", "--", "echo", "it ran"]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(125), "{said}");
        assert!(run.stdout.is_empty(), "{run:?}");
        assert!(said.contains(missing) && said.contains("--isolation landlock"), "{said}");
    }
}

#[test]
fn landlock_works_without_namespaces() {
    if !has_engine(EMPTY) {
        return;
    }
    for user in ["0", "1001"] {
        let script = "echo made >file && cat file && ! ls / 2>/dev/null && ! cat /sandbar 2>/dev/null";
        let run = in_container(user, &["exec", "--isolation", "landlock", "--", "sh", "-c", script]);
        assert_eq!(run.status.code(), Some(0), "{run:?}");
        assert_eq!(String::from_utf8_lossy(&run.stdout), "made\n");
    }
}
