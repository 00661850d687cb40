//! Group E: gaining powers, or reaching the kernel where it is soft.

use libc::{EACCES, EINVAL, ENOENT, ENOSYS, ENXIO, EPERM};

use crate::{
    Args, Attack,
    Control::{Host, Namespaces},
    Outcome,
    sys::{Ended, addr, addr_mut, at, call, close, exit, in_child, name_of, open, text, wait},
};

/// A call that is made with harmless or invalid words, and refused whatever they are.
macro_rules! plain {
    ($name:literal, $promise:literal, $control:ident, [$($errno:ident),*], $call:expr) => {
        Attack { name: $name, promise: $promise, control: $control, expect: &[$($errno),*], run: |_| Outcome::of($call) }
    };
}

pub(crate) const ATTACKS: &[Attack] = &[
    plain!(
        "E32.new-user-namespace",
        "No user namespace can be made.",
        Host,
        [EPERM],
        call(libc::SYS_unshare, [libc::CLONE_NEWUSER as u64])
    ),
    plain!(
        "E32.new-mount-namespace",
        "No mount namespace can be made.",
        Namespaces,
        [EPERM],
        call(libc::SYS_unshare, [libc::CLONE_NEWNS as u64])
    ),
    plain!("E32.clone-into-a-namespace", "Nor by clone.", Host, [EPERM], clone_into()),
    plain!("E32.clone3", "Nor by clone3, whose flags cannot be seen.", Host, [ENOSYS], clone3()),
    plain!(
        "E32.enter-a-namespace",
        "No other namespace can be entered.",
        Namespaces,
        [EPERM],
        open("/proc/self/ns/net", libc::O_RDONLY, 0).and_then(|fd| call(libc::SYS_setns, [fd as u64, 0]))
    ),
    Attack {
        name: "E33.new-privileges",
        promise: "Set-user-id programs and file capabilities give nothing.",
        control: Host,
        expect: &[],
        run: |_| status(&["NoNewPrivs"], |value| value == "0"),
    },
    Attack {
        name: "E33.capabilities",
        promise: "No capability is left, in any set.",
        control: Host,
        expect: &[],
        run: |_| {
            let all = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
            status(&all, |value| value.bytes().any(|digit| digit != b'0'))
        },
    },
    Attack {
        name: "E33.become-root",
        promise: "A command cannot become another user.",
        control: Namespaces,
        expect: &[EPERM, EINVAL],
        run: |a| {
            // A process that is root tries to become another user.
            let is_root = !a.get("inside").is_empty() && call(libc::SYS_getuid, []) == Ok(0);
            Outcome::of(call(libc::SYS_setresuid, [u64::from(is_root); 3]))
        },
    },
    Attack {
        name: "E33.run-a-set-id-program",
        promise: "A set-user-id program runs with the caller's own rights.",
        control: Host,
        expect: &[],
        run: |a| run_set_id(a),
    },
    plain!("E35.bpf", "No program can be loaded into the kernel.", Host, [EPERM], call(libc::SYS_bpf, [9999, 0, 0])),
    plain!(
        "E35.perf",
        "Performance counters cannot be opened.",
        Host,
        [EPERM],
        call(libc::SYS_perf_event_open, [0, 0, u64::MAX, u64::MAX, 0])
    ),
    plain!("E35.io-uring", "Calls cannot be made around the filter through io_uring.", Host, [EPERM], io_uring()),
    plain!("E35.file-lease", "No process can be kept waiting for a file by a lease.", Host, [EPERM], lease()),
    plain!(
        "E35.file-delegation",
        "Nor by what newer kernels call a delegation.",
        Host,
        [EINVAL],
        on_a_directory(1040, 0)
    ),
    plain!(
        "E35.directory-notification",
        "No signal tells what others do in a directory.",
        Host,
        [EPERM],
        on_a_directory(libc::F_NOTIFY, 1)
    ),
    plain!("E35.userfaultfd", "Page faults cannot be held up.", Host, [EPERM], call(libc::SYS_userfaultfd, [1])),
    plain!("E35.secret-memory", "No memory can be hidden from the kernel.", Host, [EPERM], call(447, [0])),
    plain!("E36.join-a-keyring", "Keyrings cannot be joined.", Host, [EPERM], call(libc::SYS_keyctl, [1, 0])),
    plain!(
        "E36.read-the-user-keyring",
        "The user's keys cannot be read.",
        Host,
        [EPERM],
        call(libc::SYS_keyctl, [11, (-4i64) as u64, 0, 0])
    ),
    plain!(
        "E36.add-a-key",
        "Keys cannot be added.",
        Host,
        [EPERM],
        call(libc::SYS_add_key, [at(c"user"), at(c"redteam"), at(c"x"), 1, (-2i64) as u64])
    ),
    plain!(
        "E36.request-a-key",
        "Keys cannot be asked for.",
        Host,
        [EPERM],
        call(libc::SYS_request_key, [at(c"user"), at(c"redteam-none"), 0, 0])
    ),
    plain!(
        "E37.load-a-module",
        "No module can be loaded.",
        Host,
        [EPERM],
        call(libc::SYS_finit_module, [u64::MAX, at(c""), 0])
    ),
    plain!("E37.load-a-module-from-memory", "Nor from memory.", Host, [EPERM], call(libc::SYS_init_module, [0, 0, 0])),
    plain!(
        "E37.unload-a-module",
        "No module can be removed.",
        Host,
        [EPERM],
        call(libc::SYS_delete_module, [at(c"redteam_none"), libc::O_NONBLOCK as u64])
    ),
    plain!(
        "E37.kexec",
        "No other kernel can be booted.",
        Host,
        [EPERM],
        call(libc::SYS_kexec_load, [0, 1 << 20, 0, 0xFFFF])
    ),
    plain!("E37.reboot", "The host cannot be rebooted.", Namespaces, [EPERM], call(libc::SYS_reboot, [0, 0, 0, 0])),
    plain!("E37.ports", "Hardware ports cannot be opened.", Host, [EPERM, ENOSYS], io_ports()),
    plain!(
        "E37.kernel-messages",
        "The kernel's messages cannot be read.",
        Host,
        [EPERM],
        call(libc::SYS_syslog, [10, 0, 0])
    ),
    plain!("E37.set-the-clock", "The clock cannot be set.", Host, [EPERM], {
        let nonsense = [-1i64, -1];
        call(libc::SYS_clock_settime, [0, addr(&nonsense)])
    }),
    plain!("E37.adjust-the-clock", "The clock cannot be adjusted.", Host, [EPERM], {
        let mut timex = [0u64; 32];
        call(libc::SYS_adjtimex, [addr_mut(&mut timex)])
    }),
    plain!(
        "E37.host-name",
        "The host's name cannot be changed.",
        Namespaces,
        [EPERM],
        call(libc::SYS_sethostname, [at(c"redteam"), 7])
    ),
    plain!(
        "E37.accounting",
        "Process accounting cannot be turned on.",
        Host,
        [EPERM],
        call(libc::SYS_acct, [at(c"/nonexistent")])
    ),
    plain!("E37.swap", "Swap cannot be changed.", Host, [EPERM], call(libc::SYS_swapon, [at(c"/nonexistent"), 0])),
    plain!("E37.quota", "Quotas cannot be changed.", Host, [EPERM], call(libc::SYS_quotactl, [0xFFFF_FFFF, 0, 0, 0])),
    plain!(
        "E37.watch-every-file",
        "File systems cannot be watched whole.",
        Host,
        [EPERM],
        call(libc::SYS_fanotify_init, [0x200, 0])
    ),
    plain!(
        "E37.personality",
        "Memory protections cannot be turned off by personality.",
        Host,
        [EPERM],
        call(libc::SYS_personality, [0x0040_0000])
    ),
    Attack {
        name: "E38.ia32-call",
        promise: "The 32-bit system call table cannot be used to walk around the filter.",
        control: Host,
        expect: &[],
        run: |_| ia32(),
    },
    plain!("E38.x32-call", "Nor the x32 table.", Host, [ENOSYS], call(0x4000_0000 | libc::SYS_getpid, [])),
    plain!(
        "E38.call-from-the-future",
        "Calls newer than the filter do not exist.",
        Host,
        [ENOSYS],
        call(467, [0, 0, 0, 0])
    ),
    plain!("E38.openat2", "A call that hides a file's mode does not exist for commands.", Host, [ENOSYS], {
        let how = [0u64; 3];
        call(libc::SYS_openat2, [libc::AT_FDCWD as u64, at(c"/"), addr(&how), 24])
    }),
    Attack {
        name: "E39.type-into-a-terminal",
        promise: "Nothing can be typed into a terminal on the user's behalf.",
        control: Host,
        expect: &[EPERM],
        run: |_| on_own_terminal(0x5412),
    },
    Attack {
        name: "E39.type-with-high-bits",
        promise: "Nor with high bits in the command, which the kernel ignores.",
        control: Host,
        expect: &[EPERM],
        run: |_| on_own_terminal(0x1_0000_5412),
    },
    Attack {
        name: "E39.paste-into-a-console",
        promise: "Nor by a console's clipboard.",
        control: Host,
        expect: &[EPERM],
        run: |_| on_own_terminal(0x541C),
    },
    Attack {
        name: "E40.open-the-harness-terminal",
        promise: "The user's terminal cannot be written to.",
        control: Host,
        expect: &[ENOENT, EACCES],
        run: |a| Outcome::of(open(a.get("pts"), libc::O_RDWR | libc::O_NOCTTY, 0)),
    },
    Attack {
        name: "E40.controlling-terminal",
        promise: "A command without a terminal has none.",
        control: Namespaces,
        expect: &[ENXIO],
        run: |_| controlling_terminal(),
    },
    Attack {
        name: "E41.make-a-block-device",
        promise: "No block device can be made.",
        control: Host,
        expect: &[EPERM, EACCES],
        run: |a| make_node(a, libc::S_IFBLK, 0x0700),
    },
    Attack {
        name: "E41.make-a-character-device",
        promise: "No character device can be made.",
        control: Host,
        expect: &[EPERM, EACCES],
        run: |a| make_node(a, libc::S_IFCHR, 0x0101),
    },
    Attack {
        name: "E41.leave-a-whiteout",
        promise: "Nor by a rename that leaves one behind, which hides a file where the directory is a layer.",
        control: Host,
        expect: &[EINVAL],
        run: leave_a_whiteout,
    },
    Attack {
        name: "E41.open-host-devices",
        promise: "None of the host's disks, its memory, KVM, FUSE or tunnels exist inside.",
        control: Host,
        expect: &[ENOENT],
        run: |_| host_devices(),
    },
];

