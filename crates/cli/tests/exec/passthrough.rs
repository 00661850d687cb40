//! Bytes, codes and variables pass through unchanged, and nothing else does.

use std::{
    io::{Read, Write},
    process::Stdio,
};

use super::rig::{Sandbar, collect, each, finish, nap, naps, sh};

#[test]
fn exit_codes_are_those_of_the_command() {
    each(|sandbar| {
        for (script, code) in
            [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
        {
            let run = sandbar.run(&sh(script));
            assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (code, "", ""), "{script}");
        }
        assert!(sandbar.left().is_empty());
    });
}

#[test]
fn signals_that_the_caller_ignores_are_not_ignored_by_a_command() {
    each(|sandbar| {
        let deaf = ["sh", "-c", "trap '' HUP INT QUIT TERM; exec \"$@\"", "sh"];
        let run = finish(
            sandbar.behind(&deaf, &["exec", "--", "grep", "SigIgn", "/proc/self/status"]).spawn().expect("runs"),
        );
        let mask = run.stdout.trim().strip_prefix("SigIgn:").and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        // One bit each: hangup, interrupt, quit; terminate.
        assert_eq!(mask.map(|mask| mask & 0b100_0000_0000_0111), Some(0), "{run:?}");
    });
}

#[test]
fn a_command_that_cannot_be_run_is_126_and_one_that_is_not_there_127() {
    each(|sandbar| {
        let missing = sandbar.run(&["exec", "--", "no-such-program"]);
        assert_eq!(missing.code, 127);
        assert!(missing.stderr.contains("no-such-program"), "{missing:?}");
        let unable = sandbar.run(&["exec", "--", "/etc/passwd"]);
        assert_eq!(unable.code, 126);
        assert!(unable.stderr.contains("/etc/passwd"), "{unable:?}");
    });
}

#[test]
fn the_two_streams_are_separate_and_every_byte_is_kept() {
    each(|sandbar| {
        let script = r"printf '\000\377\r\n\033[0m\303'; printf 'to stderr\n' >&2";
        let output = collect(sandbar.command(&sh(script)).spawn().expect("spawn"));
        assert_eq!(output.stdout, b"\0\xff\r\n\x1b[0m\xc3");
        assert_eq!(output.stderr, b"to stderr\n");
    });
}

#[test]
fn large_output_arrives_completely() {
    each(|sandbar| {
        let run = sandbar.run(&sh("yes 0123456789abcde | head -c 33554432 | tee /dev/stderr | cksum"));
        let sum = finish(
            std::process::Command::new("sh")
                .args(["-c", "yes 0123456789abcde | head -c 33554432 | cksum"])
                .stdout(Stdio::piped())
                .spawn()
                .expect("spawn"),
        );
        assert_eq!((run.code, &run.stdout), (0, &sum.stdout));
        assert_eq!(run.stderr.len(), 33_554_432);
    });
}

#[test]
fn output_arrives_when_it_is_printed() {
    let sandbar = Sandbar::own();
    let mut child = sandbar.command(&sh("echo now; read x")).stdin(Stdio::piped()).spawn().expect("spawn");
    let mut said = [0; 4];
    child.stdout.as_mut().expect("stdout").read_exact(&mut said).expect("read");
    assert_eq!(&said, b"now\n");
    child.stdin.take().expect("stdin").write_all(b"go on\n").expect("write");
    assert_eq!(finish(child).code, 0);
}

#[test]
fn standard_input_is_copied_to_its_end() {
    each(|sandbar| {
        let output = sandbar.feed(&["exec", "--", "cat"], b"one\n\0two");
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"one\n\0two".as_slice()));
        let big: &'static [u8] = Vec::leak(vec![b'x'; 8 << 20]);
        let output = sandbar.feed(&["exec", "--", "wc", "-c"], big);
        assert_eq!(output.stdout, b"8388608\n");
        let output = sandbar.feed(&["exec", "--", "true"], big);
        assert_eq!(output.status.code(), Some(0), "unread input");
    });
}

#[test]
fn a_closed_pipe_ends_the_command_quietly() {
    each(|sandbar| {
        let mut child = sandbar.command(&sh("yes closed-stdout-marker")).spawn().expect("spawn");
        let mut line = [0; 8];
        child.stdout.take().expect("stdout").read_exact(&mut line).expect("read");
        let run = finish(child);
        assert_eq!((run.code, run.stderr.as_str()), (141, ""));
        sandbar.leaves_nothing("closed-stdout-marker");
    });
}

#[test]
fn closed_standard_streams_are_accepted() {
    let sandbar = Sandbar::own();
    let program = env!("CARGO_BIN_EXE_sandbar");
    for (redirection, code) in [("<&-", 0), (">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), (">/dev/full", 125)] {
        let script = format!("exec \"$0\" exec -- sh -c 'cat; echo out; echo err >&2' {redirection}");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, program]).env("TMPDIR", sandbar.dir()).stdin(Stdio::null());
        let run = finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn"));
        assert_eq!(run.code, code, "{redirection}: {run:?}");
        assert!(sandbar.left().is_empty());
    }
}

