//! A kernel with an older Landlock, for whatever runs below: only the answer to the question for its version is changed.
//!
//! Rights that the claimed version has not are then never asked for, and what the kernel refuses to programs that do not know
//! of them (renames between directories) it refuses here too.

use crate::sys::{addr, addr_mut, call, exit, fork};

const VERSION: u32 = 1;
const RECEIVE: u64 = 0xC050_2100;
const SEND: u64 = 0xC018_2101;

/// Instructions of a filter: code, jumps, value.
type Instruction = (u16, u8, u8, u32);

/// Answers every such question of this process and its children with `abi` from now on.
///
/// # Errors
/// The kernel's errno. Without privileges it takes `no_new_privs`.
pub fn claim(abi: i64) -> Result<(), i32> {
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
    let listener = call(libc::SYS_seccomp, [set_filter, new_listener, addr(&header)])? as u64;
    // Not a signal at its death: it may become a user whose signals this one does not take.
    let asking = call(libc::SYS_pidfd_open, [u64::from(std::process::id()), 0])? as u64;
    if fork()? == 0 {
        loop {
            // Descriptor, what is waited for, and what happened.
            let readable = 1u64 << 32;
            let mut waited = [asking | readable, listener | readable];
            let _interrupted = call(libc::SYS_ppoll, [addr_mut(&mut waited), 2, 0, 0]);
            if waited[0] >> 48 != 0 {
                exit(0);
            }
            let mut question = [0u64; 10];
            if waited[1] >> 48 != 0 && call(libc::SYS_ioctl, [listener, RECEIVE, addr_mut(&mut question)]).is_ok() {
                let answer = [question[0], abi.cast_unsigned(), 0];
                let _gone_meanwhile = call(libc::SYS_ioctl, [listener, SEND, addr(&answer)]);
            }
        }
    }
    crate::sys::close(asking as i32);
    crate::sys::close(listener as i32);
    Ok(())
}