fn clone_into() -> Result<i64, i32> {
    let child = call(libc::SYS_clone, [(libc::CLONE_NEWUSER | libc::SIGCHLD) as u64, 0, 0, 0, 0])?;
    if child == 0 {
        exit(0);
    }
    let _reaped = wait(child as i32);
    Ok(child)
}

fn clone3() -> Result<i64, i32> {
    let mut arguments = [0u64; 8];
    arguments[0] = libc::CLONE_NEWUSER as u64;
    arguments[4] = libc::SIGCHLD as u64;
    let child = call(libc::SYS_clone3, [addr(&arguments), 64])?;
    if child == 0 {
        exit(0);
    }
    let _reaped = wait(child as i32);
    Ok(child)
}

fn status(names: &[&str], is_bad: impl Fn(&str) -> bool) -> Outcome {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut seen = 0;
    for (name, value) in status.lines().filter_map(|line| line.split_once(':')) {
        if names.contains(&name) {
            seen += 1;
            if is_bad(value.trim()) {
                return Outcome::Reached(format!("{name} is {}", value.trim()));
            }
        }
    }
    if seen == names.len() { Outcome::Refused(0, "none".to_owned()) } else { Outcome::Error("no status".to_owned()) }
}

/// Runs a copy of this program that belongs to another user and is set-user-id.
fn run_set_id(a: &Args) -> Outcome {
    match std::process::Command::new(a.get("setid")).arg("--whoami").output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            match text.split_once(' ') {
                Some((real, effective)) if real == effective => Outcome::Refused(0, format!("both {real}")),
                Some(_) => Outcome::Reached(text),
                None => Outcome::Error(format!("{text:?} {:?}", output.status)),
            }
        }
        Err(error) => Outcome::Error(error.to_string()),
    }
}

