//! The seccomp filter: which system calls commands are refused, and with what error.
//!
//! A denylist with a lid: calls newer than the newest one known here do not exist for commands. Calls that hide their
//! file mode from the filter do not exist either, except for the guest, which shows a [`Token`].

use std::io;

use libc::{EAFNOSUPPORT, ENOSYS, EPERM};

use super::Walls;
use crate::sys::security::{Instruction, Token, install_filter};

/// The newest call commands may use: `removexattrat`, Linux 6.13.
const NEWEST: u32 = 466;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Set-user-id and set-group-id. A file with them in a shared directory would give other users of the host the owner's
/// powers, whatever this machine's own mounts say.
const SET_ID: u32 = 0o6000;
/// `clone` flags that make namespaces.
const NAMESPACES: u32 = 0x7E02_0000;
const O_CREAT_OR_TMPFILE: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
/// Line disciplines are drivers that load themselves.
const TIOCSETD: u32 = 0x5423;
const TAG: u32 = libc::RLIMIT_LOCKS;

/// Refused outright: no command of an agent's has an honest use for them that its user has the rights for.
const DENIED: &[libc::c_long] = &[
    // File trees and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    457, // statmount
    458, // listmount
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    443, // quotactl_fd
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_fanotify_init,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Large attack surface.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    447, // memfd_secret
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // The host itself.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ustat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_sysfs,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
];

/// Puts the filter on this process and all it will start.
pub(crate) fn install(walls: Walls, token: Token) -> io::Result<()> {
    install_filter(&program(walls, token))
}

/// Writes the filter down. The calls with conditions on their arguments come first: they are the frequent ones, and the
/// kernel remembers by itself which calls are always allowed.
fn program(walls: Walls, token: Token) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.load(Field::Arch);
    code.unless(Test::Equal(ARCH), |code| code.kill());
    code.load(Field::Number);
    code.when(Test::AtLeast(NEWEST + 1), |code| code.fail(ENOSYS));
    modes(&mut code);
    code.call(libc::SYS_ioctl, |code| {
        // Only the low half is compared: the kernel ignores the high half, so a filter that did not would be fooled.
        code.load(Field::Low(1));
        code.when(Test::Equal(TIOCSTI), |code| code.fail(EPERM));
        code.when(Test::Equal(TIOCLINUX), |code| code.fail(EPERM));
        code.when(Test::Equal(TIOCSETD), |code| code.fail(EPERM));
    });
    code.call(libc::SYS_fcntl, |code| {
        // A lease lets its holder keep others waiting for the file: the guest, and the host.
        code.load(Field::Low(1));
        code.when(Test::Equal(libc::F_SETLEASE as u32), |code| code.fail(EPERM));
    });
    families(&mut code, walls);
    code.call(libc::SYS_clone, |code| {
        code.load(Field::Low(0));
        code.when(Test::AnyBit(NAMESPACES), |code| code.fail(EPERM));
    });
    limits(&mut code, token);
    code.call(libc::SYS_openat2, |code| code.guest_only(token, ENOSYS));
    code.call(libc::SYS_personality, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(0), Assembler::allow);
        code.when(Test::Equal(u32::MAX), Assembler::allow);
        code.fail(EPERM);
    });
    // clone3 hides its flags in memory; programs fall back to clone.
    for hidden in [libc::SYS_clone3, 452 /* fchmodat2 */] {
        code.call(hidden, |code| code.fail(ENOSYS));
    }
    // Without an IPC namespace these are the host's.
    if walls != Walls::Namespaces {
        for shared in [libc::SYS_shmget, libc::SYS_shmat, libc::SYS_msgget, libc::SYS_semget, libc::SYS_mq_open] {
            code.call(shared, |code| code.fail(EPERM));
        }
    }
    for denied in DENIED {
        code.call(*denied, |code| code.fail(EPERM));
    }
    code.allow();
    code.0
}

/// Only the guest tags processes, and nobody changes the limits of others.
fn limits(code: &mut Assembler, token: Token) {
    code.call(libc::SYS_prlimit64, |code| {
        // Another process's limits can be its death (RLIMIT_CPU): the guest's, and without a PID namespace the host's.
        code.load(Field::Low(0));
        code.unless(Test::Equal(0), |code| {
            code.load(Field::Low(2));
            code.unless(Test::Equal(0), |code| code.fail(EPERM));
            code.load(Field::High(2));
            code.unless(Test::Equal(0), |code| code.fail(EPERM));
        });
        code.load(Field::Low(1));
        code.unless(Test::Equal(TAG), Assembler::allow);
        code.load(Field::Low(2));
        code.unless(Test::Equal(0), |code| code.guest_only(token, EPERM));
        code.load(Field::High(2));
        code.unless(Test::Equal(0), |code| code.guest_only(token, EPERM));
    });
    #[cfg(target_arch = "x86_64")]
    code.call(libc::SYS_setrlimit, |code| {
        code.load(Field::Low(0));
        code.when(Test::Equal(TAG), |code| code.fail(EPERM));
    });
}

