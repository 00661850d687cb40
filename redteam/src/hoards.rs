//! Programs that take as much of a resource as they can get, and keep it while the runner looks what is left for others.

use crate::{
    Args, Outcome,
    storms::Storm,
    sys::{addr, addr_mut, at, call, exit, fork, name_of, open, pause_ms, text},
};

pub(crate) const STORMS: &[Storm] = &[("hoard", hoard), ("dig", dig), ("names", names), ("spin", spin)];

/// A signal that no program uses.
const SIGNAL: u64 = 40;
/// More than any limit allows.
const ALL: i64 = 1 << 20;

/// Takes the resource `what` until it is exhausted or `most` are taken, prints the count, and keeps them if `stay` is given.
fn hoard(a: &Args) -> Outcome {
    let most = if a.number("most") > 0 { a.number("most") } else { ALL };
    let take: fn() -> Result<(), i32> = match a.get("what") {
        "watches" => || call(libc::SYS_inotify_init1, [0]).map(drop),
        "terminals" => || open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY, 0).map(drop),
        "signals" => || queue_a_signal(std::process::id()),
        "signals-of-the-guest" => || queue_a_signal(1),
        "descriptors-on-the-way" => send_descriptors,
        _ => return Outcome::Error("what?".to_owned()),
    };
    let _all_there_is = raise_soft_limit(u64::from(libc::RLIMIT_NOFILE));
    let blocked = [1u64 << (SIGNAL - 1)];
    let _for_signals = call(libc::SYS_rt_sigprocmask, [0, addr(&blocked), 0, 8]);
    let (mut taken, mut why) = (0, 0);
    while taken < most {
        match take() {
            Ok(()) => taken += 1,
            Err(errno) => {
                why = errno;
                break;
            }
        }
    }
    let words = format!("hoards {taken} {}\n", name_of(why));
    let _nobody_listens = call(libc::SYS_write, [1, addr(words.as_bytes()), words.len() as u64]);
    if !a.get("stay").is_empty() {
        pause_ms(600_000);
    }
    Outcome::Refused(why, format!("after {taken}"))
}

fn raise_soft_limit(resource: u64) -> Result<i64, i32> {
    let mut limit = [0u64; 2];
    call(libc::SYS_prlimit64, [0, resource, 0, addr_mut(&mut limit)])?;
    call(libc::SYS_prlimit64, [0, resource, addr(&[limit[1]; 2]), 0])
}

/// Where it is blocked, it waits: the guest blocks nearly all, and this program the one.
fn queue_a_signal(process: u32) -> Result<(), i32> {
    let mut about = [0i32; 32];
    (about[0], about[2]) = (SIGNAL as i32, -1);
    call(libc::SYS_rt_sigqueueinfo, [u64::from(process), SIGNAL, addr(&about)]).map(drop)
}

/// One hundred descriptors in a message that is never received.
fn send_descriptors() -> Result<(), i32> {
    const COUNT: usize = 100;
    let mut pair = [0i32; 2];
    call(libc::SYS_socketpair, [libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64, 0, addr_mut(&mut pair)])?;
    // Length, level and type, then the descriptors.
    let mut control = [0u64; 2 + COUNT / 2];
    control[0] = (16 + 4 * COUNT) as u64;
    control[1] = u64::from(libc::SOL_SOCKET.cast_unsigned()) | (libc::SCM_RIGHTS as u64) << 32;
    let piece = [at(c"x"), 1];
    let message = [0, 0, addr(&piece), 1, addr(&control), size_of_val(&control) as u64, 0];
    call(libc::SYS_sendmsg, [pair[0] as u64, addr(&message), 0]).map(drop)
}

/// A directory in a directory in a directory: deeper than any path can say.
fn dig(a: &Args) -> Outcome {
    let name = text(&"d".repeat(a.number("letters").clamp(1, 255) as usize));
    let start = text(a.get("dir"));
    let dug = || -> Result<i64, i32> {
        call(libc::SYS_chdir, [at(&start)])?;
        for _ in 0..a.number("depth") {
            call(libc::SYS_mkdirat, [libc::AT_FDCWD as u64, at(&name), 0o755])?;
            call(libc::SYS_chdir, [at(&name)])?;
        }
        Ok(0)
    };
    Outcome::of(dug())
}

/// Files whose names are as long, as many and as odd as the kernel lets them be.
fn names(a: &Args) -> Outcome {
    use std::os::unix::ffi::OsStrExt;
    let odd: [&[u8]; 6] = [b"\xff\xfe", b"a\nb", b"\x1b]0;title\x07", b" ", b"-rf", b"..."];
    let mut made = 0;
    let dir = std::path::Path::new(a.get("dir"));
    let mut make = |name: &[u8]| {
        let file = std::fs::File::create(dir.join(std::ffi::OsStr::from_bytes(name)));
        made += u32::from(file.is_ok());
    };
    odd.into_iter().for_each(&mut make);
    for number in 0..a.number("count") {
        make(format!("{number:0>255}").as_bytes());
    }
    Outcome::Reached(format!("{made} files"))
}

/// Uses every processor there is, twice over.
fn spin(_: &Args) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    for _ in 0..2 * processors {
        if fork() == Ok(0) {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while std::time::Instant::now() < until {
                std::hint::spin_loop();
            }
            exit(0);
        }
    }
    pause_ms(600_000);
    Outcome::Error("outlived its test".to_owned())
}
