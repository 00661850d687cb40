//! Group C: what /proc tells, and what it lets one change.

use libc::{EACCES, ENOENT, EPERM, EROFS};

use crate::{
    Args, Attack,
    Control::{Host, Namespaces},
    Outcome,
    files::read,
    sys::{at, call, open, text},
};

const CLOSED: &[i32] = &[EACCES, EPERM];

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "C19.environ-of-pid1",
        promise: "The guest's environment cannot be read.",
        control: Host,
        expect: CLOSED,
        run: |a| read(&of(a, "environ")),
    },
    Attack {
        name: "C19.memory-of-pid1",
        promise: "The guest's memory cannot be opened.",
        control: Host,
        expect: CLOSED,
        run: |a| Outcome::of(open(&of(a, "mem"), libc::O_RDONLY, 0)),
    },
    Attack {
        name: "C19.descriptors-of-pid1",
        promise: "The guest's descriptors, its stream to the harness among them, cannot be listed.",
        control: Host,
        expect: CLOSED,
        run: descriptors,
    },
    Attack {
        name: "C19.cwd-of-pid1",
        promise: "The guest's directory cannot be entered.",
        control: Host,
        expect: CLOSED,
        run: |a| link(&of(a, "cwd")),
    },
    Attack {
        name: "C19.root-of-pid1",
        promise: "The guest's root cannot be entered.",
        control: Host,
        expect: CLOSED,
        run: |a| link(&of(a, "root")),
    },
    Attack {
        name: "C19.maps-of-pid1",
        promise: "The guest's memory layout cannot be read.",
        control: Host,
        expect: CLOSED,
        run: |a| read(&of(a, "maps")),
    },
    Attack {
        name: "C20.find-the-harness",
        promise: "No process of the host can be seen.",
        control: Host,
        expect: &[],
        run: find_host_process,
    },
    Attack {
        name: "C21.core-pattern",
        promise: "The host's core handler cannot be changed.",
        control: Host,
        expect: &[EROFS, EACCES],
        run: |_| writable("/proc/sys/kernel/core_pattern"),
    },
    Attack {
        name: "C21.modprobe",
        promise: "The host's module loader cannot be changed.",
        control: Host,
        expect: &[EROFS, EACCES, ENOENT],
        run: |_| writable("/proc/sys/kernel/modprobe"),
    },
    Attack {
        name: "C21.own-sysctl",
        promise: "Not even the settings of the machine's own namespaces can be changed.",
        control: Namespaces,
        expect: &[EROFS, EACCES],
        run: |_| writable("/proc/sys/user/max_user_namespaces"),
    },
    Attack {
        name: "C21.sysrq",
        promise: "The kernel's emergency keys cannot be pressed.",
        control: Host,
        expect: &[EROFS, EACCES, ENOENT],
        run: |_| writable("/proc/sysrq-trigger"),
    },
    Attack {
        name: "C22.kernel-memory",
        promise: "The kernel's memory is covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/kcore"),
    },
    Attack {
        name: "C22.keys",
        promise: "The list of keys is covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/keys"),
    },
    Attack {
        name: "C22.timers",
        promise: "The list of timers is covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/timer_list"),
    },
    Attack {
        name: "C22.symbols",
        promise: "No address of the kernel's can be read from its symbols.",
        control: Host,
        expect: &[],
        run: |_| symbols(),
    },
    Attack {
        name: "C22.kernel-log",
        promise: "The kernel's log is covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/kmsg"),
    },
    Attack {
        name: "C22.interrupts",
        promise: "The host's interrupts, whose times tell of keys that are pressed, are covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/interrupts"),
    },
    Attack {
        name: "C22.disks",
        promise: "What the host's disks do is covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/diskstats"),
    },
    Attack {
        name: "C22.partitions",
        promise: "The host's partitions are covered.",
        control: Host,
        expect: &[],
        run: |_| read("/proc/partitions"),
    },
    Attack {
        name: "C22.locks",
        promise: "The locks that the host's processes hold are covered.",
        control: Host,
        expect: &[],
        run: |_| listed("/proc/locks"),
    },
    Attack {
        name: "C22.buses",
        promise: "The host's buses and interrupt lines are covered.",
        control: Host,
        expect: &[],
        run: |_| match (listed("/proc/bus"), listed("/proc/irq")) {
            (Outcome::Reached(what), _) | (_, Outcome::Reached(what)) => Outcome::Reached(what),
            (refused, _) => refused,
        },
    },
    Attack {
        name: "C22.boot-id",
        promise: "A machine has a boot id of its own, by which its host cannot be known again.",
        control: Host,
        expect: &[],
        run: |a| match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(id) if id.trim() == a.get("boot-id") => Outcome::Reached(id.trim().to_owned()),
            Ok(id) => Outcome::Refused(0, format!("another one: {}", id.trim())),
            Err(error) => Outcome::of(Err::<(), _>(error.raw_os_error().unwrap_or(libc::EIO))),
        },
    },
    Attack {
        name: "C23.host-sockets-listed",
        promise: "No address or socket of the host is listed.",
        control: Host,
        expect: &[],
        run: |a| {
            search(&["/proc/net/unix", "/proc/net/tcp", "/proc/self/mountinfo", "/proc/self/cgroup"], a.get("token"))
        },
    },
    Attack {
        name: "C24.open-the-guest-program",
        promise: "The guest's program cannot be opened, and so not overwritten.",
        control: Host,
        expect: &[EACCES, EPERM],
        run: |a| Outcome::of(open(&of(a, "exe"), libc::O_RDONLY, 0)),
    },
    Attack {
        name: "C24.overwrite-a-shown-program",
        promise: "A program shown read-only cannot be overwritten.",
        control: Host,
        expect: &[EROFS, EACCES],
        run: |a| Outcome::of(open(a.get("setid"), libc::O_WRONLY, 0)),
    },
];