/// No call may make or change a file to set-id.
fn modes(code: &mut Assembler) {
    let refuse = |code: &mut Assembler, mode: u8| {
        code.load(Field::Low(mode));
        code.when(Test::AnyBit(SET_ID), |code| code.fail(EPERM));
    };
    // A mode counts only when the call makes a file; otherwise the register holds whatever it held.
    let refuse_if_making = |code: &mut Assembler, flags: u8| {
        code.load(Field::Low(flags));
        code.unless(Test::AnyBit(O_CREAT_OR_TMPFILE), Assembler::allow);
        refuse(code, flags + 1);
    };
    code.call(libc::SYS_openat, |code| refuse_if_making(code, 2));
    #[cfg(target_arch = "x86_64")]
    {
        code.call(libc::SYS_open, |code| refuse_if_making(code, 1));
        for by_path in [libc::SYS_creat, libc::SYS_chmod, libc::SYS_mkdir, libc::SYS_mknod] {
            code.call(by_path, |code| refuse(code, 1));
        }
    }
    code.call(libc::SYS_fchmod, |code| refuse(code, 1));
    for at in [libc::SYS_fchmodat, libc::SYS_mkdirat, libc::SYS_mknodat] {
        code.call(at, |code| refuse(code, 2));
    }
}

/// Only the families a network namespace contains. (vsock, for one, reaches past it.)
fn families(code: &mut Assembler, walls: Walls) {
    const ROUTE: u32 = libc::NETLINK_ROUTE as u32;
    code.call(libc::SYS_socket, |code| {
        code.load(Field::Low(0));
        // Without a file tree of its own, a path leads to the sockets of the host's engines and agents.
        if walls == Walls::Namespaces {
            code.when(Test::Equal(libc::AF_UNIX as u32), Assembler::allow);
        }
        if walls != Walls::SharedOffline {
            for family in [libc::AF_INET, libc::AF_INET6] {
                code.when(Test::Equal(family as u32), common_transport);
            }
            code.when(Test::Equal(libc::AF_NETLINK as u32), |code| {
                code.load(Field::Low(2));
                code.when(Test::Equal(ROUTE), Assembler::allow);
            });
        }
        code.fail(EAFNOSUPPORT);
    });
    code.call(libc::SYS_socketpair, |code| {
        code.load(Field::Low(0));
        code.unless(Test::Equal(libc::AF_UNIX as u32), |code| code.fail(EAFNOSUPPORT));
    });
}

/// Streams and datagrams of the protocols everyone uses; the others are rarely looked at code that loads itself.
fn common_transport(code: &mut Assembler) {
    const PROTOCOLS: [i32; 5] =
        [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
    code.load(Field::Low(1));
    code.mask(0xF);
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
        code.when(Test::Equal(kind as u32), |code| {
            code.load(Field::Low(2));
            for protocol in PROTOCOLS {
                code.when(Test::Equal(protocol as u32), Assembler::allow);
            }
            code.fail(EAFNOSUPPORT);
        });
    }
    code.fail(EPERM);
}

/// A part of what the kernel tells a filter about a call.
#[derive(Clone, Copy)]
enum Field {
    Number,
    Arch,
    Low(u8),
    High(u8),
}

#[derive(Clone, Copy)]
enum Test {
    Equal(u32),
    AtLeast(u32),
    AnyBit(u32),
}

/// Appends instructions; conditions are blocks that are jumped over.
#[derive(Default)]
struct Assembler(Vec<Instruction>);

impl Assembler {
    fn load(&mut self, field: Field) {
        let offset = match field {
            Field::Number => 0,
            Field::Arch => 4,
            Field::Low(index) => 16 + 8 * u32::from(index),
            Field::High(index) => 20 + 8 * u32::from(index),
        };
        self.0.push(Instruction { code: 0x20, jt: 0, jf: 0, k: offset });
    }

    /// Keeps only these bits of what was loaded.
    fn mask(&mut self, bits: u32) {
        self.0.push(Instruction { code: 0x54, jt: 0, jf: 0, k: bits });
    }

    fn answer(&mut self, value: u32) {
        self.0.push(Instruction { code: 0x06, jt: 0, jf: 0, k: value });
    }