fn io_uring() -> Result<i64, i32> {
    let mut parameters = [0u64; 15];
    let ring = call(libc::SYS_io_uring_setup, [4, addr_mut(&mut parameters)])?;
    close(ring as i32);
    Ok(ring)
}

/// A lease on the attacker's own file, which delays every process that opens the file.
fn lease() -> Result<i64, i32> {
    let file = std::env::temp_dir().join(format!("lease-{}", std::process::id()));
    std::fs::write(&file, "x").map_err(|error| error.raw_os_error().unwrap_or(EINVAL))?;
    let handle = std::fs::File::open(&file).map_err(|error| error.raw_os_error().unwrap_or(EINVAL))?;
    let leased = call(libc::SYS_fcntl, [std::os::fd::AsRawFd::as_raw_fd(&handle) as u64, libc::F_SETLEASE as u64, 0]);
    let _only_a_file = std::fs::remove_file(&file);
    leased
}

/// `fcntl` on a directory that can be read on every machine.
fn on_a_directory(command: i32, argument: u64) -> Result<i64, i32> {
    let directory = open("/usr", libc::O_RDONLY, 0)?;
    let answer = call(libc::SYS_fcntl, [directory as u64, command as u64, argument]);
    close(directory);
    answer
}

#[cfg(target_arch = "x86_64")]
fn io_ports() -> Result<i64, i32> {
    call(libc::SYS_ioperm, [0x80, 1, 1])
}

#[cfg(not(target_arch = "x86_64"))]
fn io_ports() -> Result<i64, i32> {
    Err(ENOSYS)
}

