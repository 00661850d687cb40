//! Usage mistakes are refused with a message and the right exit code, and leave nothing behind.

use std::{fs, process::Stdio};

use super::rig::{Run, Sandbar, each, finish};

/// The complaint about these options.
fn refused(sandbar: &Sandbar, options: &[&str]) -> Run {
    let words = [&["exec"], options, &["--", "true"]].concat();
    let run = sandbar.run(&words);
    assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{words:?}: {run:?}");
    assert!(run.stderr.starts_with("sandbar: "), "{words:?}: {run:?}");
    assert!(!run.stderr.contains("panicked") && !run.stderr.contains("os error"), "{words:?}: {run:?}");
    assert!(sandbar.left().is_empty());
    run
}

#[test]
fn an_invalid_option_is_named_with_a_valid_value() {
    each(|sandbar| {
        let file = sandbar.dir().join("file");
        fs::write(&file, "").expect("write");
        let file = file.display().to_string();
        let table: [(&[&str], &[&str]); 28] = [
            (&["--workspace", "/no/such"], &["--workspace /no/such", "No such file"]),
            (&["--workspace", &file], &["--workspace", "not a directory", "give a directory"]),
            (&["--workspace", ""], &["--workspace"]),
            (&["--ro", "/no/such"], &["--ro /no/such", "No such file"]),
            (&["--rw", "/no/such:/data"], &["--rw /no/such", "No such file"]),
            (&["--ro", "/etc:/proc/x"], &["/proc/x"]),
            (&["--ro", "/etc:/workspace"], &["/workspace"]),
            (&["--isolation", "landlock", "--pids", "5"], &["--pids needs full isolation"]),
            (&["--isolation", "landlock", "--tmp-size", "5m"], &["--tmp-size needs full isolation"]),
            (&["--isolation", "none", "--network", "off"], &["--network off needs full isolation"]),
            (&["--workspace", "/"], &["would show the host's own"]),
            (&["--ro", "/proc:/p"], &["would show the host's own"]),
            (&["--rootfs", "/no/such"], &["--rootfs /no/such", "No such file"]),
            (&["--tmp-size", "12q"], &["12q", "--tmp-size", "64k, 512m or 1g"]),
            (&["--timeout", "10"], &["10", "--timeout", "500ms, 10s, 5m or 1h"]),
            (&["--timeout", "0s"], &["--timeout"]),
            (&["--env", "=x"], &["--env", "NAME=VALUE"]),
            (&["--env", "SANDBAR_NOT_SET"], &["SANDBAR_NOT_SET", "not set", "--env SANDBAR_NOT_SET=VALUE"]),
            (&["--isolation", "strong"], &["strong", "full, landlock, none"]),
            (&["--network", "some"], &["some", "off, open, host"]),
            (&["--pids", "0"], &["--pids"]),
            (&["--port", "70000"], &["70000", "--port"]),
            (&["--memory", "lots"], &["lots", "--memory", "64k, 512m or 1g"]),
            (&["--memory", "1m"], &["memory", "less than 16 MiB"]),
            (&["--disk", "1.5g"], &["1.5g", "--disk", "64k, 512m or 1g"]),
            (&["--disk", "4k"], &["disk", "less than 1 MiB"]),
            (&["--cpus", "many"], &["many", "--cpus", "as 2 or 1.5"]),
            (&["--cpus", "0"], &["--cpus", "0.01"]),
        ];
        for (options, words) in table {
            let run = refused(sandbar, options);
            for word in words {
                assert!(run.stderr.contains(word), "{options:?} should mention {word:?}: {run:?}");
            }
        }
    });
}

#[test]
fn without_a_command_there_is_nothing_to_run() {
    let sandbar = Sandbar::own();
    for words in [&["exec"][..], &["exec", "--"], &["exec", "--tty"], &["exec", "--netwrok", "off", "--", "true"]] {
        let run = sandbar.run(words);
        assert_eq!((run.code, run.stdout.as_str()), (125, ""), "{words:?}: {run:?}");
        assert!(run.stderr.starts_with("sandbar: "), "{run:?}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_created_is_named() {
    let sandbar = Sandbar::own();
    let mut command = sandbar.command(&["exec", "--", "true"]);
    let run = finish(command.env("TMPDIR", "/no/such/dir").spawn().expect("spawn"));
    assert_eq!(run.code, 125);
    assert!(run.stderr.starts_with("sandbar: ") && run.stderr.contains("/no/such/dir"), "{run:?}");
}

#[test]
fn an_unknown_subcommand_gets_a_hint() {
    let sandbar = Sandbar::own();
    let run = sandbar.run(&["ls", "-la"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("'ls'") && run.stderr.contains("sandbar exec -- "), "{run:?}");
    let nothing = sandbar.run::<&str>(&[]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (2, ""));
    assert!(nothing.stderr.contains("Usage: sandbar") && nothing.stderr.contains("Examples:"), "{nothing:?}");
}

#[test]
fn output_is_coloured_only_on_request() {
    let sandbar = Sandbar::own();
    let plain = sandbar.run(&["exec", "--workspace", "/no/such", "--", "true"]);
    assert!(!plain.stderr.contains('\x1b'), "{plain:?}");
    let coloured = sandbar.run(&["--color", "always", "exec", "--workspace", "/no/such", "--", "true"]);
    assert!(coloured.stderr.contains('\x1b'), "{coloured:?}");
}

#[test]
fn verbose_logs_what_sandbar_does() {
    let sandbar = Sandbar::own();
    let run = sandbar.run(&["exec", "-v", "--", "echo", "result"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "result\n"));
    assert!(run.stderr.contains("isolation=namespaces"), "{run:?}");
    assert!(sandbar.run(&["exec", "--", "true"]).stderr.is_empty());
}

#[test]
fn help_is_a_result_whose_reader_may_close_the_pipe() {
    let sandbar = Sandbar::own();
    for (words, expected) in [
        (&["--help"][..], "Examples:"),
        (&["exec", "--help"], "Exit codes:"),
        (&["doctor", "--help"], "--json"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let run = sandbar.run(words);
        assert_eq!((run.code, run.stderr.as_str()), (0, ""), "{words:?}");
        assert!(run.stdout.contains(expected), "{words:?}: {run:?}");
    }
    let (reader, writer) = std::io::pipe().expect("pipe");
    drop(reader);
    let mut command = sandbar.command(&["completions", "bash"]);
    let run = finish(command.stdout(Stdio::from(writer)).spawn().expect("spawn"));
    assert_eq!((run.code, run.stderr.as_str()), (141, ""));
}

#[test]
fn a_full_disk_is_named_and_nothing_is_left_on_it() {
    // A file system with room for the directory of all machines, and not for one of them; gone with its mount namespace.
    let script = r#"mount -t tmpfs -o nr_inodes=4,mode=1777 none "$1" && TMPDIR="$1" "$2" exec -- true
        code=$?; find "$1" -mindepth 2; exit $code"#;
    let dir = tempfile::tempdir().expect("a directory");
    let run = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(dir.path())
        .arg(env!("CARGO_BIN_EXE_sandbar"))
        .output()
        .expect("unshare runs: `cargo xtask setup` installs it");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(125), "{said}");
    assert!(said.contains("No space left") && said.contains("TMPDIR"), "{said}");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "", "something was left");
}
