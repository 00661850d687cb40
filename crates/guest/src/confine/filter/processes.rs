//! What a command may do to processes: make them without namespaces, limit and schedule its own, and never PID 1.

use libc::{EINVAL, ENOSYS, EPERM};

use super::{
    Walls,
    assembler::{Assembler, Field, Test},
};
use crate::sys::security::Token;

/// `clone` flags that make namespaces.
const NAMESPACES: u32 = 0x7E02_0000;
/// The limit that carries a command's tag.
pub(super) const TAG: u32 = libc::RLIMIT_LOCKS;
/// Groups tasks that may share a processor core, and so decides who runs beside whom on the whole host.
pub(super) const PR_SCHED_CORE: u32 = 62;

/// `setpriority` counts its kinds of target from zero, `ioprio_set` from one: process, process group, user.
const PRIO_PGRP: u32 = 1;
const IOPRIO_WHO_PGRP: u32 = 2;

pub(super) fn namespaces(code: &mut Assembler) {
    code.call(libc::SYS_clone, |code| {
        code.load(Field::Low(0));
        code.when(Test::AnyBit(NAMESPACES), |code| code.fail(EPERM));
    });
    // clone3 hides its flags in memory; programs fall back to clone.
    code.calls(&[libc::SYS_clone3], |code| code.fail(ENOSYS));
    code.call(libc::SYS_personality, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(0), Assembler::allow);
        code.when(Test::Equal(u32::MAX), Assembler::allow);
        code.fail(EPERM);
    });
}

/// Only the guest tags processes, and a command changes its own limits at most.
pub(super) fn limits(code: &mut Assembler, token: Token) {
    code.call(libc::SYS_prlimit64, |code| {
        // Another process's limits can be its death (RLIMIT_CPU): the guest's, and without a PID namespace the host's.
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

/// PID 1 has the user of the commands it starts, so the kernel would let them slow it down or pin it, and a guest without
/// a processor keeps no deadline. Without a PID namespace every other process is the host's, or the guest.
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
    // Everything of a user includes PID 1. So would its process group, but a command never is in that.
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
