//! Groups F and H: descriptors, shared memory, sockets and variables of the host.

use libc::{ECONNREFUSED, ENOENT, EPERM};

use crate::{
    Args, Attack,
    Control::Host,
    Outcome,
    files::read,
    procfs::contains,
    sys::{addr, at, call, close, open, text, unix_address},
};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "F42.inherited-descriptors",
        promise: "A command inherits its three streams and nothing else.",
        control: Host,
        expect: &[],
        run: inherited,
    },
    Attack {
        name: "F43.reopen-a-stream",
        promise: "A command's streams are pipes or its own terminal, never a file of the host's.",
        control: Host,
        expect: &[],
        run: reopen,
    },
    Attack {
        name: "F44.abstract-socket",
        promise: "Abstract sockets of the host cannot be reached.",
        control: Host,
        expect: &[ECONNREFUSED, EPERM],
        run: |a| connect(&format!("@{}", a.get("abstract")), libc::SOCK_STREAM),
    },
    Attack {
        name: "F45.path-socket",
        promise: "Sockets in the host's file tree (engines, agents, desktops) cannot be reached.",
        control: Host,
        expect: &[ENOENT],
        run: |a| connect(a.get("socket"), libc::SOCK_STREAM),
    },
    Attack {
        name: "F46.message-to-a-path-socket",
        promise: "Nor by a single message without a connection.",
        control: Host,
        expect: &[ENOENT],
        run: send_message,
    },
    Attack {
        name: "F47.shared-memory",
        promise: "System V shared memory of the host cannot be attached.",
        control: Host,
        expect: &[ENOENT],
        run: |a| Outcome::of(call(libc::SYS_shmget, [a.number("ipckey") as u64, 0, 0])),
    },
    Attack {
        name: "F47.message-queue",
        promise: "System V message queues of the host cannot be opened.",
        control: Host,
        expect: &[ENOENT],
        run: |a| Outcome::of(call(libc::SYS_msgget, [a.number("ipckey") as u64, 0])),
    },
    Attack {
        name: "F47.semaphore",
        promise: "System V semaphores of the host cannot be opened.",
        control: Host,
        expect: &[ENOENT],
        run: |a| Outcome::of(call(libc::SYS_semget, [a.number("ipckey") as u64, 0, 0])),
    },
    Attack {
        name: "F47.posix-queue",
        promise: "POSIX message queues of the host cannot be opened.",
        control: Host,
        expect: &[ENOENT],
        run: |a| {
            let name = text(a.get("queue"));
            Outcome::of(call(libc::SYS_mq_open, [at(&name), libc::O_RDONLY as u64, 0, 0]))
        },
    },
    Attack {
        name: "F47.dev-shm",
        promise: "The host's /dev/shm is not the machine's.",
        control: Host,
        expect: &[ENOENT],
        run: |a| read(a.get("shm")),
    },
    Attack {
        name: "F49.other-terminals",
        promise: "No other session's terminal exists inside.",
        control: Host,
        expect: &[ENOENT],
        run: |a| Outcome::of(open(a.get("pts"), libc::O_RDONLY | libc::O_NOCTTY | libc::O_NONBLOCK, 0)),
    },
    Attack {
        name: "H60.environment",
        promise: "No variable of the harness reaches a command or shows in /proc.",
        control: Host,
        expect: &[],
        run: environment,
    },
];

fn inherited(_: &Args) -> Outcome {
    let open: Vec<u64> = (3..4096).filter(|fd| call(libc::SYS_fcntl, [*fd, libc::F_GETFD as u64]).is_ok()).collect();
    if open.is_empty() {
        Outcome::Refused(0, "only 0, 1 and 2".to_owned())
    } else {
        Outcome::Reached(format!("{open:?}"))
    }
}

fn reopen(_: &Args) -> Outcome {
    for fd in 0..3 {
        let path = format!("/proc/self/fd/{fd}");
        let Ok(found) = std::fs::metadata(&path) else { continue };
        if found.is_file() || found.is_dir() {
            return match open(&path, libc::O_RDWR, 0) {
                Ok(_) => Outcome::Reached(format!("descriptor {fd} is a file that can be written")),
                Err(_) => Outcome::Reached(format!("descriptor {fd} is a file")),
            };
        }
    }
    Outcome::Refused(0, "pipes and devices".to_owned())
}

fn connect(name: &str, kind: i32) -> Outcome {
    let (address, length) = unix_address(name);
    let connected = call(libc::SYS_socket, [libc::AF_UNIX as u64, kind as u64, 0]).and_then(|socket| {
        let connected = call(libc::SYS_connect, [socket as u64, addr(address.as_slice()), length]);
        close(socket as i32);
        connected
    });
    Outcome::of(connected)
}

fn send_message(a: &Args) -> Outcome {
    let (address, length) = unix_address(a.get("dgram"));
    let piece = [at(c"x"), 1];
    let message = [addr(address.as_slice()), length, addr(&piece), 1, 0, 0, 0];
    let sent = call(libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64, 0]).and_then(|socket| {
        let sent = call(libc::SYS_sendmsg, [socket as u64, addr(&message), libc::MSG_DONTWAIT as u64]);
        close(socket as i32);
        sent
    });
    Outcome::of(sent)
}

fn environment(a: &Args) -> Outcome {
    let token = a.get("variable");
    if std::env::vars().any(|(_, value)| value.contains(token)) {
        return Outcome::Reached("own environment".to_owned());
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Outcome::Error("no /proc".to_owned()) };
    for entry in entries.flatten() {
        let found = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if contains(&found, token.as_bytes()) {
            return Outcome::Reached(entry.path().display().to_string());
        }
    }
    Outcome::Refused(0, "absent".to_owned())
}
