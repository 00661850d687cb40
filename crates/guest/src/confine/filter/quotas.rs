//! Filter rules for resources that the kernel limits for the whole host, or per user across all machines.

use libc::{ENOMEM, ENOSYS, EPERM};

use super::{
    Walls,
    assembler::{Assembler, Field, Test},
};

/// `MAP_HUGETLB` of mmap.
const MAP_HUGETLB: u32 = libc::MAP_HUGETLB as u32;
/// `MFD_HUGETLB` of memfd_create.
const MFD_HUGETLB: u32 = libc::MFD_HUGETLB;
/// `SHM_HUGETLB` of shmget.
const SHM_HUGETLB: u32 = libc::SHM_HUGETLB as u32;
/// Socket options that load a filter into the kernel; compiled filters use memory that is limited for the whole host:
/// SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF.
pub(super) const SOCKET_FILTERS: [u32; 4] = [26, 50, 51, 52];

#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: libc::c_long = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: libc::c_long = 292;

/// The kernel counts asynchronous I/O contexts for the whole host. Programs work without these calls.
pub(super) const ASYNCHRONOUS_IO: [libc::c_long; 6] = [
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
];

/// System V and POSIX IPC: without an IPC namespace all its objects are the host's.
pub(super) const IPC: [libc::c_long; 18] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmdt,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_mq_getsetattr,
];

/// Landlock has no access right for inotify, so unreadable directories could be watched; and without a user namespace a
/// machine's watches count as the user's own. Programs without these calls poll instead.
pub(super) const WATCHES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
];

/// Refuses huge pages: they are reserved for the whole host, and no memory limit counts them.
pub(super) fn huge_pages(code: &mut Assembler, walls: Walls) {
    let mut refuse = |call: libc::c_long, flags: u8, bit: u32| {
        code.call(call, |code| {
            code.load(Field::Low(flags));
            code.when(Test::AnyBit(bit), |code| code.fail(ENOMEM));
        });
    };
    refuse(libc::SYS_mmap, 3, MAP_HUGETLB);
    refuse(libc::SYS_memfd_create, 1, MFD_HUGETLB);
    if walls.has_namespaces() {
        refuse(libc::SYS_shmget, 2, SHM_HUGETLB);
    }
}

/// Refuses calls whose resources are counted for the host whatever namespaces a machine has.
pub(super) fn counted(code: &mut Assembler) {
    code.calls(&ASYNCHRONOUS_IO, |code| code.fail(ENOSYS));
    code.call(libc::SYS_setsockopt, |code| {
        code.load(Field::Low(1));
        code.unless(Test::Equal(libc::SOL_SOCKET as u32), Assembler::allow);
        code.load(Field::Low(2));
        for option in SOCKET_FILTERS {
            code.when(Test::Equal(option), |code| code.fail(EPERM));
        }
    });
}

/// Refuses calls whose objects are the host's if a machine has no namespaces.
pub(super) fn shared(code: &mut Assembler) {
    code.calls(&IPC, |code| code.fail(EPERM));
    code.calls(WATCHES, |code| code.fail(ENOSYS));
}
