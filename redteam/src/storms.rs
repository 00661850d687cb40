//! Programs the runner keeps going inside while it watches from outside: swaps, floods, hops, stops.

use crate::{
    Args, Outcome,
    sys::{addr, at, call, exit, fork, kill, pause_ms, text},
};

pub(crate) type Storm = (&'static str, fn(&Args) -> Outcome);

pub(crate) const STORMS: &[Storm] = &[
    ("swap", swap),
    ("flood", flood),
    ("hop", hop),
    ("stop-all", stop_all),
    ("daemon", daemon),
    ("plant", plant),
    ("stubborn", stubborn),
    ("knock", knock),
];

/// Exchanges a directory and a symbolic link to the host's, for ever.
fn swap(a: &Args) -> Outcome {
    const EXCHANGE: u64 = 2;
    let (one, other) = (text(&format!("{}/d", a.get("dir"))), text(&format!("{}/l", a.get("dir"))));
    let here = libc::AT_FDCWD as u64;
    loop {
        if let Err(errno) = call(libc::SYS_renameat2, [here, at(&one), here, at(&other), EXCHANGE]) {
            return Outcome::Refused(errno, "swap".to_owned());
        }
        if a.number("pause") > 0 {
            std::thread::sleep(std::time::Duration::from_micros(a.number("pause") as u64));
        }
    }
}

/// Prints for ever, without a line break.
fn flood(_: &Args) -> Outcome {
    let block = vec![b'x'; 1 << 16];
    while call(libc::SYS_write, [1, addr(block.as_slice()), block.len() as u64]).is_ok() {}
    Outcome::Refused(crate::sys::errno(), "flood".to_owned())
}

/// Chains of processes, each of which starts the next and ends, so that a process is gone before it can be signalled.
fn hop(a: &Args) -> Outcome {
    for _ in 0..a.number("chains").max(1) {
        if fork() == Ok(0) {
            let _own_session = call(libc::SYS_setsid, []);
            loop {
                match fork() {
                    Ok(0) => {}
                    Ok(_) => exit(0),
                    Err(_) => pause_ms(1),
                }
            }
        }
    }
    pause_ms(600_000);
    Outcome::Error("outlived its test".to_owned())
}

/// Stops every process it can, again and again.
fn stop_all(a: &Args) -> Outcome {
    let until = std::time::Instant::now() + std::time::Duration::from_millis(a.number("ms").max(1) as u64);
    while std::time::Instant::now() < until {
        let _some_may_refuse = kill(-1, libc::SIGSTOP);
    }
    Outcome::Refused(0, "time is up".to_owned())
}

/// A process with no parent, no session and no streams, whose name carries the marker in its arguments.
fn daemon(a: &Args) -> Outcome {
    if let Ok(0) = fork() {
        let _own_session = call(libc::SYS_setsid, []);
        if let Ok(0) = fork() {
            for fd in 0..3 {
                crate::sys::close(fd);
            }
            pause_ms(600_000);
        }
        exit(0);
    }
    pause_ms(if a.get("stay").is_empty() { 50 } else { 600_000 });
    Outcome::Reached("started".to_owned())
}

/// Things of every kind that a harness might be made to read.
fn plant(a: &Args) -> Outcome {
    let path = |name: &str| text(&format!("{}/{name}", a.get("dir")));
    let here = libc::AT_FDCWD as u64;
    let planted = || -> Result<i64, i32> {
        call(libc::SYS_mknodat, [here, at(&path("fifo")), u64::from(libc::S_IFIFO | 0o666), 0])?;
        let socket = call(libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0])?;
        let (address, length) = crate::sys::unix_address(&format!("{}/socket", a.get("dir")));
        call(libc::SYS_bind, [socket as u64, addr(address.as_slice()), length])?;
        let sparse =
            call(libc::SYS_openat, [here, at(&path("sparse")), (libc::O_CREAT | libc::O_WRONLY) as u64, 0o644])?;
        call(libc::SYS_ftruncate, [sparse as u64, 1 << 40])
    };
    Outcome::of(planted())
}

/// Looks for a socket by its path, through every process and wherever one of its name lies, and knocks. With a nonce, being
/// told something counts; without one, being let through to the socket does.
fn knock(a: &Args) -> Outcome {
    let path = a.get("path");
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut tried = vec![path.to_owned(), format!("@{path}"), name.to_owned()];
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        for link in ["root", "cwd", "fd/0", "fd/1", "fd/3", "fd/4", "fd/5", "fd/6"] {
            let link = process.path().join(link);
            tried.extend([format!("{}{path}", link.display()), format!("{}/{name}", link.display())]);
        }
    }
    let mut waiting: Vec<std::path::PathBuf> =
        ["/home", "/run", "/var", "/workspace", "/dev/shm", "."].map(Into::into).into();
    while let Some(dir) = waiting.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten().take(10_000) {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            } else if entry.file_name() == name {
                tried.push(entry.path().display().to_string());
            }
        }
    }
    let mut last = libc::ENOENT;
    for place in &tried {
        match visit(place, a.get("nonce")) {
            Ok(told) => return Outcome::Reached(format!("{place} told {told}")),
            Err(errno) => last = errno,
        }
    }
    Outcome::Refused(last, format!("{} places", tried.len()))
}

/// Connects, and says how many bytes come back for a nonce.
fn visit(place: &str, nonce: &str) -> Result<i64, i32> {
    if place.len() > 107 {
        return Err(libc::ENAMETOOLONG);
    }
    let socket = call(libc::SYS_socket, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0])?;
    let told = knock_at(socket as u64, place, nonce);
    crate::sys::close(socket as i32);
    told
}

fn knock_at(socket: u64, place: &str, nonce: &str) -> Result<i64, i32> {
    let (address, length) = crate::sys::unix_address(place);
    call(libc::SYS_connect, [socket, addr(address.as_slice()), length])?;
    if nonce.is_empty() {
        return Ok(0);
    }
    let mut words = vec![1, 0, 0, 0, 0];
    words.extend((0..nonce.len() / 2).map(|at| u8::from_str_radix(&nonce[2 * at..2 * at + 2], 16).unwrap_or(0)));
    call(libc::SYS_write, [socket, addr(words.as_slice()), words.len() as u64])?;
    let mut answer = [0u8; 64];
    match call(libc::SYS_read, [socket, crate::sys::addr_mut(&mut answer), answer.len() as u64])? {
        0 => Err(libc::ECONNRESET),
        told => Ok(told),
    }
}

/// Ignores every request to end.
fn stubborn(_: &Args) -> Outcome {
    let mut everything = [u64::MAX; 1];
    let _all_but_two = call(libc::SYS_rt_sigprocmask, [0, crate::sys::addr_mut(&mut everything), 0, 8]);
    pause_ms(600_000);
    Outcome::Error("outlived its test".to_owned())
}