#[test]
fn open_files_of_the_caller_are_not_inherited() {
    each(|sandbar| {
        // Opens them without the flag that would close them, as shells and build tools do.
        let words = sh("for fd in 3 4 5 6 7 8 9; do test -e /proc/self/fd/$fd && echo $fd; done; true");
        let open = ["sh", "-c", r#"exec 3<"$0" 4<"$0" 5<"$0" 6<"$0" 9<"$0"; exec "$@""#, "/etc/passwd"];
        let run = finish(sandbar.behind(&open, &words).spawn().expect("spawn"));
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    });
}

#[test]
fn a_background_child_with_the_output_does_not_delay_the_exit() {
    each(|sandbar| {
        for script in [format!("{} & echo done", nap(4711)), "yes background-marker & echo done".to_owned()] {
            let run = sandbar.run(&sh(&script));
            assert_eq!(run.code, 0);
            assert!(run.stdout.contains("done\n"));
        }
        sandbar.leaves_nothing(&naps());
        sandbar.leaves_nothing("background-marker");
    });
}

#[test]
fn only_declared_variables_reach_the_command() {
    each(|sandbar| {
        let mut command = sandbar.command(&["exec", "--", "env"]);
        let run = finish(command.env("SANDBAR_CANARY", "leaked").spawn().expect("spawn"));
        assert!(run.stdout.contains("HOME=/home/agent\n"), "{run:?}");
        assert!(!run.stdout.contains("CANARY") && !run.stdout.contains("TMPDIR"), "{run:?}");
        let words = ["exec", "--env", "SANDBAR_CANARY", "--env", "B=x=y z", "--env", "C=", "--", "env"];
        let run = finish(sandbar.command(&words).env("SANDBAR_CANARY", "asked for").spawn().expect("spawn"));
        for line in ["SANDBAR_CANARY=asked for\n", "B=x=y z\n", "C=\n"] {
            assert!(run.stdout.contains(line), "{run:?}");
        }
    });
}

#[test]
fn the_network_is_off_by_default() {
    each(|sandbar| {
        let names = "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '";
        assert_eq!(sandbar.run(&sh(names)).stdout, "lo\n");
        let host = sandbar.run(&["exec", "--network", "host", "--", "readlink", "/proc/self/ns/net"]);
        let own = std::fs::read_link("/proc/self/ns/net").expect("readlink");
        assert_eq!(host.stdout.trim(), own.display().to_string(), "{host:?}");
    });
}

#[test]
fn limits_are_enforced() {
    each(|sandbar| {
        let files = sandbar.run(&["exec", "--open-files", "32", "--", "sh", "-c", "ulimit -n"]);
        assert_eq!(files.stdout, "32\n", "{files:?}");
        let words = ["exec", "--tmp-size", "64k", "--", "sh", "-c", "head -c 128k /dev/zero > /tmp/x"];
        let full = sandbar.run(&words);
        assert!(full.code != 0 && full.stderr.contains("No space left"), "{full:?}");
        let forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait";
        let run = sandbar.run(&["exec", "--pids", "8", "--timeout", "100s", "--", "sh", "-c", forks]);
        assert!(run.code != 0 && run.code != 124, "{run:?}");
    });
}

#[test]
fn a_command_above_a_limit_is_killed_and_the_reason_is_reported() {
    each(|sandbar| {
        let memory = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 50";
        let disk = "i=0; while [ $i -lt 40 ]; do head -c 1000000 /dev/zero >f$i; i=$((i+1)); done; sleep 50";
        let one_file = "exec head -c 40000000 /dev/zero >large";
        let table = [
            (["--memory", "64m"], memory, "memory limit was reached", "--memory"),
            (["--disk", "8m"], disk, "disk limit was reached", "--disk"),
            (["--disk", "8m"], one_file, "disk limit was reached", "--disk"),
        ];
        for ([option, most], script, why, more) in table {
            let run = sandbar.run(&["exec", option, most, "--timeout", "60s", "--", "sh", "-c", script]);
            assert!(run.code > 128 && run.stderr.contains(why) && run.stderr.contains(more), "{run:?}");
        }
        // A host that cannot limit processors refuses the option instead of ignoring it.
        let run = sandbar.run(&["exec", "--cpus", "0.5", "--", "echo", "slowly"]);
        assert!(run.stdout == "slowly\n" || run.stderr.contains("--cpus cannot be held here"), "{run:?}");
    });
}

#[test]
fn a_declared_port_is_reached_from_the_host() {
    each(|sandbar| {
        let server = "import socket\ns = socket.create_server(('127.0.0.1', 8080))\nprint('up', flush=True)\n\
                      c = s.accept()[0]\nc.sendall(b'hello from inside')\nc.close()";
        let words = ["exec", "--port", "8080", "--timeout", "100s", "--", "python3", "-c", server];
        let mut child = sandbar.command(&words).spawn().expect("spawn");
        let mut up = [0; 3];
        child.stdout.as_mut().expect("stdout").read_exact(&mut up).expect("up");
        let mut said = Vec::new();
        let stderr = child.stderr.as_mut().expect("stderr");
        while said.last() != Some(&b'\n') {
            let mut byte = [0];
            stderr.read_exact(&mut byte).expect("read");
            said.push(byte[0]);
        }
        let line = String::from_utf8(said).expect("text");
        let address = line.trim().strip_prefix("port 8080 is at http://").expect("where it is").to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        let mut answer = String::new();
        std::net::TcpStream::connect(&address).expect("connect").read_to_string(&mut answer).expect("read");
        assert_eq!(answer, "hello from inside");
        assert_eq!(finish(child).code, 0);
        assert!(std::net::TcpStream::connect(&address).is_err(), "the port outlives the sandbox");
    });
}
