//! Group J: using up what the host has.

use libc::{EACCES, EAGAIN, EMFILE, ENOENT, ENOSPC, EPERM};

use crate::{
    Args, Attack,
    Control::Host,
    Outcome,
    sys::{addr, addr_mut, call, close, exit, fork, kill, name_of, open, pause_ms, wait},
};

/// What the runner gives the machine of this group; the attacks try for more.
pub(crate) const PIDS: usize = 64;
/// Bytes of `/tmp`.
pub(crate) const TMP: usize = 16 << 20;
/// Open files.
pub(crate) const FILES: usize = 256;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "J71.fork-bomb",
        promise: "The number of processes is limited.",
        control: Host,
        expect: &[EAGAIN],
        run: fork_bomb,
    },
    Attack {
        name: "J73.fill-tmp",
        promise: "The size of /tmp is limited.",
        control: Host,
        expect: &[ENOSPC],
        run: |a| fill(if a.get("inside").is_empty() { a.get("dir") } else { "/tmp" }, a),
    },
    Attack {
        name: "J73.fill-dev-shm",
        promise: "The size of /dev/shm is limited.",
        control: Host,
        expect: &[ENOSPC],
        run: |a| fill("/dev/shm", a),
    },
    Attack {
        name: "J74.raise-process-limit",
        promise: "The limit on processes cannot be raised.",
        control: Host,
        expect: &[EPERM],
        run: |_| raise(u64::from(libc::RLIMIT_NPROC)),
    },
    Attack {
        name: "J74.raise-file-limit",
        promise: "The limit on open files cannot be raised.",
        control: Host,
        expect: &[EPERM],
        run: |_| raise(u64::from(libc::RLIMIT_NOFILE)),
    },
    Attack {
        name: "J74.dump-core",
        promise: "No core is dumped.",
        control: Host,
        expect: &[EPERM],
        run: |_| raise(u64::from(libc::RLIMIT_CORE)),
    },
    Attack {
        name: "J76.open-many-files",
        promise: "The number of open files is limited.",
        control: Host,
        expect: &[EMFILE],
        run: open_many,
    },
    Attack {
        name: "J77.control-groups",
        promise: "No control group can be seen or changed.",
        control: Host,
        expect: &[ENOENT, EACCES],
        run: |_| change_a_control_group(),
    },
];

/// Whatever of the control groups can be opened for writing, or made: limits, members, the program that is run at the end.
fn change_a_control_group() -> Outcome {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let mut waiting = vec![(root.to_owned(), 0)];
    let mut last = match std::fs::read_dir(root) {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
    };
    while let Some((dir, depth)) = waiting.pop() {
        let fresh = dir.join("redteam-group");
        match std::fs::create_dir(&fresh) {
            Ok(()) => {
                let _best_effort = std::fs::remove_dir(&fresh);
                return Outcome::Reached(fresh.display().to_string());
            }
            Err(error) => last = latest(last, error.raw_os_error().unwrap_or(last)),
        }
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten().take(1000) {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) && depth < 3 {
                waiting.push((path, depth + 1));
            } else if let Some(path) = path.to_str() {
                match open(path, libc::O_WRONLY, 0) {
                    Ok(_) => return Outcome::Reached(path.to_owned()),
                    Err(errno) => last = latest(last, errno),
                }
            }
        }
    }
    Outcome::Refused(last, name_of(last))
}

/// Groups come and go: one that is gone when it is looked at says nothing about who may change it.
fn latest(last: i32, errno: i32) -> i32 {
    if errno == ENOENT && last != 0 { last } else { errno }
}

fn fork_bomb(_: &Args) -> Outcome {
    let mut children = Vec::new();
    let outcome = loop {
        if children.len() > 4 * PIDS {
            break Outcome::Reached(format!("{} processes", children.len()));
        }
        match fork() {
            Ok(0) => {
                pause_ms(30_000);
                exit(0)
            }
            Ok(child) => children.push(child),
            Err(errno) => break Outcome::Refused(errno, format!("after {}", children.len())),
        }
    };
    for child in &children {
        let _own_child = kill(*child, libc::SIGKILL);
    }
    for child in children {
        let _reaped = wait(child);
    }
    outcome
}

fn fill(dir: &str, a: &Args) -> Outcome {
    let path = format!("{dir}/filler-{}", a.get("token"));
    let file = match open(&path, libc::O_CREAT | libc::O_WRONLY, 0o600) {
        Ok(file) => file,
        Err(errno) => return Outcome::Error(name_of(errno)),
    };
    let block = vec![b'x'; 1 << 20];
    let mut outcome = Outcome::Reached("all of it".to_owned());
    for done in 0..3 * (TMP >> 20) {
        if let Err(errno) = call(libc::SYS_write, [file as u64, addr(block.as_slice()), block.len() as u64]) {
            outcome = Outcome::Refused(errno, format!("after {done} MiB"));
            break;
        }
    }
    close(file);
    let _best_effort = std::fs::remove_file(path);
    outcome
}

/// Raises a hard limit by one.
fn raise(resource: u64) -> Outcome {
    let mut limit = [0u64; 2];
    if let Err(errno) = call(libc::SYS_prlimit64, [0, resource, 0, addr_mut(&mut limit)]) {
        return Outcome::Error(name_of(errno));
    }
    if limit[1] == u64::MAX {
        return Outcome::Reached("there is no limit".to_owned());
    }
    let more = [limit[1] + 1, limit[1] + 1];
    Outcome::of(call(libc::SYS_prlimit64, [0, resource, addr(&more), 0]))
}

fn open_many(_: &Args) -> Outcome {
    for count in 0..2 * FILES {
        if let Err(errno) = open("/dev/null", libc::O_RDONLY, 0) {
            return Outcome::Refused(errno, format!("after {count}"));
        }
    }
    Outcome::Reached(format!("{} files", 2 * FILES))
}
