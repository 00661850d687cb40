//! Raw system calls that drop privileges: capabilities, `no_new_privs`, seccomp, Landlock.

#![allow(unsafe_code)]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use super::check;

/// 128 random bits that the guest passes in argument registers the kernel ignores; the seccomp filter allows the few
/// calls reserved to the guest only with them. A command cannot read them: the guest's memory is closed to it.
#[derive(Clone, Copy)]
pub(crate) struct Token(pub(crate) [u64; 2]);

impl Token {
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0u8; 16];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        if filled != bytes.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (low, high) = bytes.split_at(8);
        let word = |half: &[u8]| half.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
        Ok(Self([word(low), word(high)]))
    }
}

/// A set of capabilities, one bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps(pub(crate) u64);

impl Caps {
    pub(crate) const NONE: Self = Self(0);
    /// Capabilities that PID 1 keeps if several users are mapped: KILL, SETGID, SETUID, SYS_RESOURCE (to read process
    /// tags).
    pub(crate) const SWITCH_USERS: Self = Self(1 << 5 | 1 << 6 | 1 << 7 | 1 << 24);
    /// The same in a container, where the engine may not grant SYS_RESOURCE.
    pub(crate) const SWITCH_USERS_INSIDE: Self = Self(1 << 5 | 1 << 6 | 1 << 7);

    /// Whether SYS_ADMIN is included, which mounting needs.
    pub(crate) fn has_admin(self) -> bool {
        self.0 & 1 << 21 != 0
    }
}

const CAP_VERSION_3: u32 = 0x2008_0522;

/// Sets the effective and permitted sets, and empties the inheritable one.
pub(crate) fn set_caps(caps: Caps) -> io::Result<()> {
    let header = [CAP_VERSION_3, 0];
    let (low, high) = (caps.0 as u32, (caps.0 >> 32) as u32);
    let data = [low, low, 0, high, high, 0];
    // SAFETY: `header` and `data` have the layout of version 3 of the capability calls and outlive the call.
    check(unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) })?;
    Ok(())
}

/// Union of the effective, permitted and inheritable sets.
pub(crate) fn all_caps() -> io::Result<Caps> {
    let header = [CAP_VERSION_3, 0];
    let mut data = [0u32; 6];
    // SAFETY: as in `set_caps`; the kernel fills `data`.
    check(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) })?;
    let [a, b, c, d, e, f] = data.map(u64::from);
    Ok(Caps(a | b | c | (d | e | f) << 32))
}

/// Empties the bounding set, so that no executed file can grant a capability.
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for cap in 0..64 {
        // SAFETY: no pointers.
        match unsafe { libc::prctl(libc::PR_CAPBSET_READ, cap, 0, 0, 0) } {
            0 => {}
            // SAFETY: no pointers.
            1 => drop(check(libc::c_long::from(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0) }))?),
            _ => return Ok(()),
        }
    }
    Ok(())
}

/// Whether the bounding set is empty.
pub(crate) fn bounding_set_is_empty() -> bool {
    // SAFETY: no pointers.
    (0..64).all(|cap| unsafe { libc::prctl(libc::PR_CAPBSET_READ, cap, 0, 0, 0) } != 1)
}

/// Executed files cannot grant privileges from now on.
pub(crate) fn no_new_privs() -> io::Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }))?;
    Ok(())
}

/// Whether `no_new_privs` is set and a seccomp filter is in force.
pub(crate) fn is_filtered() -> bool {
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == 2
    }
}

/// Closes this process's memory to all processes without privileges on the host: no ptrace, no `/proc/PID/mem`.
pub(crate) fn close_memory() -> io::Result<()> {
    // SAFETY: no pointers.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }))?;
    Ok(())
}

/// One instruction of a seccomp filter.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

/// Installs a seccomp filter for this process and all its descendants.
pub(crate) fn install_filter(program: &[Instruction]) -> io::Result<()> {
    #[repr(C)]
    struct Program {
        length: u16,
        filter: *const Instruction,
    }
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = Program { length, filter: program.as_ptr() };
    // SAFETY: `program` points at `length` instructions, which outlive the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) })?;
    Ok(())
}

/// The Landlock version of this kernel; an error if it has none.
pub(crate) fn landlock_abi() -> io::Result<u32> {
    // SAFETY: a null attribute with the version flag only asks.
    let abi = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, 1u32) })?;
    Ok(abi as u32)
}

/// Creates a Landlock ruleset that handles these rights; `scoped` needs version 6.
pub(crate) fn landlock_ruleset(rights: u64, scoped: u64, abi: u32) -> io::Result<OwnedFd> {
    let attributes = [rights, 0, scoped];
    let size = match abi {
        0..=3 => 8usize,
        4..=5 => 16,
        _ => 24,
    };
    // SAFETY: `attributes` begins with the `size` bytes this version of the call knows, and outlives it.
    let fd = check(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes.as_ptr(), size, 0u32) })?;
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Grants rights on everything below an opened path.
pub(crate) fn landlock_allow(ruleset: BorrowedFd<'_>, path: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        parent: i32,
    }
    let rule = PathBeneath { rights, parent: path.as_raw_fd() };
    // SAFETY: `rule` has the layout of `struct landlock_path_beneath_attr` and outlives the call.
    check(unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), 1u32, &raw const rule, 0u32) })?;
    Ok(())
}

/// Applies the ruleset to this process and all its descendants.
pub(crate) fn landlock_enter(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) })?;
    Ok(())
}
