//! Starts a command: a child that shares the guest's memory, makes only calls on prepared data, and then calls
//! `execve`.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    os::fd::RawFd,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::{event::Timespec, thread::futex};

use super::security::{self, Token};

/// Everything that the child needs, prepared before it exists: until `execve` it shares the guest's memory.
pub(crate) struct Plan<'a> {
    /// Candidate paths of the program, in order.
    pub(crate) programs: &'a [CString],
    pub(crate) argv: &'a [CString],
    pub(crate) env: &'a [CString],
    pub(crate) cwd: &'a CStr,
    /// Descriptors that become 0, 1 and 2.
    pub(crate) stdio: [RawFd; 3],
    pub(crate) terminal: Terminal,
    /// uid, gid and supplementary groups to switch to.
    pub(crate) identity: Option<(u32, u32, &'a [u32])>,
    pub(crate) limits: &'a [(u32, u64)],
    pub(crate) tag: u64,
    pub(crate) token: Token,
    pub(crate) proof: Proof,
    /// Landlock rules that are stricter than the guest's own.
    pub(crate) rules: Option<RawFd>,
}

/// Whether descriptor 0 becomes the controlling terminal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Terminal {
    No,
    Controlling,
}

/// Whether the child verifies that it is confined before it executes the program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Confined,
    NotAsked,
}

/// The step that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Fork,
    Session,
    Limits,
    Identity,
    Directory,
    Confinement,
    Program,
}

impl Stage {
    /// What failed, except for the directory and the program, which the request names.
    pub(crate) fn doing(self) -> Option<&'static str> {
        match self {
            Self::Fork => Some("start a process"),
            Self::Session => Some("give it a session and its streams"),
            Self::Limits => Some("limit it"),
            Self::Identity => Some("become its user"),
            Self::Confinement => Some("confine it"),
            Self::Directory | Self::Program => None,
        }
    }
}

/// Why a command did not start.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) stage: Stage,
    pub(crate) error: io::Error,
}

struct Shared<'a> {
    plan: &'a Plan<'a>,
    argv: *const *const libc::c_char,
    /// `/bin/sh SCRIPT arguments…`, for executable files in no format that the kernel knows.
    script_argv: *mut *const libc::c_char,
    env: *const *const libc::c_char,
    failed: Option<(Stage, i32)>,
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Stack of the child until it executes the program. One is enough: the guest waits for each child.
pub(crate) struct Stack(Vec<u128>);

impl Stack {
    pub(crate) fn new() -> Self {
        Self(vec![0; 4096])
    }
}

/// Starts the command and returns its process id.
pub(crate) fn start(plan: &Plan<'_>, stack: &mut Stack) -> Result<i32, Failed> {
    let argv = pointers(plan.argv);
    let env = pointers(plan.env);
    let mut script_argv = vec![c"/bin/sh".as_ptr(), ptr::null()];
    script_argv.extend(argv.iter().skip(1));
    let mut shared =
        Shared { plan, argv: argv.as_ptr(), script_argv: script_argv.as_mut_ptr(), env: env.as_ptr(), failed: None };
    let top = stack.0.as_mut_ptr_range().end;
    // Not CLONE_VFORK: a command may stop the child (it has the same user), and the guest would be suspended too. The
    // kernel clears `running` and wakes its waiters when the child has executed the program or is gone.
    let running = AtomicU32::new(1);
    let flags = libc::CLONE_VM | libc::CLONE_CHILD_CLEARTID | libc::SIGCHLD;
    let (no_tid, no_tls) = (ptr::null_mut::<libc::pid_t>(), ptr::null_mut::<libc::c_void>());
    // SAFETY: the child runs `child` on its own stack and allocates nothing, and this function does nothing but wait
    // until it has executed the program or is gone, so everything `shared` points at outlives its use.
    let pid =
        unsafe { libc::clone(child, top.cast(), flags, (&raw mut shared).cast(), no_tid, no_tls, running.as_ptr()) };
    if pid < 0 {
        return Err(Failed { stage: Stage::Fork, error: io::Error::last_os_error() });
    }
    let mut looks = 0;
    while !released(&running) {
        looks += 1;
        let stopped = super::process::was_stopped(pid);
        if stopped || looks > LOOKS {
            super::process::signal(pid, libc::SIGKILL);
            while !released(&running) {}
            let _reaped = super::process::wait_for(pid);
            let why = if stopped { libc::EINTR } else { libc::ETIMEDOUT };
            return Err(Failed { stage: Stage::Fork, error: io::Error::from_raw_os_error(why) });
        }
    }
    // SAFETY: the child wrote this field, if at all, before the guest went on.
    match unsafe { (&raw const shared.failed).read_volatile() } {
        None => Ok(pid),
        Some((stage, errno)) => {
            let _reaped = super::process::wait_for(pid);
            Err(Failed { stage, error: io::Error::from_raw_os_error(errno) })
        }
    }
}

