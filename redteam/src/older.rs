//! A kernel with an older Landlock, for whatever runs below: only the answer to the question for its version is changed.
//!
//! Rights that the claimed version has not are then never asked for, and what the kernel refuses to programs that do not know
//! of them (renames between directories) it refuses here too.

use crate::sys::{addr, addr_mut, at, call, exit, wait};

const VERSION: u32 = 1;
const RECEIVE: u64 = 0xC050_2100;
const SEND: u64 = 0xC018_2101;

/// Instructions of a filter: code, jumps, value.
type Instruction = (u16, u8, u8, u32);

/// Answers every such question of this process and of all it starts with `abi` from now on, until the last of them has ended.
///
/// # Errors
/// The kernel's errno. Without privileges it takes `no_new_privs`.
pub fn claim(abi: i64) -> Result<(), i32> {
    let mut pipe = [0i32; 2];
    call(libc::SYS_pipe2, [addr_mut(&mut pipe), libc::O_CLOEXEC as u64])?;
    // Before the filter, so that the process that answers is not among those whose end it waits for; and twice, so that
    // it is no child of the program that runs below the filter.
    let between = fork_with_shared_descriptors()?;
    if between == 0 {
        if fork_with_shared_descriptors() == Ok(0) {
            answer(pipe[0], abi);
        }
        exit(0);
    }
    let _ended = wait(between);
    let listener = filter();
    let number = listener.map_or(-1, |listener| listener as i32);
    call(libc::SYS_write, [pipe[1] as u64, addr(&number), size_of_val(&number) as u64])?;
    listener.map(drop)
}

/// Stops every question for the version, and gives the descriptor on which it can be read and answered.
fn filter() -> Result<i64, i32> {
    let (question, allow, ask) = (libc::SYS_landlock_create_ruleset as u32, 0x7FFF_0000, 0x7FC0_0000);
    let program: [Instruction; 6] = [
        (0x20, 0, 0, 0),
        (0x15, 0, 3, question),
        (0x20, 0, 0, 32),
        (0x15, 0, 1, VERSION),
        (0x06, 0, 0, ask),
        (0x06, 0, 0, allow),
    ];
    let words: Vec<u64> = program
        .iter()
        .map(|(code, on, off, value)| {
            u64::from(*code) | u64::from(*on) << 16 | u64::from(*off) << 24 | u64::from(*value) << 32
        })
        .collect();
    let header = [words.len() as u64, addr(words.as_slice())];
    let (set_filter, new_listener) = (1, 1 << 3);
    call(libc::SYS_seccomp, [set_filter, new_listener, addr(&header)])
}

/// The child sees the descriptors that the parent opens from now on.
fn fork_with_shared_descriptors() -> Result<i32, i32> {
    let flags = (libc::CLONE_FILES | libc::SIGCHLD) as u64;
    call(libc::SYS_clone, [flags, 0, 0, 0, 0]).map(|pid| pid as i32)
}

/// Reads the listener's number from `pipe`, lets go of everything else, and answers until no process has the filter.
fn answer(pipe: i32, abi: i64) -> ! {
    let mut number = -1i32;
    let read = call(libc::SYS_read, [pipe as u64, addr_mut(&mut number), size_of::<i32>() as u64]);
    if read.is_err() || number < 0 {
        exit(1);
    }
    let listener = number as u64;
    let _own_from_now_on = call(libc::SYS_unshare, [libc::CLONE_FILES as u64]);
    // An engine waits for the ends of these pipes, and unmounts directories.
    if listener > 0 {
        let _before = call(libc::SYS_close_range, [0, listener - 1, 0]);
    }
    let _after = call(libc::SYS_close_range, [listener + 1, u64::from(u32::MAX), 0]);
    let _root_is_there = call(libc::SYS_chdir, [at(c"/")]);
    let (readable, hung_up) = (1u64 << 32, 1 << (48 + 4));
    loop {
        // Descriptor, what is waited for, and what happened.
        let mut waited = [listener | readable];
        let _interrupted = call(libc::SYS_ppoll, [addr_mut(&mut waited), 1, 0, 0]);
        if waited[0] & hung_up != 0 {
            exit(0);
        }
        let mut question = [0u64; 10];
        if waited[0] >> 48 != 0 && call(libc::SYS_ioctl, [listener, RECEIVE, addr_mut(&mut question)]).is_ok() {
            let answer = [question[0], abi.cast_unsigned(), 0];
            let _gone_meanwhile = call(libc::SYS_ioctl, [listener, SEND, addr(&answer)]);
        }
    }
}