    fn allow(&mut self) {
        self.answer(libc::SECCOMP_RET_ALLOW);
    }

    fn fail(&mut self, errno: i32) {
        self.answer(libc::SECCOMP_RET_ERRNO | errno as u32 & 0xFFFF);
    }

    fn kill(&mut self) {
        self.answer(libc::SECCOMP_RET_KILL_PROCESS);
    }

    /// A block for when the loaded value passes the test.
    fn when(&mut self, test: Test, block: impl FnOnce(&mut Self)) {
        self.block(test, true, block);
    }

    /// A block for when it does not.
    fn unless(&mut self, test: Test, block: impl FnOnce(&mut Self)) {
        self.block(test, false, block);
    }

    fn block(&mut self, test: Test, enter_if: bool, block: impl FnOnce(&mut Self)) {
        let (code, k) = match test {
            Test::Equal(value) => (0x15, value),
            Test::AtLeast(value) => (0x35, value),
            Test::AnyBit(mask) => (0x45, mask),
        };
        let jump = self.0.len();
        self.0.push(Instruction { code, jt: 0, jf: 0, k });
        block(self);
        let over = u8::try_from(self.0.len() - jump - 1).unwrap_or(u8::MAX);
        if let Some(instruction) = self.0.get_mut(jump) {
            if enter_if { instruction.jf = over } else { instruction.jt = over }
        }
    }

    /// A block for one call, which allows it if it decides nothing else.
    fn call(&mut self, number: libc::c_long, block: impl FnOnce(&mut Self)) {
        self.when(Test::Equal(number as u32), |code| {
            block(code);
            code.allow();
        });
    }

