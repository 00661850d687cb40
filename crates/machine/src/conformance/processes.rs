//! Promises about a command: what it is given and how it ends.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
};

use futures::future::join_all;

use super::rig::{Ran, Rig, shell, soon};
use crate::{Command, ExitReason, MachineError, MachinePath, MachineSpec, SandboxClient, Target, TerminalSize, once};

/// Arguments are an array: spaces, quotes, empty ones and bytes that are no text arrive as they were given.
pub async fn arguments_arrive_exactly_as_given(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let given: [&[u8]; 8] = [b"two words", b"'\"`$HOME\\", b"", b"new\nline", b"\xff\xfe", b"*", b"-n", b"; exit 3"];
    let mut argv: Vec<OsString> = ["sh", "-c", r#"for a; do printf '%s\0' "$a"; done"#, "sh"].map(Into::into).into();
    argv.extend(given.iter().map(|argument| OsStr::from_bytes(argument).to_owned()));
    let ran = rig.run(Command::new(argv)).await;
    let expected: Vec<u8> = given.iter().flat_map(|argument| [argument, b"\0".as_slice()].concat()).collect();
    assert_eq!(ran.stdout, expected);
}

/// No program, or a NUL inside an argument, is an error before anything runs.
pub async fn a_command_without_a_program_is_refused(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let empty = Command::new(Vec::<OsString>::new());
    for command in [empty, Command::new(["echo", "a\0b"])] {
        let refused = soon("spawn", rig.machine.spawn(command)).await.expect_err("it is refused");
        assert_eq!(refused.code(), "invalid", "{refused}");
    }
}

async fn variables(rig: &Rig, command: Command) -> BTreeMap<String, String> {
    let ran = rig.run(command).await;
    assert!(ran.exit.success(), "{ran:?}");
    let text = ran.text();
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

/// The harness's variables, which hold its keys, stay with the harness.
pub async fn nothing_of_the_harness_environment_reaches_a_command(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let inside = variables(&rig, Command::new(["env"])).await;
    // Cargo and rustup set these for tests; a machine has no reason to have any of them.
    // tidy: allow(env) — the test looks for exactly these
    let ours = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in ours.filter(|name| name.starts_with("CARGO") || name.starts_with("RUST")) {
        assert!(!inside.contains_key(&name), "{name} reached the command");
    }
}

/// The machine's variables are set for every command, and the command's own win over them.
pub async fn declared_variables_reach_every_command(client: &dyn SandboxClient) {
    let env = [("CITY", "Kiel"), ("RIVER", "a b=c")];
    let rig = Rig::with(client, MachineSpec::default().env(env)).await;
    let inside = variables(&rig, Command::new(["env"]).env("CITY", "Bonn").env("EMPTY", "")).await;
    let of = |name: &str| inside.get(name).map(String::as_str);
    assert_eq!((of("CITY"), of("RIVER"), of("EMPTY")), (Some("Bonn"), Some("a b=c"), Some("")));
    let ran = rig.run(shell("printf %s \"$BYTES\"").env("BYTES", OsString::from_vec(vec![0xff, b'=', 0xfe]))).await;
    assert_eq!(ran.stdout, b"\xff=\xfe".as_slice());
}

/// Programs find a home, a path and a language, and are asked for plain output without pagers.
pub async fn a_neutral_environment_is_set(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let inside = variables(&rig, Command::new(["env"])).await;
    assert_eq!(inside.get("PAGER").map(String::as_str), Some("cat"), "{inside:?}");
    for name in ["NO_COLOR", "LANG", "HOME", "PATH"] {
        assert!(inside.get(name).is_some_and(|value| !value.is_empty()), "{name} in {inside:?}");
    }
}

/// `HOME` is a directory that tools can keep their files in.
pub async fn the_home_is_writable(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.sh("cd && echo x >.sandbar-conformance && rm .sandbar-conformance").await;
}

/// Without a word about it, a command starts in the workspace.
pub async fn a_command_starts_in_the_workspace(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    assert_eq!(rig.sh("pwd").await.text().trim_end(), rig.machine.features().workspace.to_string());
}

/// A command starts in the directory it names.
pub async fn a_command_starts_where_it_is_told_to(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    rig.make_dir("deep down/there").await;
    rig.put("deep down/there/sign", "here").await;
    let ran = rig.run(Command::new(["cat", "sign"]).cwd(rig.path("deep down/there"))).await;
    assert_eq!(ran.stdout, "here");
    assert_eq!(rig.run(Command::new(["pwd"]).cwd(MachinePath::root())).await.text(), "/\n");
}

/// A working directory that is missing, or is none, is an error of the request, not an exit of the command.
pub async fn a_missing_working_directory_is_an_error(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let spawned = soon("spawn", rig.machine.spawn(Command::new(["true"]).cwd(rig.path("missing")))).await;
    let MachineError::NotFound(path) = spawned.expect_err("there is no such directory") else { panic!("not found") };
    assert_eq!(path, rig.path("missing"));
    rig.put("file", "").await;
    let spawned = soon("spawn", rig.machine.spawn(Command::new(["true"]).cwd(rig.path("file")))).await;
    spawned.expect_err("a file is no directory");
}

/// Every exit code arrives as it was.
pub async fn exit_codes_arrive(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for code in [0, 1, 42, 126, 127, 130, 255] {
        let ran = rig.run(shell(&format!("exit {code}"))).await;
        assert_eq!((ran.exit.code, ran.exit.reason), (code, ExitReason::Exited));
    }
}

/// A command ended by a signal has 128 and the signal's number as its code.
pub async fn a_signal_is_128_and_its_number(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for number in [1, 9, 15] {
        let ran = rig.run(shell(&format!("kill -{number} $$"))).await;
        assert_eq!((ran.exit.code, ran.exit.reason), (128 + number, ExitReason::Signaled));
    }
}

fn names_the_program(ran: &Ran, program: &str) {
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(said.contains(program), "standard error should name {program}: {said:?}");
}

/// A program that does not exist exits 127 and standard error says which.
pub async fn a_missing_program_exits_127(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    for program in ["no-such-program", "/no/such/program"] {
        let ran = rig.run(Command::new([program])).await;
        assert_eq!((ran.exit.code, ran.exit.reason), (127, ExitReason::Exited));
        names_the_program(&ran, program);
    }
}

/// A file without the permission to be executed exits 126 and standard error says which.
pub async fn what_cannot_be_executed_exits_126(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let target = rig.at("plain-text").mode(0o644);
    soon("write", rig.machine.write(&target, once("#!/bin/sh\nexit 0\n"))).await.expect("the file is written");
    let ran = rig.run(Command::new([target.path.as_os_str()])).await;
    assert_eq!((ran.exit.code, ran.exit.reason), (126, ExitReason::Exited));
    names_the_program(&ran, "plain-text");
    let made = rig.at("script").mode(0o755);
    soon("write", rig.machine.write(&made, once("#!/bin/sh\nexit 7\n"))).await.expect("the file is written");
    assert_eq!(rig.run(Command::new([made.path.as_os_str()])).await.exit.code, 7);
}

/// A command that asks for a terminal or for input where there is none is not run without it.
pub async fn what_a_machine_lacks_is_refused_by_name(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let features = rig.machine.features();
    let asked =
        [(features.pty, shell("touch ran").tty(TerminalSize::default())), (features.stdin, shell("touch ran").stdin())];
    for (can, command) in asked {
        if !can {
            let refused = soon("spawn", rig.machine.spawn(command)).await.expect_err("it lacks that");
            assert_eq!(refused.code(), "unsupported");
            assert_eq!(rig.stat("ran").await, None);
        }
    }
}

/// A machine with several users runs a command as the user that the command names; any other machine refuses the command and
/// never runs it as a different user.
pub async fn a_command_runs_as_its_user_or_not_at_all(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let unknown = Command::new(["touch", "ran"]).user("no-such-user");
    assert!(soon("spawn", rig.machine.spawn(unknown)).await.is_err());
    assert_eq!(rig.stat("ran").await, None);
    if rig.machine.features().users {
        assert_eq!(rig.run(Command::new(["id", "-u"]).user("root")).await.text(), "0\n");
        return;
    }
    let target = Target::from(rig.path("file")).user("no-such-user");
    let refused = rig.put_fails(&target).await;
    assert!(matches!(refused.code(), "unsupported" | "invalid" | "not_found" | "denied"), "{refused}");
}

/// Many commands at once do not mix their output.
pub async fn a_hundred_commands_run_at_once(client: &dyn SandboxClient) {
    let rig = Rig::new(client).await;
    let all = (0..100).map(|number| {
        let rig = &rig;
        async move { (number, rig.run(shell(&format!("echo {number}; echo error {number} >&2; exit {number}"))).await) }
    });
    for (number, ran) in join_all(all).await {
        assert_eq!((ran.text(), ran.exit.code), (format!("{number}\n"), number));
        assert_eq!(ran.stderr, format!("error {number}\n"));
    }
}
