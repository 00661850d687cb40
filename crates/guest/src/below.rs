//! The processes below another one, found by their parents and killed from outside: what is left to do when PID 1 of a
//! machine gets no processor to end them, or itself.

use std::{collections::HashSet, fs, os::fd::OwnedFd, thread, time::Duration};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How long what was killed may take before it is looked at again.
const PAUSE: Duration = Duration::from_millis(10);

/// Kills a process and everything below it, again and again, until it is reported to have ended. To end takes a moment of
/// the processor, which what runs below it may not leave it.
pub(crate) fn kill_until(top: i32, ended: impl Fn(Duration) -> bool) {
    loop {
        kill_all(top);
        if ended(PAUSE) {
            return;
        }
    }
}

fn kill_all(top: i32) {
    let mut members = HashSet::from([top]);
    kill(top, |_parent| true);
    loop {
        let before = members.len();
        // Children mostly have larger numbers than their parents; the others are found in the next look.
        for (pid, parent) in parents() {
            if members.contains(&parent) && members.insert(pid) {
                kill(pid, |parent| members.contains(&parent));
            }
        }
        if members.len() == before {
            return;
        }
    }
}

/// Kills a process if its parent is still the right one: its number may have become another's.
fn kill(pid: i32, is_right: impl Fn(i32) -> bool) {
    let held: Option<OwnedFd> = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(held) = held
        && parent_of(pid).is_some_and(is_right)
    {
        let _ended_already = pidfd_send_signal(held, Signal::KILL);
    }
}

/// The processes whose parent is this one.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    parents().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// Every process that can be seen, with its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; what follows the last one is numbers.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Kills the children of this process until there are none.
pub(crate) fn end_children(reap: impl Fn()) {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    for _ in 0..10_000 {
        let children = children_of(me);
        if children.is_empty() {
            return;
        }
        for pid in children {
            kill(pid, |parent| parent == me);
        }
        reap();
        thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::process::CommandExt as _,
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn everything_below_a_process_is_killed_and_nothing_beside_it() {
        let start = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).process_group(0).stdin(Stdio::null()).spawn().expect("a shell")
        };
        let mut beside = start("exec sleep 1000.0071");
        let mut top = start("(sleep 1000.0071 & sleep 1000.0072 & wait) & sleep 1000.0073 & wait");
        let pid = i32::try_from(top.id()).expect("a number");
        let all = || {
            let mut below = children_of(pid);
            below.extend(below.clone().into_iter().flat_map(children_of));
            below
        };
        while all().len() < 4 {
            thread::sleep(Duration::from_millis(5));
        }
        let below = all();
        // Stopped, nothing of it can do anything for its own end.
        below.iter().chain([&pid]).for_each(|pid| crate::sys::process::signal(*pid, libc::SIGSTOP));
        kill_all(pid);
        top.wait().expect("it ended");
        for pid in below {
            let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            while !state().is_empty() && !state().contains(") Z ") {
                thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(beside.try_wait().expect("wait").is_none(), "it is not below");
        beside.kill().expect("kill");
        beside.wait().expect("it ended");
    }
}