/// Their numbers, and then what is behind each.
fn descriptors(a: &Args) -> Outcome {
    let dir = of(a, "fd");
    if let Err(errno) = open(&dir, libc::O_RDONLY | libc::O_DIRECTORY, 0) {
        return Outcome::of(Err::<(), _>(errno));
    }
    let opened = (0..256).find(|number| open(&format!("{dir}/{number}"), libc::O_RDONLY | libc::O_NONBLOCK, 0).is_ok());
    let shown = (0..256).find(|number| std::fs::read_link(format!("{dir}/{number}")).is_ok());
    match opened.or(shown) {
        Some(number) => Outcome::Reached(format!("descriptor {number}")),
        None => Outcome::Refused(0, "numbers, and nothing behind them".to_owned()),
    }
}

/// Whether a directory has entries, or a file has lines: covers have neither.
fn listed(path: &str) -> Outcome {
    let found = match std::fs::read_dir(path) {
        Ok(entries) => entries.count(),
        Err(_) => std::fs::read(path).map_or(0, |bytes| bytes.len()),
    };
    if found > 0 { Outcome::Reached(format!("{path}: {found}")) } else { Outcome::Refused(0, "covered".to_owned()) }
}

/// Without the right to see them, every address is zero.
fn symbols() -> Outcome {
    let listed = match std::fs::read("/proc/kallsyms") {
        Ok(listed) => String::from_utf8_lossy(&listed).into_owned(),
        Err(error) => return Outcome::of(Err::<(), _>(error.raw_os_error().unwrap_or(libc::EIO))),
    };
    let shown =
        listed.lines().find(|line| line.split(' ').next().is_some_and(|at| at.bytes().any(|digit| digit != b'0')));
    match shown {
        Some(line) => Outcome::Reached(line.replace('\t', " ")),
        None => Outcome::Refused(0, format!("{} names without addresses", listed.lines().count())),
    }
}

fn of(a: &Args, what: &str) -> String {
    format!("/proc/{}/{what}", a.get("pid"))
}

fn link(path: &str) -> Outcome {
    let path = text(path);
    let mut target = [0u8; 256];
    Outcome::of(call(libc::SYS_readlinkat, [libc::AT_FDCWD as u64, at(&path), crate::sys::addr_mut(&mut target), 256]))
}

/// Opens for writing, and writes nothing.
fn writable(path: &str) -> Outcome {
    match open(path, libc::O_WRONLY, 0) {
        Ok(_) if std::fs::metadata(path).is_ok_and(|found| !found.is_file() && is_null(&found)) => {
            Outcome::Refused(0, "covered".to_owned())
        }
        other => Outcome::of(other),
    }
}

fn is_null(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    found.rdev() == 0x103
}

fn find_host_process(a: &Args) -> Outcome {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Outcome::Error("no /proc".to_owned()) };
    let pids: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .collect();
    let marked = pids.iter().find(|pid| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        pid.as_str() != std::process::id().to_string() && contains(&command, a.get("marker").as_bytes())
    });
    match marked {
        Some(pid) => Outcome::Reached(format!("pid {pid}")),
        None => Outcome::Refused(0, format!("{} processes, none of the host's", pids.len())),
    }
}

fn search(paths: &[&str], token: &str) -> Outcome {
    for path in paths {
        let found = std::fs::read(path).unwrap_or_default();
        if contains(&found, token.as_bytes()) {
            return Outcome::Reached((*path).to_owned());
        }
    }
    Outcome::Refused(0, "nothing of the host's".to_owned())
}

pub(crate) fn contains(bytes: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && bytes.windows(part.len()).any(|window| window == part)
}
