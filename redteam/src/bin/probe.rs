//! The attacker: `probe [--namespaces] NAME key=value…` tries one attack and prints one line, `NAME outcome errno detail`;
//! `probe --landlock VERSION PROGRAM…` runs a program on a kernel that claims an older Landlock.

#![allow(clippy::print_stdout, reason = "its one line is what it is for")]

use std::process::ExitCode;

use sandbar_redteam::{
    Args, Outcome, attacks, older, storm,
    sys::{self, Ended, call},
};

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--landlock") {
        return with_older_landlock(&words);
    }
    let fresh = words.first().is_some_and(|word| word == "--namespaces");
    if fresh {
        words.remove(0);
    }
    let Some(name) = words.first().cloned() else { return ExitCode::from(2) };
    if name == "--whoami" {
        let ids = [libc::SYS_getuid, libc::SYS_geteuid].map(|number| call(number, []).unwrap_or(-1));
        println!("{} {}", ids[0], ids[1]);
        return ExitCode::SUCCESS;
    }
    let args = Args::parse(words.into_iter().skip(1));
    let run = attacks().find(|attack| attack.name == name).map(|attack| attack.run).or_else(|| storm(&name));
    let Some(run) = run else { return ExitCode::from(2) };
    if fresh {
        return in_fresh_namespaces(|| run(&args), &name);
    }
    println!("{name} {}", run(&args));
    ExitCode::SUCCESS
}

/// `--landlock VERSION PROGRAM ARGUMENT…`.
fn with_older_landlock(words: &[String]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    let [_, version, program, arguments @ ..] = words else { return ExitCode::from(2) };
    if let Err(errno) = older::claim(version.parse().unwrap_or(0)) {
        println!("seccomp: {}", sys::name_of(errno));
        return ExitCode::FAILURE;
    }
    let error = std::process::Command::new(program).args(arguments).exec();
    println!("{program}: {error}");
    ExitCode::FAILURE
}

/// Everything a user may make for itself: all namespaces, all capabilities in them, no filter, no Landlock.
fn in_fresh_namespaces(run: impl FnOnce() -> Outcome, name: &str) -> ExitCode {
    let (uid, gid) = (call(libc::SYS_getuid, []).unwrap_or(0), call(libc::SYS_getgid, []).unwrap_or(0));
    let all = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC;
    if let Err(errno) = call(libc::SYS_unshare, [all as u64]) {
        println!("{name} {}", Outcome::Error(format!("unshare: {}", sys::name_of(errno))));
        return ExitCode::FAILURE;
    }
    let write = |file: &str, text: String| std::fs::write(format!("/proc/self/{file}"), text);
    let mapped = write("setgroups", "deny".to_owned())
        .and_then(|()| write("uid_map", format!("0 {uid} 1\n")))
        .and_then(|()| write("gid_map", format!("0 {gid} 1\n")));
    if let Err(error) = mapped {
        println!("{name} {}", Outcome::Error(format!("map: {error}")));
        return ExitCode::FAILURE;
    }
    let ended = sys::in_child(|| {
        let flags = libc::MS_REC | libc::MS_PRIVATE;
        let _seen_by_the_attack = call(libc::SYS_mount, [0, sys::at(c"/"), 0, flags, 0]);
        let _own_proc = call(libc::SYS_mount, [sys::at(c"proc"), sys::at(c"/proc"), sys::at(c"proc"), 0, 0]);
        let _own_tmp = call(libc::SYS_mount, [sys::at(c"tmpfs"), sys::at(c"/tmp"), sys::at(c"tmpfs"), 0, 0]);
        println!("{name} {}", run());
        0
    });
    if ended == Ok(Ended::Exited(0)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
