//! Id maps: which host ids the machine's users have. One user mapped to itself, alone or with its subordinate ids, or a
//! range of ids of the machine's own.

use std::{fs, io, os::fd::OwnedFd};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with},
};

use sandbar_guest::{
    protocol::{Accounts, USERS_STAGE},
    subordinate::{Lack, Subordinate},
};

use crate::{
    identity::AGENT,
    machine::failure::{Setup, Step, refuse},
    sys::{
        process::{Fork, become_user, exit_now, fork_into, signal, wait_for},
        security,
    },
};

/// Host ids of machines made by root start here: above the ids of container managers, and low enough for tools that
/// treat ids as signed.
const FIRST: u32 = 0x7000_0000;
const RANGE: u32 = 0x1_0000;
const RANGES: u32 = 4096;

/// How ids inside map to ids of the host.
pub(crate) enum Ids {
    /// The agent is the user that started the machine; there is no other user.
    One { uid: u32, gid: u32 },
    /// The agent is the user that started the machine; the other users have that user's subordinate ids.
    Own { uid: u32, gid: u32, others: Subordinate },
    /// 65,536 ids from `base` on, reserved while the socket is open.
    Range { base: u32, _reserved: Option<OwnedFd> },
}

impl Ids {
    /// Chooses the mapping for the user of this process; a single id if one user is enough.
    pub(crate) fn choose(accounts: &Accounts) -> Setup<Self> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // Root of a user namespace (of a rootless container, for example) may have no ids to give.
        let mapped = |file: &str| fs::read_to_string(file).is_ok_and(|map| covers(&map, FIRST, RANGES * RANGE));
        if uid != 0 || !mapped("/proc/self/uid_map") || !mapped("/proc/self/gid_map") {
            if !accounts.need_many() {
                return Ok(Self::One { uid, gid });
            }
            let lacking = |lack: Lack| refuse(USERS_STAGE, &format!("{lack}"), &lack.fix());
            return Ok(Self::Own { uid, gid, others: Subordinate::find(uid).map_err(lacking)? });
        }
        if !security::all_caps().step("read capabilities")?.has_admin() {
            return Err(refuse(
                "prepare mounts as root",
                "the capability SYS_ADMIN, without which root cannot prepare mounts",
                "this looks like a container: run sandbar outside it or as an ordinary user, or ask for --isolation \
                 landlock",
            ));
        }
        let start = rustix::process::getpid().as_raw_nonzero().get() as u32;
        for offset in 0..RANGES {
            let index = (start.wrapping_add(offset)) % RANGES;
            if let Ok(reserved) = reserve(index) {
                return Ok(Self::Range { base: FIRST + index * RANGE, _reserved: Some(reserved) });
            }
        }
        // All ranges are taken, or another process squats on the names. Sharing a range only means that processes are
        // counted together; the namespaces still isolate the machines. So share one instead of failing.
        Ok(Self::Range { base: FIRST + start % RANGES * RANGE, _reserved: None })
    }

    /// The agent's uid and gid on the host, if files made for the agent must be chowned to it.
    pub(crate) fn agent(&self) -> Option<u32> {
        match self {
            Self::One { .. } | Self::Own { .. } => None,
            Self::Range { base, .. } => Some(base + AGENT),
        }
    }

    /// uid and gid of the machine's root on the host.
    pub(crate) fn root(&self) -> Option<u32> {
        match self {
            Self::One { .. } | Self::Own { .. } => None,
            Self::Range { base, .. } => Some(*base),
        }
    }

    /// Writes the id maps of a child that waits in a new user namespace.
    pub(crate) fn write(&self, pid: i32) -> io::Result<()> {
        match self {
            Self::One { uid, gid } => {
                fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
                fs::write(format!("/proc/{pid}/uid_map"), format!("{AGENT} {uid} 1\n"))?;
                fs::write(format!("/proc/{pid}/gid_map"), format!("{AGENT} {gid} 1\n"))
            }
            Self::Own { uid, gid, others } => others.map(pid, AGENT, (*uid, *gid)),
            Self::Range { base, .. } => {
                fs::write(format!("/proc/{pid}/uid_map"), format!("0 {base} {RANGE}\n"))?;
                fs::write(format!("/proc/{pid}/gid_map"), format!("0 {base} {RANGE}\n"))
            }
        }
    }
}

/// Whether an id map covers all of these ids.
fn covers(map: &str, first: u32, count: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map_while(|text| text.parse::<u64>().ok());
        let (Some(start), Some(_), Some(length)) = (numbers.next(), numbers.next(), numbers.next()) else {
            return false;
        };
        start <= u64::from(first) && u64::from(first) + u64::from(count) <= start + length
    })
}

/// Reserves an abstract socket name: one process at a time can bind it, and it is free again when that process dies.
fn reserve(index: u32) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(format!("sandbar-ids-{index}").as_bytes())?)?;
    Ok(socket)
}

/// Runs `work` as root of a user namespace with this user's own and subordinate ids: only there, or as the host's root,
/// can files of those ids be removed.
pub(crate) fn as_root_of_own(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let others = Subordinate::find(uid).map_err(|_lack| io::ErrorKind::PermissionDenied)?;
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match fork_into(libc::CLONE_NEWUSER)? {
        Fork::Child => {
            drop(go);
            let mapped = rustix::io::read(&wait, &mut [0u8; 1]) == Ok(1);
            let done = mapped && become_user(0, 0, &[]).and_then(|()| work()).is_ok();
            exit_now(i32::from(!done))
        }
        Fork::Parent(pid) => {
            drop(wait);
            let mapped = others.map(pid, AGENT, (uid, gid)).and_then(|()| Ok(rustix::io::write(&go, b"!")?));
            drop(go);
            let ended = wait_for(pid)?;
            mapped?;
            if ended.code == 0 { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
        }
    }
}

/// Makes a user namespace for id-mapped mounts that maps the owner of a host tree to the machine's agent.
pub(crate) fn owner_to_agent(uid: u32, gid: u32, agent: u32) -> io::Result<OwnedFd> {
    let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match fork_into(libc::CLONE_NEWUSER)? {
        Fork::Child => {
            drop(go);
            let _until_killed = rustix::io::read(&wait, &mut [0u8; 1]);
            exit_now(0)
        }
        Fork::Parent(pid) => {
            let made = fs::write(format!("/proc/{pid}/uid_map"), format!("{uid} {agent} 1\n"))
                .and_then(|()| fs::write(format!("/proc/{pid}/gid_map"), format!("{gid} {agent} 1\n")))
                .and_then(|()| {
                    let path = format!("/proc/{pid}/ns/user");
                    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
                });
            signal(pid, libc::SIGKILL);
            wait_for(pid)?;
            drop(go);
            made
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_map_with_all_the_ids_will_do() {
        assert!(covers("         0          0 4294967295\n", FIRST, RANGES * RANGE));
        assert!(!covers("         0       1000          1\n", FIRST, RANGES * RANGE), "one id");
        assert!(!covers("0 1000 1\n1 100000 65536\n", FIRST, RANGES * RANGE), "a rootless container");
        assert!(!covers("nonsense\n", FIRST, RANGES * RANGE));
    }
}
