//! Filter rules for processes: create them without namespaces, limit and schedule one's own, and never touch PID 1.

use libc::{EINVAL, ENOSYS, EPERM};

use super::{
    Walls,
    assembler::{Assembler, Field, Test},
};
use crate::sys::security::Token;

/// `clone` flags that make namespaces.
const NAMESPACES: u32 = 0x7E02_0000;
/// The resource limit that stores a command's tag.
pub(super) const TAG: u32 = libc::RLIMIT_LOCKS;
/// Core scheduling decides which tasks share a processor core, on the whole host.
pub(super) const PR_SCHED_CORE: u32 = 62;

/// `setpriority` numbers its kinds of target from 0, `ioprio_set` from 1: process, process group, user.
const PRIO_PGRP: u32 = 1;
const IOPRIO_WHO_PGRP: u32 = 2;

pub(super) fn namespaces(code: &mut Assembler) {
    code.call(libc::SYS_clone, |code| {
        code.load(Field::Low(0));
        code.when(Test::AnyBit(NAMESPACES), |code| code.fail(EPERM));
    });
    // clone3 has its flags in memory, where a filter cannot read them; programs fall back to clone.
    code.calls(&[libc::SYS_clone3], |code| code.fail(ENOSYS));
    code.call(libc::SYS_personality, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(0), Assembler::allow);
        code.when(Test::Equal(u32::MAX), Assembler::allow);
        code.fail(EPERM);
    });
}

/// Only the guest may set tags, and a command may change only its own limits.
pub(super) fn limits(code: &mut Assembler, token: Token) {
    code.call(libc::SYS_prlimit64, |code| {
        // Changing another process's limits can kill it (RLIMIT_CPU): the guest, and without a PID namespace any
        // process of the host's user.
        code.load(Field::Low(0));
        code.unless(Test::Equal(0), |code| {
            code.load(Field::Low(2));
            code.unless(Test::Equal(0), |code| code.fail(EPERM));
            code.load(Field::High(2));
            code.unless(Test::Equal(0), |code| code.fail(EPERM));
        });
        code.load(Field::Low(1));
        code.unless(Test::Equal(TAG), Assembler::allow);
        code.load(Field::Low(2));
        code.unless(Test::Equal(0), |code| code.guest_only(token, EPERM));
        code.load(Field::High(2));
        code.unless(Test::Equal(0), |code| code.guest_only(token, EPERM));
    });
    #[cfg(target_arch = "x86_64")]
    code.call(libc::SYS_setrlimit, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(TAG), |code| code.fail(EPERM));
    });
}

/// PID 1 runs as the same user as its commands, so the kernel would let them lower its priority or pin it, and a guest
/// without processor time enforces no deadline. Without a PID namespace every other process is the host's or the guest.
pub(super) fn scheduling(code: &mut Assembler, walls: Walls) {
    let refuse_others = |code: &mut Assembler, target: u8| {
        code.load(Field::Low(target));
        match walls.has_namespaces() {
            true => code.when(Test::Equal(1), |code| code.fail(EPERM)),
            false => code.unless(Test::Equal(0), |code| code.fail(EPERM)),
        }
    };
    let tuning =
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];
    code.calls(&tuning, |code| refuse_others(code, 0));
    // All processes of a user include PID 1. So would its process group, but a command is never in that group.
    for (call, group) in [(libc::SYS_setpriority, PRIO_PGRP), (libc::SYS_ioprio_set, IOPRIO_WHO_PGRP)] {
        code.call(call, |code| {
            code.load(Field::Low(0));
            code.when(Test::AtLeast(group + 1), |code| code.fail(EPERM));
            refuse_others(code, 1);
        });
    }
    code.call(libc::SYS_prctl, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(PR_SCHED_CORE), |code| code.fail(EINVAL));
    });
}
