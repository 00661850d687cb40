//! The resource limits of commands, and of the guest where others use up its own.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbar_guest::protocol::{Launch, Level};

use crate::sys::process::hard_limit;

/// Signals that may wait: they are counted for the host's user across all namespaces, and one machine may not use them up.
const PENDING_SIGNALS: u64 = 1024;
/// What is counted for the host's user across all namespaces, against the limit of the process that asks: of a half, the
/// host's own processes always have the other. Locked memory, and bytes of POSIX message queues.
const HALVED: [(u32, Resource); 2] =
    [(libc::RLIMIT_MEMLOCK, Resource::Memlock), (libc::RLIMIT_MSGQUEUE, Resource::Msgqueue)];

/// The limits every command of a machine gets. `pids` is the number of processes, where the kernel counts the machine's alone.
pub(crate) fn of_commands(launch: &Launch, pids: Option<u64>) -> Vec<(u32, u64)> {
    let mut limits = vec![
        (libc::RLIMIT_NOFILE, launch.open_files),
        (libc::RLIMIT_CORE, 0),
        (libc::RLIMIT_SIGPENDING, PENDING_SIGNALS),
    ];
    limits.extend(pids.map(|most| (libc::RLIMIT_NPROC, most)));
    if launch.level != Level::None {
        // A host's user may have been given the right to real-time or raised priorities, before which PID 1 would wait.
        limits.extend([(libc::RLIMIT_RTPRIO, 0), (libc::RLIMIT_NICE, 0)]);
        limits
            .extend(HALVED.iter().filter_map(|(number, resource)| Some((*number, getrlimit(*resource).current? / 2))));
    }
    limits.into_iter().map(as_allowed).collect()
}

/// A limit as low as the host's own, which no command could be given more than.
pub(crate) fn as_allowed((resource, wanted): (u32, u64)) -> (u32, u64) {
    (resource, hard_limit(resource).map_or(wanted, |most| wanted.min(most)))
}

/// Signals that commands send to the guest wait in the guest's own count.
pub(crate) fn limit_own_signals() -> rustix::io::Result<()> {
    let (_, most) = as_allowed((libc::RLIMIT_SIGPENDING, PENDING_SIGNALS));
    setrlimit(Resource::Sigpending, Rlimit { current: Some(most), maximum: Some(most) })
}

/// As many open files as the host allows. The server holds some for every process and connection, and a process may hand
/// over descriptors only while its user has fewer of them on the way than its own limit, however many a machine has there.
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
