//! Resource limits of commands and of the guest.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbar_guest::protocol::{Launch, Level};

use crate::sys::process::hard_limit;

/// Most pending signals: the kernel counts them per host user across all namespaces, and one machine may not use them
/// all up.
const PENDING_SIGNALS: u64 = 1024;
/// Limits that the kernel counts per host user across all namespaces and compares with the limit of the requesting
/// process: locked memory, and bytes of POSIX message queues. Machines get half of each, so the host's own processes
/// always have the other half.
const HALVED: [(u32, Resource); 2] =
    [(libc::RLIMIT_MEMLOCK, Resource::Memlock), (libc::RLIMIT_MSGQUEUE, Resource::Msgqueue)];

/// Limits of every command. `pids` is the number of processes, if the kernel counts this machine's processes alone.
pub(crate) fn of_commands(launch: &Launch, pids: Option<u64>) -> Vec<(u32, u64)> {
    let mut limits = vec![
        (libc::RLIMIT_NOFILE, launch.open_files),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS),
    ];
    limits.extend(pids.map(|most| (libc::RLIMIT_NPROC, most)));
    if launch.level != Level::None {
        // The host's user may have the right to real-time or raised priorities, which would starve PID 1.
        limits.extend([(libc::RLIMIT_RTPRIO, 0), (libc::RLIMIT_NICE, 0)]);
        limits
            .extend(HALVED.iter().filter_map(|(number, resource)| Some((*number, getrlimit(*resource).current? / 2))));
    }
    limits.into_iter().map(as_allowed).collect()
}

/// Lowers a limit to the host's hard limit.
pub(crate) fn as_allowed((resource, wanted): (u32, u64)) -> (u32, u64) {
    (resource, hard_limit(resource).map_or(wanted, |most| wanted.min(most)))
}

/// Limits the pending signals of the guest: those that commands send to it count for the guest.
pub(crate) fn limit_own_signals() -> rustix::io::Result<()> {
    let (_, most) = as_allowed((libc::RLIMIT_SIGPENDING, PENDING_SIGNALS));
    setrlimit(Resource::Sigpending, Rlimit { current: Some(most), maximum: Some(most) })
}

/// Raises the number of open files to what the host allows. The server holds some for every process and connection, and
/// a process may pass descriptors only while fewer descriptors of its user are in flight than its own limit, however
/// many of those a machine has.
pub(crate) fn use_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _as_many_as_there_are = setrlimit(Resource::Nofile, all);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_is_higher_than_the_hosts_and_the_host_keeps_a_half() {
        let launch = Launch { open_files: u64::MAX, ..Launch::default() };
        let limits = of_commands(&launch, Some(u64::MAX - 1));
        for (resource, value) in &limits {
            assert!(hard_limit(*resource).is_none_or(|most| *value <= most), "{resource}");
        }
        let value = |wanted: u32| limits.iter().find(|(resource, _)| *resource == wanted).map(|(_, value)| *value);
        assert_eq!((value(libc::RLIMIT_RTPRIO), value(libc::RLIMIT_NICE)), (Some(0), Some(0)));
        for (number, resource) in HALVED {
            assert_eq!(value(number), getrlimit(resource).current.map(|soft| soft / 2));
        }
        let unconfined = of_commands(&Launch { level: Level::None, ..launch }, None);
        assert!(unconfined.iter().all(|(resource, _)| *resource != libc::RLIMIT_RTPRIO));
    }
}
