//! Messages of failures: one line, readable, and about the side that failed.

use std::{fs, os::unix::fs::PermissionsExt};

use super::{
    made::Made,
    rig::{Sandbar, each, finish},
};

#[test]
fn a_failure_is_one_line_without_repetitions() {
    let sandbar = Sandbar::own();
    let made = Made::new(&sandbar, &["--name", "m"]);
    assert_eq!(made.sh("mkdir d; echo x > f; mkfifo p; ln -s /etc/passwd out; ln -s loop loop").code, 0);
    let notes = sandbar.make_file("notes", "x").display().to_string();
    let table: [(&[&str], &str); 14] = [
        (&["read", "m:."], "cannot read .; Is a directory; `sandbar session ls` lists it"),
        (&["read", "m:d"], "cannot read d; Is a directory; `sandbar session ls` lists it"),
        (&["read", "m:f/x"], "cannot read f/x; Not a directory"),
        (&["read", "m:p"], "cannot read p; it is not a regular file"),
        (&["read", "m:no"], "no does not exist"),
        (&["read", "m:out"], "cannot read out; the path leaves the directory it must stay in"),
        (&["read", "m:loop"], "cannot read loop; Too many levels of symbolic links"),
        (&["ls", "m:no"], "no does not exist"),
        (&["ls", "m:f/x"], "cannot read f/x; Not a directory"),
        (&["write", "m:d"], "cannot write d; Is a directory"),
        (&["cp", &notes, "m:f/x"], "cannot write f/x; Not a directory"),
        (&["cp", "m:p", "."], "cannot read /workspace/p; it is not a regular file"),
        (&["cp", "m:f", "/proc/x"], "cannot copy to /proc/; mount /proc"),
        (&["cp", "m:no", "."], "no does not exist"),
    ];
    for (words, said) in table {
        let run = sandbar.run(&[&["session"], words].concat());
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.lines().count()), (1, "", 1), "{words:?}: {run:?}");
        assert!(run.stderr.starts_with(&format!("sandbar: {said}")), "{words:?}: {run:?}");
        let parts: Vec<&str> = run.stderr.trim().split("; ").collect();
        assert!((1..parts.len()).all(|at| !parts[..at].contains(&parts[at])), "{run:?}");
    }
}

#[test]
fn an_invalid_source_is_reported_without_codes() {
    let sandbar = Sandbar::own();
    sandbar.make_dir("base");
    sandbar.make_dir("other");
    std::os::unix::fs::symlink("/etc", sandbar.dir().join("base/link")).expect("symlink");
    for (src, said) in [("../other", "nor below a granted path; allow it with --grant"), ("link", "a symbolic link")] {
        for kind in ["local_dir", "local_file"] {
            let text = format!(r#"{{"entries": {{"x": {{"type": "{kind}", "src": "{src}"}}}}}}"#);
            let manifest = sandbar.make_file("base/m.json", text).display().to_string();
            let run = sandbar.run(&["exec", "--manifest", &manifest, "--", "true"]);
            assert_eq!((run.code, run.stderr.lines().count()), (125, 1), "{run:?}");
            assert!(run.stderr.starts_with(&format!("sandbar: cannot copy {src}: ")), "{run:?}");
            assert!(run.stderr.contains(said) && !run.stderr.contains("\"\""), "{run:?}");
            assert!(!run.stderr.contains("outside_base_dir") && !run.stderr.contains("symlink_not"), "{run:?}");
        }
    }
}

#[test]
fn an_unsupported_feature_is_reported_by_its_manifest_key() {
    let sandbar = Sandbar::own();
    for (text, said) in [
        (r#"{"root": "/opt/x"}"#, "cannot start the session in /opt/x: cannot create the manifest's root"),
        (r#"{"environment": {"value": {"A": {"type": "secret", "name": "S"}}}}"#, "the secret \"S\" is not known"),
    ] {
        let manifest = sandbar.make_file("m.json", text).display().to_string();
        let run = sandbar.run(&["exec", "--manifest", &manifest, "--", "true"]);
        assert_eq!((run.code, run.stderr.lines().count()), (125, 1), "{run:?}");
        assert!(run.stderr.starts_with(&format!("sandbar: {said}")), "{run:?}");
        assert!(!run.stderr.contains("manifest check"), "{run:?}");
    }
}

#[test]
fn an_error_names_the_unreadable_side_of_a_copy() {
    let sandbar = Sandbar::unprivileged();
    let made = Made::new(&sandbar, &[]);
    let tree = sandbar.make_dir("tree").display().to_string();
    sandbar.make_file("tree/open", "x");
    let secret = sandbar.make_file("tree/secret", "x");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("chmod");
    for from in [&tree, &secret.display().to_string()] {
        let run = sandbar.run(&["session", "cp", from, &made.at("")]);
        assert_eq!((run.code, run.stderr.lines().count()), (1, 1), "{run:?}");
        assert_eq!(run.stderr, format!("sandbar: cannot copy {}; Permission denied\n", secret.display()));
    }
    assert_eq!(made.sh("echo x > file").code, 0);
    let run = sandbar.run(&["session", "cp", &made.at("."), "/usr"]);
    assert_eq!((run.code, run.stderr.as_str()), (1, "sandbar: cannot write /usr; permission denied\n"), "{run:?}");
    let mut write = sandbar.command(&["session", "write", &made.at("x")]);
    let run = finish(write.stdin(fs::File::open("/tmp").expect("open")).spawn().expect("spawn"));
    assert_eq!((run.code, run.stderr.as_str()), (1, "sandbar: cannot read standard input; Is a directory\n"));
    assert_eq!(made.does(&["ls", &made.id]).lines().filter(|name| *name == "x").count(), 0);
}

#[test]
fn a_shell_without_a_terminal_runs_standard_input_and_exits() {
    each(|sandbar| {
        let made = Made::new(sandbar, &[]);
        let fed = sandbar.feed(&["session", "shell", &made.id], b"echo one\nexit 3\n");
        assert_eq!((fed.status.code(), fed.stdout.as_slice()), (Some(3), b"one\n".as_slice()), "{fed:?}");
        let run = sandbar.run(&["session", "shell", &made.id]);
        assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{run:?}");
    });
}

#[test]
fn hints_match_the_command() {
    let sandbar = Sandbar::own();
    assert!(sandbar.run(&["nonsense"]).stderr.contains("sandbar exec -- PROGRAM"));
    assert!(!sandbar.run(&["session", "nonsense"]).stderr.contains("exec -- PROGRAM"));
    assert!(sandbar.run(&["session", "rm"]).stderr.contains("--all"));
}
