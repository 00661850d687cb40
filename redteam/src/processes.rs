//! Group D: reaching other processes, the guest first of all.

use libc::{EACCES, ENOSYS, EPERM, ESRCH};

use crate::{
    Args, Attack,
    Control::{Host, Namespaces},
    Outcome,
    sys::{Ended, addr, addr_mut, at, call, in_child, kill, open, pause_ms},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "D25.signal-a-host-process",
        promise: "A process of the host cannot be signalled.",
        control: Host,
        expect: &[ESRCH],
        run: |a| Outcome::of(kill(a.number("hostpid") as i32, 0)),
    },
    Attack {
        name: "D25.limit-a-host-process",
        promise: "A process of the host cannot be limited to death.",
        control: Host,
        expect: &[ESRCH, EPERM],
        run: limit_other,
    },
    Attack {
        name: "D25.sweep-all-pids",
        promise: "No process outside the machine answers to any number.",
        control: Host,
        expect: &[],
        run: sweep,
    },
    Attack {
        name: "D26.kill-pid1",
        promise: "The guest survives SIGKILL from inside.",
        control: Host,
        expect: &[],
        run: |a| strike(a, "victim1", libc::SIGKILL),
    },
    Attack {
        name: "D26.stop-pid1",
        promise: "The guest survives SIGSTOP from inside.",
        control: Host,
        expect: &[],
        run: |a| strike(a, "victim2", libc::SIGSTOP),
    },
    Attack {
        name: "D27.trace-pid1",
        promise: "The guest cannot be traced.",
        control: Host,
        expect: &[EPERM],
        run: |a| {
            const PTRACE_SEIZE: u64 = 0x4206;
            Outcome::of(call(libc::SYS_ptrace, [PTRACE_SEIZE, a.number("pid") as u64, 0, 0]))
        },
    },
    Attack {
        name: "D27.trace-a-sibling",
        promise: "No process can be traced, which keeps the filter from being walked around.",
        control: Host,
        expect: &[EPERM],
        run: trace_child,
    },
    Attack {
        name: "D27.read-memory-of-pid1",
        promise: "The guest's memory cannot be copied out.",
        control: Host,
        expect: &[EPERM],
        run: |a| move_memory(a, libc::SYS_process_vm_readv),
    },
    Attack {
        name: "D27.write-memory-of-pid1",
        promise: "The guest's memory cannot be written.",
        control: Host,
        expect: &[EPERM],
        run: |a| move_memory(a, libc::SYS_process_vm_writev),
    },
    Attack {
        name: "D28.steal-a-descriptor",
        promise: "The guest's descriptors cannot be taken.",
        control: Host,
        expect: &[EPERM],
        run: |a| match call(libc::SYS_pidfd_open, [a.number("pid") as u64, 0]) {
            Ok(pidfd) => Outcome::of(call(libc::SYS_pidfd_getfd, [pidfd as u64, 0, 0])),
            Err(errno) => Outcome::of(Err::<(), _>(errno)),
        },
    },
    Attack {
        name: "D31.real-time",
        promise: "A command cannot take the processor for itself.",
        control: Host,
        expect: &[EPERM],
        run: |_| {
            let priority = 1i32;
            Outcome::of(call(libc::SYS_sched_setscheduler, [0, libc::SCHED_FIFO as u64, addr(&priority)]))
        },
    },
    Attack {
        name: "D31.nice",
        promise: "A command cannot raise its priority.",
        control: Host,
        expect: &[EPERM, EACCES],
        run: |_| Outcome::of(call(libc::SYS_setpriority, [0, 0, (-10i64) as u64])),
    },
    Attack {
        name: "D31.out-of-memory-immunity",
        promise: "A command cannot make itself the last to be killed.",
        control: Host,
        expect: &[EACCES, EPERM],
        run: |_| match open("/proc/self/oom_score_adj", libc::O_WRONLY, 0) {
            Ok(fd) => Outcome::of(call(libc::SYS_write, [fd as u64, at(c"-1000"), 5])),
            Err(errno) => Outcome::of(Err::<(), _>(errno)),
        },
    },
    Attack {
        name: "D32.escape-the-deadline-by-tag",
        promise: "A command cannot take off the tag by which its tree is killed (prlimit).",
        control: Host,
        expect: &[EPERM],
        run: |_| tag(u64::from(libc::RLIMIT_LOCKS), Words::Plain),
    },
    Attack {
        name: "D32.tag-with-high-bits",
        promise: "Nor with high bits in the resource, which the kernel ignores.",
        control: Host,
        expect: &[EPERM],
        run: |_| tag(1 << 32 | u64::from(libc::RLIMIT_LOCKS), Words::Plain),
    },
    Attack {
        name: "D32.tag-with-guessed-token",
        promise: "Nor by guessing what the guest knows.",
        control: Host,
        expect: &[EPERM],
        run: |_| tag(u64::from(libc::RLIMIT_LOCKS), Words::Guesses),
    },
    Attack {
        name: "D32.tag-by-setrlimit",
        promise: "Nor by the older call.",
        control: Host,
        expect: &[EPERM, ENOSYS],
        run: |_| {
            let limit = [1u64 << 40, 1 << 40];
            #[cfg(target_arch = "x86_64")]
            return Outcome::of(call(libc::SYS_setrlimit, [u64::from(libc::RLIMIT_LOCKS), addr(&limit)]));
            #[cfg(not(target_arch = "x86_64"))]
            return Outcome::of(call(libc::SYS_prlimit64, [0, u64::from(libc::RLIMIT_LOCKS), addr(&limit), 0]));
        },
    },
    Attack {
        name: "D32.tag-of-another",
        promise: "Nor from another process.",
        control: Host,
        expect: &[EPERM],
        run: |_| match in_child(|| {
            let limit = [1u64 << 40, 1 << 40];
            let parent = u64::from(std::os::unix::process::parent_id());
            call(libc::SYS_prlimit64, [parent, u64::from(libc::RLIMIT_LOCKS), addr(&limit), 0]).err().unwrap_or(0)
        }) {
            Ok(Ended::Exited(0)) => Outcome::of(Ok(())),
            Ok(Ended::Exited(errno)) => Outcome::of(Err::<(), _>(errno)),
            other => Outcome::Error(format!("{other:?}")),
        },
    },
    Attack {
        name: "D33.kill-everything",
        promise: "Killing every process one can see ends nothing of the host's.",
        control: Namespaces,
        expect: &[],
        run: kill_everything,
    },
];

