//! Finds and kills the descendants of a process from outside, by their parent ids: the fallback when PID 1 of a machine
//! gets no processor time to end them or itself.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::fd::OwnedFd,
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Pause between two rounds of kills.
const PAUSE: Duration = Duration::from_millis(10);

/// Kills a process and its descendants again and again until `ended` reports the end. To end, a process needs processor
/// time, which its descendants may be using up.
pub(crate) fn kill_until(top: i32, ended: impl Fn(Duration) -> bool) {
    loop {
        kill_all(top);
        if ended(PAUSE) {
            return;
        }
    }
}

/// Kills the descendants of a process and then the process itself, children before parents: a process that loses its
/// parent is adopted by another and would no longer be found. Processes started meanwhile are left to the next call.
fn kill_all(top: i32) {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for (pid, parent) in parents() {
        children.entry(parent).or_default().push(pid);
    }
    let mut order = vec![top];
    let mut next = 0;
    while let Some(parent) = order.get(next) {
        order.extend(children.remove(parent).unwrap_or_default());
        next += 1;
    }
    let members: HashSet<i32> = order.iter().copied().collect();
    for pid in order.into_iter().rev() {
        kill(pid, |parent| pid == top || members.contains(&parent));
    }
}

/// Kills a process if its parent is still as expected: the pid may have been reused.
fn kill(pid: i32, is_right: impl Fn(i32) -> bool) {
    let held: Option<OwnedFd> = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    if let Some(held) = held
        && parent_of(pid).is_some_and(is_right)
    {
        let _ended_already = pidfd_send_signal(held, Signal::KILL);
    }
}

/// The direct children of a process.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    parents().into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect()
}

/// Every visible process with its parent.
fn parents() -> Vec<(i32, i32)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parent_of(pid)?))).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; only numbers follow the last parenthesis.
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
        // Stopped processes cannot help to end themselves.
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
