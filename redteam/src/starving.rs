//! Leaving PID 1 no processor: every way to slow it down or pin it, and then processes that never stop to compute.

use std::time::{Duration, Instant};

use crate::{
    Args, Outcome,
    scheduling::{LEAST_IO_PRIORITY, NO_USER, nice, write_about},
    storms::Storm,
    sys::{addr, addr_mut, call, close, exit, fork, open},
};

pub(crate) const STORMS: &[Storm] = &[("starve", starve), ("work", work)];

/// A way to take a process's share of the processor away, and its name.
type Way = (&'static str, fn(&Args) -> Outcome);

const WAYS: &[Way] = &[
    // A little only: it slows this process down, too.
    ("nice-user", |a| Outcome::of(call(libc::SYS_setpriority, [libc::PRIO_USER as u64, user(a), 1]))),
    ("idle", |a| {
        let priority = 0i32;
        Outcome::of(call(libc::SYS_sched_setscheduler, [target(a), libc::SCHED_IDLE as u64, addr(&priority)]))
    }),
    ("idle-by-attributes", |a| {
        // Size, policy, flags (two words), nice, and then what this policy does not use.
        let attributes = [48u32, libc::SCHED_IDLE as u32, 0, 0, 19, 0, 0, 0, 0, 0, 0, 0];
        Outcome::of(call(libc::SYS_sched_setattr, [target(a), addr(&attributes), 0]))
    }),
    ("pin", |a| Outcome::of(pin(target(a)))),
    ("nice", |a| nice(libc::PRIO_PROCESS as u64, target(a))),
    ("nice-group", |a| nice(libc::PRIO_PGRP as u64, target(a))),
    ("io-priority", |a| Outcome::of(call(libc::SYS_ioprio_set, [1, target(a), LEAST_IO_PRIORITY]))),
    ("io-priority-group", |a| Outcome::of(call(libc::SYS_ioprio_set, [2, target(a), LEAST_IO_PRIORITY]))),
    ("io-priority-user", |a| Outcome::of(call(libc::SYS_ioprio_set, [3, user(a), LEAST_IO_PRIORITY]))),
    ("timer-slack", |a| write_about(a, "timerslack_ns", "4000000000")),
    ("autogroup", |a| write_about(a, "autogroup", "19")),
    ("processor-time", |a| {
        let limit = [1u64, 1];
        Outcome::of(call(libc::SYS_prlimit64, [target(a), u64::from(libc::RLIMIT_CPU), addr(&limit), 0]))
    }),
    ("control-groups", |_| control_groups()),
];

fn target(a: &Args) -> u64 {
    a.number("pid") as u64
}

/// On the host one without processes: everything of a real user would be changed for good.
fn user(a: &Args) -> u64 {
    if a.get("inside").is_empty() { NO_USER } else { call(libc::SYS_getuid, []).unwrap_or_default() as u64 }
}

/// To one of the processors that this process may use: a target, and then oneself beside it.
fn pin(pid: u64) -> Result<i64, i32> {
    let mut processors = [0u64; 128];
    let size = size_of_val(&processors) as u64;
    let used = call(libc::SYS_sched_getaffinity, [0, size, addr_mut(&mut processors)])? as usize / 8;
    let first = processors.iter().position(|word| *word != 0).unwrap_or(0);
    let lowest = processors[first] & processors[first].wrapping_neg();
    processors = [0; 128];
    processors[first] = lowest;
    call(libc::SYS_sched_setaffinity, [pid, 8 * used as u64, addr(&processors)])
}

/// Opens, and does not write, what decides about shares in any group in sight.
fn control_groups() -> Outcome {
    let files = ["cpu.shares", "cpu.weight", "cpu.idle", "cpu.max", "cgroup.procs", "cgroup.freeze", "freezer.state"];
    let mut last = libc::ENOENT;
    for dir in ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/freezer"] {
        for file in files {
            match open(&format!("{dir}/{file}"), libc::O_WRONLY, 0) {
                Ok(fd) => {
                    close(fd);
                    return Outcome::Reached(format!("{dir}/{file}"));
                }
                Err(errno) if errno != libc::ENOENT => last = errno,
                Err(_) => {}
            }
        }
    }
    Outcome::of(Err::<(), _>(last))
}

/// Tries every way on `pid`, if there is one, and then computes in `count` processes for `seconds`. Says which ways worked
/// when all of them are under way.
fn starve(a: &Args) -> Outcome {
    let is_aimed = target(a) > 0;
    let ways = WAYS.iter().filter(|(_, run)| is_aimed && matches!(run(a), Outcome::Reached(_)));
    let worked: Vec<&str> = ways.map(|(name, _)| *name).collect();
    if worked.contains(&"pin") {
        let _beside_it = pin(0);
    }
    let until = Instant::now() + Duration::from_secs(a.number("seconds").max(1) as u64);
    let mut started = 0;
    for _ in 0..a.number("count") {
        match fork() {
            Ok(0) => {
                compute(|| Instant::now() >= until);
                exit(0);
            }
            Ok(_) => started += 1,
            Err(_) => {}
        }
    }
    let words = format!("starving beside {started}; ways: {}.\n", worked.join(" "));
    let _nobody_listens = call(libc::SYS_write, [1, addr(words.as_bytes()), words.len() as u64]);
    compute(|| Instant::now() >= until);
    Outcome::Refused(0, "time is up".to_owned())
}

/// Uses a processor until it is told that it is enough, and asks seldom.
fn compute(is_enough: impl Fn() -> bool) {
    while !is_enough() {
        for _ in 0..100_000 {
            std::hint::spin_loop();
        }
    }
}

/// What a supervisor is to the attack: for every byte of its input it computes for `ms` milliseconds and says so.
fn work(a: &Args) -> Outcome {
    let mut byte = [0u8; 1];
    while call(libc::SYS_read, [0, addr_mut(&mut byte), 1]) == Ok(1) {
        let start = processor_time();
        compute(|| processor_time() - start >= a.number("ms"));
        let _nobody_listens = call(libc::SYS_write, [1, addr(b"."), 1]);
    }
    Outcome::Refused(0, "no more".to_owned())
}

/// What this process has used, in milliseconds.
fn processor_time() -> i64 {
    let mut time = [0i64; 2];
    let _zero_if_not = call(libc::SYS_clock_gettime, [libc::CLOCK_PROCESS_CPUTIME_ID as u64, addr_mut(&mut time)]);
    time[0] * 1000 + time[1] / 1_000_000
}