fn limit_other(a: &Args) -> Outcome {
    let mut limit = [0u64; 2];
    let pid = a.number("hostpid") as u64;
    let what = u64::from(libc::RLIMIT_SIGPENDING);
    match call(libc::SYS_prlimit64, [pid, what, 0, addr_mut(&mut limit)]) {
        // Set to what it is: harmless, and the same right as setting RLIMIT_CPU to nothing.
        Ok(_) => Outcome::of(call(libc::SYS_prlimit64, [pid, what, addr(&limit), 0])),
        Err(errno) => Outcome::of(Err::<(), _>(errno)),
    }
}

/// More processes than a fresh machine can have.
fn sweep(_: &Args) -> Outcome {
    let mine = std::process::id() as i32;
    let parent = std::os::unix::process::parent_id() as i32;
    // An error other than ESRCH shows that the process exists.
    let alive = |pid: i32| !matches!(kill(pid, 0), Err(ESRCH));
    let strangers = (2..100_000).filter(|pid| ![mine, parent].contains(pid) && alive(*pid)).count();
    if strangers > 20 {
        Outcome::Reached(format!("{strangers} processes answer"))
    } else {
        Outcome::Refused(ESRCH, format!("{strangers} of the machine's own"))
    }
}

fn strike(a: &Args, victim: &str, signal: i32) -> Outcome {
    let pid = a.number(victim) as i32;
    if let Err(errno) = kill(pid, signal) {
        return Outcome::Refused(errno, crate::sys::name_of(errno));
    }
    // On the host it works, but a busy host may be long about it.
    let mut looks = if a.get("inside").is_empty() { 600 } else { 1 };
    loop {
        pause_ms(100);
        looks -= 1;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        match state {
            None | Some('Z' | 'T' | 'X') => return Outcome::Reached(format!("{state:?}")),
            Some(state) if looks == 0 => return Outcome::Refused(0, format!("survived as {state}")),
            Some(_) => {}
        }
    }
}

fn trace_child(_: &Args) -> Outcome {
    const PTRACE_SEIZE: u64 = 0x4206;
    let Ok(child) = crate::sys::fork() else { return Outcome::Error("no fork".to_owned()) };
    if child == 0 {
        pause_ms(600_000);
        crate::sys::exit(0);
    }
    let traced = call(libc::SYS_ptrace, [PTRACE_SEIZE, child as u64, 0, 0]);
    let _own_child = kill(child, libc::SIGKILL);
    let _reaped = crate::sys::wait(child);
    Outcome::of(traced)
}

fn move_memory(a: &Args, number: libc::c_long) -> Outcome {
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", a.get("pid"))).unwrap_or_default();
    let writable = maps.lines().find(|line| line.contains("rw-p")).and_then(|line| line.split('-').next());
    let remote = writable.and_then(|start| u64::from_str_radix(start, 16).ok()).unwrap_or(0x40_0000);
    let mut byte = [0u8; 1];
    if number == libc::SYS_process_vm_writev {
        // What is there is written back.
        let (local, far) = ([addr_mut(&mut byte), 1], [remote, 1]);
        let _zero_if_refused =
            call(libc::SYS_process_vm_readv, [a.number("pid") as u64, addr(&local), 1, addr(&far), 1, 0]);
    }
    let (local, far) = ([addr_mut(&mut byte), 1], [remote, 1]);
    Outcome::of(call(number, [a.number("pid") as u64, addr(&local), 1, addr(&far), 1, 0]))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Plain,
    Guesses,
}

fn tag(resource: u64, words: Words) -> Outcome {
    let limit = [1u64 << 40, 1 << 40];
    let mut last = Outcome::Error("never tried".to_owned());
    let tries = if words == Words::Plain { 1 } else { 1000 };
    for guess in 0..tries {
        let token = if words == Words::Plain { [0, 0] } else { [0x9E37_79B9_7F4A_7C15u64.wrapping_mul(guess), !guess] };
        last = Outcome::of(call(libc::SYS_prlimit64, [0, resource, addr(&limit), 0, token[0], token[1]]));
        if matches!(last, Outcome::Reached(_)) {
            return last;
        }
    }
    last
}

/// Only the runner can tell: it looks at its canary afterwards. In fresh namespaces a neighbour dies, so the call works.
fn kill_everything(a: &Args) -> Outcome {
    let Ok(neighbour) = crate::sys::fork() else { return Outcome::Error("no fork".to_owned()) };
    if neighbour == 0 {
        pause_ms(10_000);
        crate::sys::exit(0);
    }
    let killed = kill(-1, libc::SIGKILL);
    let ended = crate::sys::wait(neighbour);
    match (killed, a.get("inside")) {
        (Ok(_), "") => Outcome::Reached(format!("{ended:?}")),
        (Ok(_), _) => Outcome::Refused(0, "only the machine's own".to_owned()),
        (Err(errno), _) => Outcome::of(Err::<(), _>(errno)),
    }
}