/// How many times, and how often, the guest checks a child that has not executed its program yet: an unresponsive file
/// system must block one command, not the machine.
const LOOKS: usize = 250;
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Waits briefly until the child no longer uses the guest's memory. Uses `rustix`, which does not touch `errno`: until
/// then the child shares it.
fn released(running: &AtomicU32) -> bool {
    if running.load(Ordering::Acquire) != 0 {
        // Not a private futex, because the kernel's wake-up is not private either.
        let _woken_or_not = futex::wait(running, futex::Flags::empty(), 1, Some(&LOOK));
    }
    running.load(Ordering::Acquire) == 0
}

extern "C" fn child(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passed a `Shared` that lives until this process is gone or has executed the program.
    let shared = unsafe { &mut *shared.cast::<Shared<'_>>() };
    let (stage, errno) = match prepare(shared.plan) {
        Ok(()) => (Stage::Program, execute(shared)),
        Err(failed) => failed,
    };
    shared.failed = Some((stage, errno));
    // SAFETY: leaves without unwinding or running anything of the guest's.
    unsafe { libc::_exit(127) }
}

fn errno() -> i32 {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

fn step(stage: Stage, value: libc::c_long) -> Result<(), (Stage, i32)> {
    if value < 0 { Err((stage, errno())) } else { Ok(()) }
}

fn prepare(plan: &Plan<'_>) -> Result<(), (Stage, i32)> {
    // SAFETY: plain system calls on numbers and on memory the plan owns; nothing allocates.
    unsafe {
        step(Stage::Session, libc::c_long::from(libc::setsid()))?;
        if plan.terminal == Terminal::Controlling {
            step(Stage::Session, libc::c_long::from(libc::ioctl(plan.stdio[0], libc::TIOCSCTTY, 0)))?;
        }
        // All descriptors in `stdio` are 3 or above (the guest keeps 0 to 2 occupied), so no dup2 overwrites a source.
        if let Some(rules) = plan.rules {
            step(Stage::Confinement, libc::syscall(libc::SYS_landlock_restrict_self, rules, 0u32))?;
        }
        for (target, source) in (0..).zip(plan.stdio) {
            step(Stage::Session, libc::c_long::from(libc::dup2(source, target)))?;
        }
        step(Stage::Session, libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32))?;
        for (resource, value) in plan.limits {
            let limit = [*value, *value];
            step(Stage::Limits, libc::syscall(libc::SYS_prlimit64, 0, *resource, limit.as_ptr(), 0usize))?;
        }
        super::process::set_tag(plan.tag, plan.token).map_err(|_| (Stage::Limits, errno()))?;
        if let Some((uid, gid, groups)) = plan.identity {
            super::process::become_user(uid, gid, groups).map_err(|_| (Stage::Identity, errno()))?;
            // Needed for the machine's root, which keeps its capabilities because its uid does not change.
            security::set_caps(security::Caps::NONE).map_err(|_| (Stage::Identity, errno()))?;
        }
        step(Stage::Directory, libc::c_long::from(libc::chdir(plan.cwd.as_ptr())))?;
        if plan.proof == Proof::Confined && !is_confined() {
            return Err((Stage::Confinement, libc::EPERM));
        }
        reset_signals();
    }
    Ok(())
}

fn is_confined() -> bool {
    security::is_filtered() && security::all_caps().is_ok_and(|caps| caps == security::Caps::NONE)
}

/// Programs start with no signal blocked, and with the default action for SIGPIPE (which Rust programs ignore).
fn reset_signals() {
    // SAFETY: the set is filled by `sigemptyset`; handlers are copied, not shared, so the guest keeps its own.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Tries each candidate as execvp(3) does; returns only an error.
fn execute(shared: &mut Shared<'_>) -> i32 {
    let mut found = libc::ENOENT;
    for program in shared.plan.programs {
        // SAFETY: the arrays end with null and their strings outlive the call; the guest only waits.
        unsafe { libc::execve(program.as_ptr(), shared.argv, shared.env) };
        match errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            libc::EACCES => found = libc::EACCES,
            libc::ENOEXEC => {
                // SAFETY: the array has two places before the arguments; see `start`.
                unsafe {
                    *shared.script_argv.add(1) = program.as_ptr();
                    libc::execve(c"/bin/sh".as_ptr(), shared.script_argv, shared.env);
                }
                return libc::ENOEXEC;
            }
            other => return other,
        }
    }
    found
}
