//! Group D, scheduling: slowing down, pinning or starving the guest, or at the level `landlock` a process of the host's.

use libc::{EACCES, EINVAL, EPERM};

use crate::{
    Args, Attack,
    Control::Host,
    Outcome,
    sys::{addr, addr_mut, call, close, open},
};

/// A user without processes: everything of a real one would be changed for good.
pub(crate) const NO_USER: u64 = 424_242;
pub(crate) const LEAST_IO_PRIORITY: u64 = 2 << 13 | 7;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "D31.idle-pid1",
        promise: "The guest cannot be made to wait until no other process wants the processor.",
        control: Host,
        expect: &[EPERM],
        run: |a| {
            let priority = 0i32;
            let idle = libc::SCHED_IDLE as u64;
            Outcome::of(call(libc::SYS_sched_setscheduler, [a.number("pid") as u64, idle, addr(&priority)]))
        },
    },
    Attack {
        name: "D31.idle-pid1-by-attributes",
        promise: "Nor by the newer call, with or without limits on its share.",
        control: Host,
        expect: &[EPERM],
        run: |a| {
            // Size and policy, then flags, nice, priority and three times of no policy that is asked for.
            let attributes = [48u32, libc::SCHED_IDLE as u32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            Outcome::of(call(libc::SYS_sched_setattr, [a.number("pid") as u64, addr(&attributes), 0]))
        },
    },
    Attack {
        name: "D31.parameters-of-pid1",
        promise: "Nor its parameters changed.",
        control: Host,
        expect: &[EPERM],
        run: |a| {
            let priority = 0i32;
            Outcome::of(call(libc::SYS_sched_setparam, [a.number("pid") as u64, addr(&priority)]))
        },
    },
    Attack {
        name: "D31.pin-pid1",
        promise: "The guest cannot be pinned to a processor.",
        control: Host,
        expect: &[EPERM],
        run: pin,
    },
    Attack {
        name: "D31.nice-pid1",
        promise: "The guest's priority cannot be lowered.",
        control: Host,
        expect: &[EPERM],
        run: |a| nice(libc::PRIO_PROCESS as u64, a.number("pid") as u64),
    },
    Attack {
        name: "D31.nice-group-of-pid1",
        promise: "Nor as a part of its process group.",
        control: Host,
        expect: &[EPERM],
        run: |a| nice(libc::PRIO_PGRP as u64, a.number("pid") as u64),
    },
    Attack {
        name: "D31.nice-everything-of-a-user",
        promise: "Nor as one of its user's processes.",
        control: Host,
        expect: &[EPERM],
        run: |_| nice(libc::PRIO_USER as u64, NO_USER),
    },
    Attack {
        name: "D31.io-priority-of-pid1",
        promise: "The guest cannot be made the last to use a disk.",
        control: Host,
        expect: &[EPERM],
        run: |a| Outcome::of(call(libc::SYS_ioprio_set, [1, a.number("pid") as u64, LEAST_IO_PRIORITY])),
    },
    Attack {
        name: "D31.io-priority-of-a-group",
        promise: "Nor as a part of its process group.",
        control: Host,
        expect: &[EPERM],
        run: |a| Outcome::of(call(libc::SYS_ioprio_set, [2, a.number("pid") as u64, LEAST_IO_PRIORITY])),
    },
    Attack {
        name: "D31.io-priority-of-a-user",
        promise: "Nor as one of its user's processes.",
        control: Host,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_ioprio_set, [3, NO_USER, LEAST_IO_PRIORITY])),
    },
    Attack {
        name: "D31.share-a-core",
        promise: "A command cannot decide which processes share a processor core.",
        control: Host,
        expect: &[EINVAL],
        run: |_| {
            const PR_SCHED_CORE: u64 = 62;
            const CREATE: u64 = 1;
            Outcome::of(call(libc::SYS_prctl, [PR_SCHED_CORE, CREATE, 0, 0, 0]))
        },
    },
    Attack {
        name: "D31.slack-of-pid1",
        promise: "The guest's timers cannot be made late.",
        control: Host,
        expect: &[EACCES, EPERM],
        run: |a| write_about(a, "timerslack_ns", "4000000000"),
    },
    Attack {
        name: "D31.group-share-of-pid1",
        promise: "The share of the guest's scheduling group cannot be lowered.",
        control: Host,
        expect: &[EACCES, EPERM],
        run: |a| write_about(a, "autogroup", "19"),
    },
    Attack {
        name: "D31.out-of-memory-score-of-pid1",
        promise: "The guest cannot be made the first to be killed.",
        control: Host,
        expect: &[EACCES, EPERM],
        run: |a| write_about(a, "oom_score_adj", "900"),
    },
];

/// To the processors it may use anyway: harmless, and the same right as one of them only.
fn pin(a: &Args) -> Outcome {
    let pid = a.number("pid") as u64;
    let mut processors = [0u64; 128];
    let size = size_of_val(&processors) as u64;
    let pinned = call(libc::SYS_sched_getaffinity, [pid, size, addr_mut(&mut processors)])
        .and_then(|used| call(libc::SYS_sched_setaffinity, [pid, used as u64, addr(&processors)]));
    Outcome::of(pinned)
}

pub(crate) fn nice(kind: u64, target: u64) -> Outcome {
    Outcome::of(call(libc::SYS_setpriority, [kind, target, 19]))
}

pub(crate) fn write_about(a: &Args, file: &str, text: &str) -> Outcome {
    let written = open(&format!("/proc/{}/{file}", a.get("pid")), libc::O_WRONLY, 0).and_then(|fd| {
        let written = call(libc::SYS_write, [fd as u64, addr(text.as_bytes()), text.len() as u64]);
        close(fd);
        written
    });
    Outcome::of(written)
}