#[cfg(target_arch = "x86_64")]
fn ia32() -> Outcome {
    match in_child(|| i32::from(crate::sys::ia32_getpid() <= 0)) {
        Ok(Ended::Exited(0)) => Outcome::Reached("getpid answered".to_owned()),
        Ok(Ended::Exited(_)) => Outcome::Refused(ENOSYS, name_of(ENOSYS)),
        Ok(Ended::Signaled(signal)) => Outcome::Refused(0, format!("killed by signal {signal}")),
        Err(errno) => Outcome::Error(name_of(errno)),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn ia32() -> Outcome {
    let _not_here = in_child(|| 0).map(|ended| ended == Ended::Exited(0));
    Outcome::Refused(ENOSYS, "no such table".to_owned())
}

/// Makes a terminal of its own, has a child take it as controlling terminal, and tries a command on it.
fn on_own_terminal(command: u64) -> Outcome {
    let tried = || -> Result<i64, i32> {
        let master = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY, 0)?;
        let unlock = 0i32;
        call(libc::SYS_ioctl, [master as u64, libc::TIOCSPTLCK, addr(&unlock)])?;
        let slave = call(libc::SYS_ioctl, [master as u64, 0x5441, (libc::O_RDWR | libc::O_NOCTTY) as u64])?;
        call(libc::SYS_setsid, [])?;
        call(libc::SYS_ioctl, [slave as u64, libc::TIOCSCTTY, 0])?;
        let byte = [b'x'];
        call(libc::SYS_ioctl, [slave as u64, command, addr(&byte)])
    };
    match in_child(|| tried().err().unwrap_or(0)) {
        Ok(Ended::Exited(0)) => Outcome::Reached("typed".to_owned()),
        Ok(Ended::Exited(errno)) => Outcome::Refused(errno, name_of(errno)),
        other => Outcome::Error(format!("{other:?}")),
    }
}

/// In fresh namespaces the probe first takes a terminal, as a harness that passed its own on would have.
fn controlling_terminal() -> Outcome {
    if std::env::args().any(|word| word == "--namespaces") {
        let taken = || -> Result<(), i32> {
            let master = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY, 0)?;
            let unlock = 0i32;
            call(libc::SYS_ioctl, [master as u64, libc::TIOCSPTLCK, addr(&unlock)])?;
            let slave = call(libc::SYS_ioctl, [master as u64, 0x5441, (libc::O_RDWR | libc::O_NOCTTY) as u64])?;
            let _already_leader = call(libc::SYS_setsid, []);
            call(libc::SYS_ioctl, [slave as u64, libc::TIOCSCTTY, 0]).map(drop)
        };
        if let Err(errno) = taken() {
            return Outcome::Error(name_of(errno));
        }
    }
    Outcome::of(open("/dev/tty", libc::O_RDWR, 0))
}

fn make_node(a: &Args, kind: u32, device: u64) -> Outcome {
    let path = text(&format!("{}/node-{}", a.get("dir"), a.get("token")));
    let mode = u64::from(kind | 0o600);
    let made = call(libc::SYS_mknodat, [libc::AT_FDCWD as u64, at(&path), mode, device]);
    if made.is_ok() {
        let _best_effort = call(libc::SYS_unlinkat, [libc::AT_FDCWD as u64, at(&path), 0]);
    }
    Outcome::of(made)
}

fn leave_a_whiteout(a: &Args) -> Outcome {
    let [from, to] = ["whiteout", "moved"].map(|name| format!("{}/{name}", a.get("dir")));
    let [from_text, to_text] = [text(&from), text(&to)];
    if std::fs::write(&from, "x").is_err() {
        return Outcome::Error("no file to rename".to_owned());
    }
    let here = libc::AT_FDCWD as u64;
    let flags = u64::from(libc::RENAME_WHITEOUT);
    let renamed = call(libc::SYS_renameat2, [here, at(&from_text), here, at(&to_text), flags]);
    for path in [from, to] {
        let _not_there = std::fs::remove_file(path);
    }
    Outcome::of(renamed)
}

fn host_devices() -> Outcome {
    let all = ["vda", "sda", "nvme0n1", "kvm", "mem", "fuse", "net/tun", "loop-control", "kmsg", "port", "vsock"];
    let mut last = ENOENT;
    for name in all {
        match open(&format!("/dev/{name}"), libc::O_RDONLY | libc::O_NONBLOCK, 0) {
            Ok(fd) => {
                close(fd);
                return Outcome::Reached(name.to_owned());
            }
            Err(ENOENT) => {}
            Err(errno) => last = errno,
        }
    }
    Outcome::Refused(last, name_of(last))
}