    /// Allows the call to whoever knows the token.
    fn guest_only(&mut self, token: Token, errno: i32) {
        for (index, word) in (4..).zip(token.0) {
            self.load(Field::Low(index));
            self.unless(Test::Equal(word as u32), |code| code.fail(errno));
            self.load(Field::High(index));
            self.unless(Test::Equal((word >> 32) as u32), |code| code.fail(errno));
        }
        self.allow();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would.
    fn run(program: &[Instruction], number: libc::c_long, args: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend_from_slice(&(number as u32).to_ne_bytes());
        data.extend_from_slice(&ARCH.to_ne_bytes());
        data.extend_from_slice(&0u64.to_ne_bytes());
        args.iter().for_each(|arg| data.extend_from_slice(&arg.to_ne_bytes()));
        let (mut pc, mut value) = (0usize, 0u32);
        loop {
            let Instruction { code, jt, jf, k } = program[pc];
            pc += 1;
            let taken = match code {
                0x20 => {
                    value = u32::from_ne_bytes(data[k as usize..k as usize + 4].try_into().unwrap());
                    continue;
                }
                0x54 => {
                    value &= k;
                    continue;
                }
                0x06 => return k,
                0x15 => value == k,
                0x35 => value >= k,
                0x45 => value & k != 0,
                other => panic!("unknown instruction {other:#x}"),
            };
            pc += usize::from(if taken { jt } else { jf });
        }
    }

    const SECRET: Token = Token([0x1111_2222_3333_4444, 0x5555_6666_7777_8888]);

    fn answer(number: libc::c_long, args: [u64; 6]) -> Result<(), i32> {
        match run(&program(Walls::Namespaces, SECRET), number, args) {
            libc::SECCOMP_RET_ALLOW => Ok(()),
            other => Err((other & 0xFFFF) as i32),
        }
    }

    #[test]
    fn ordinary_calls_pass() {
        for number in [libc::SYS_read, libc::SYS_write, libc::SYS_execve, libc::SYS_futex, libc::SYS_mmap] {
            assert_eq!(answer(number, [0; 6]), Ok(()), "{number}");
        }
    }

    #[test]
    fn every_denied_call_is_denied() {
        for number in DENIED {
            assert_eq!(answer(*number, [0; 6]), Err(EPERM), "{number}");
        }
    }

    #[test]
    fn calls_from_the_future_do_not_exist() {
        assert_eq!(answer(i64::from(NEWEST) + 1, [0; 6]), Err(ENOSYS));
        assert_eq!(answer(0x4000_0000 + libc::SYS_read, [0; 6]), Err(ENOSYS), "x32");
    }

    #[test]
    fn set_id_modes_are_refused_only_where_they_count() {
        let create = libc::O_CREAT as u64;
        assert_eq!(answer(libc::SYS_openat, [0, 0, create, 0o4755, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_openat, [0, 0, create, 0o755, 0, 0]), Ok(()));
        assert_eq!(answer(libc::SYS_openat, [0, 0, 0, 0o4755, 0, 0]), Ok(()), "the mode is not looked at");
        assert_eq!(answer(libc::SYS_openat, [0, 0, libc::O_TMPFILE as u64, 0o2755, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_openat, [0, 0, libc::O_DIRECTORY as u64, 0o2755, 0, 0]), Ok(()));
        assert_eq!(answer(libc::SYS_fchmod, [0, 0o6755, 0, 0, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_fchmodat, [0, 0, 0o755, 0, 0, 0]), Ok(()));
    }

    #[test]
    fn terminal_injection_is_refused_whatever_the_high_half_says() {
        assert_eq!(answer(libc::SYS_ioctl, [0, u64::from(TIOCSTI), 0, 0, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_ioctl, [0, 1 << 32 | u64::from(TIOCSTI), 0, 0, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]), Ok(()));
    }

    #[test]
    fn only_contained_socket_families_exist() {
        let family = |family: i32, protocol: u64| answer(libc::SYS_socket, [family as u64, 1, protocol, 0, 0, 0]);
        assert_eq!(family(libc::AF_UNIX, 0), Ok(()));
        assert_eq!(family(libc::AF_INET6, 0), Ok(()));
        assert_eq!(family(libc::AF_NETLINK, 0), Ok(()));
        assert_eq!(family(libc::AF_NETLINK, 9), Err(EAFNOSUPPORT));
        for other in [libc::AF_VSOCK, libc::AF_PACKET, libc::AF_ALG, libc::AF_BLUETOOTH] {
            assert_eq!(family(other, 0), Err(EAFNOSUPPORT), "{other}");
        }
        assert_eq!(answer(libc::SYS_socket, [libc::AF_INET as u64, 5, 0, 0, 0, 0]), Err(EPERM), "sctp");
        assert_eq!(answer(libc::SYS_socket, [libc::AF_INET as u64, 0o2000001, 6, 0, 0, 0]), Ok(()), "cloexec");
        assert_eq!(answer(libc::SYS_socket, [libc::AF_INET as u64, 1, 132, 0, 0, 0]), Err(EAFNOSUPPORT), "sctp");
    }

    #[test]
    fn without_namespaces_nothing_shared_with_the_host_is_reached() {
        let allowed = |walls: Walls, number: libc::c_long, args: [u64; 6]| {
            run(&program(walls, SECRET), number, args) == libc::SECCOMP_RET_ALLOW
        };
        let (unix, inet) = ([libc::AF_UNIX as u64, 1, 0, 0, 0, 0], [libc::AF_INET as u64, 1, 0, 0, 0, 0]);
        for walls in [Walls::SharedOffline, Walls::SharedOnline] {
            assert!(!allowed(walls, libc::SYS_socket, unix));
            assert!(!allowed(walls, libc::SYS_shmget, [0; 6]));
            assert!(allowed(walls, libc::SYS_socketpair, unix));
        }
        assert!(!allowed(Walls::SharedOffline, libc::SYS_socket, inet));
        assert!(allowed(Walls::SharedOnline, libc::SYS_socket, inet));
        assert!(allowed(Walls::Namespaces, libc::SYS_shmget, [0; 6]));
        assert!(!allowed(Walls::Namespaces, libc::SYS_prlimit64, [1, 7, 0x1000, 0, 0, 0]), "the guest's limits");
    }

    #[test]
    fn reserved_calls_need_the_token() {
        let [a, b] = SECRET.0;
        assert_eq!(answer(libc::SYS_openat2, [0, 0, 0, 24, 0, 0]), Err(ENOSYS));
        assert_eq!(answer(libc::SYS_openat2, [0, 0, 0, 24, a, b ^ 1 << 40]), Err(ENOSYS));
        assert_eq!(answer(libc::SYS_openat2, [0, 0, 0, 24, a, b]), Ok(()));
        let tag = u64::from(TAG);
        assert_eq!(answer(libc::SYS_prlimit64, [0, tag, 0x1000, 0, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_prlimit64, [0, tag, 1 << 32, 0, 0, 0]), Err(EPERM));
        assert_eq!(answer(libc::SYS_prlimit64, [0, tag, 0x1000, 0, a, b]), Ok(()));
        assert_eq!(answer(libc::SYS_prlimit64, [0, tag, 0, 0x1000, 0, 0]), Ok(()), "reading is free");
        assert_eq!(answer(libc::SYS_prlimit64, [0, 7, 0x1000, 0, 0, 0]), Ok(()));
    }
}
