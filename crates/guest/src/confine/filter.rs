//! The seccomp filter: which system calls commands are refused, and with which error.
//!
//! A denylist with an upper bound: calls newer than the newest known one fail with ENOSYS. So do calls whose file mode
//! the filter cannot see, except from the guest, which passes a [`Token`].

mod assembler;
mod processes;
mod quotas;

use std::io;

use libc::{EAFNOSUPPORT, EINVAL, ENOSYS, EPERM};

use self::assembler::{Assembler, Field, Test};
use super::Walls;
use crate::sys::security::{Instruction, Token, install_filter};

/// Newest call that commands may use: `removexattrat`, Linux 6.13.
const NEWEST: u32 = 466;

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Set-user-id and set-group-id bits. A file with them in a shared directory would give other users of the host the
/// owner's privileges, whatever this machine's mounts say.
const SET_ID: u32 = 0o6000;
const O_CREAT_OR_TMPFILE: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)) as u32;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
/// Sets a line discipline, which makes the kernel load a driver.
const TIOCSETD: u32 = 0x5423;
/// Newest known `fcntl` command: `F_SET_FILE_RW_HINT`. Delegations, which are leases by another name, came later.
const NEWEST_FCNTL: u32 = 1038;

/// Always refused: commands have no legitimate use for these calls.
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

/// Installs the filter for this process and all its descendants.
pub(crate) fn install(walls: Walls, token: Token) -> io::Result<()> {
    install_filter(&program(walls, token))
}

/// Assembles the filter. Calls with conditions on their arguments come first, frequent ones before rare ones; the
/// kernel caches which calls are always allowed.
fn program(walls: Walls, token: Token) -> Vec<Instruction> {
    let mut code = Assembler::default();
    code.load(Field::Arch);
    code.unless(Test::Equal(ARCH), |code| code.kill());
    code.load(Field::Number);
    code.when(Test::AtLeast(NEWEST + 1), |code| code.fail(ENOSYS));
    quotas::huge_pages(&mut code, walls);
    modes(&mut code);
    descriptors(&mut code);
    families(&mut code, walls);
    processes::namespaces(&mut code);
    processes::limits(&mut code, token);
    processes::scheduling(&mut code, walls);
    code.call(libc::SYS_openat2, |code| code.guest_only(token, ENOSYS));
    code.call(libc::SYS_renameat2, |code| {
        // A whiteout would replace the file with a character device.
        code.load(Field::Low(4));
        code.when(Test::AnyBit(libc::RENAME_WHITEOUT), |code| code.fail(EINVAL));
    });
    // fchmodat2: programs fall back to `fchmodat`, whose mode is checked above.
    code.calls(&[452], |code| code.fail(ENOSYS));
    quotas::counted(&mut code);
    if !walls.has_namespaces() {
        quotas::shared(&mut code);
    }
    code.calls(DENIED, |code| code.fail(EPERM));
    code.allow();
    code.0
}

/// Restricts `ioctl` and `fcntl`.
fn descriptors(code: &mut Assembler) {
    // Compare only the low half: the kernel ignores the high half, so comparing it would let calls slip through.
    code.call(libc::SYS_ioctl, |code| {
        code.load(Field::Low(1));
        for refused in [TIOCSTI, TIOCLINUX, TIOCSETD] {
            code.when(Test::Equal(refused), |code| code.fail(EPERM));
        }
    });
    code.call(libc::SYS_fcntl, |code| {
        code.load(Field::Low(1));
        // A lease lets its holder block other openers of the file: the guest and the host.
        code.when(Test::Equal(libc::F_SETLEASE as u32), |code| code.fail(EPERM));
        code.when(Test::Equal(libc::F_NOTIFY as u32), |code| code.fail(EPERM));
        code.when(Test::AtLeast(NEWEST_FCNTL + 1), |code| code.fail(EINVAL));
    });
}

/// Refuses to create a set-id file or to make one set-id.
fn modes(code: &mut Assembler) {
    let refuse = |code: &mut Assembler, mode: u8| {
        code.load(Field::Low(mode));
        code.when(Test::AnyBit(SET_ID), |code| code.fail(EPERM));
    };
    // The mode matters only if the call creates a file; otherwise the register holds arbitrary bits.
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

/// Allows only the socket families that a network namespace confines. (vsock, for example, is not confined.)
fn families(code: &mut Assembler, walls: Walls) {
    const ROUTE: u32 = libc::NETLINK_ROUTE as u32;
    code.call(libc::SYS_socket, |code| {
        code.load(Field::Low(0));
        // Without a file tree of its own, a path leads to sockets of the host's engines and agents; in the host's
        // network an abstract name does.
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

/// Allows streams and datagrams of common protocols; the others are rarely reviewed code in kernel modules that load on
/// demand.
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

#[cfg(test)]
mod tests;
