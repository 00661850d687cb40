//! What the kernel has only so much of for the whole host, or for a user in all of its machines.

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
/// Socket options that load a filter into the kernel, whose memory for compiled ones is the host's:
/// SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF.
pub(super) const SOCKET_FILTERS: [u32; 4] = [26, 50, 51, 52];

#[cfg(target_arch = "x86_64")]
const IO_PGETEVENTS: libc::c_long = 333;
#[cfg(target_arch = "aarch64")]
const IO_PGETEVENTS: libc::c_long = 292;

/// Contexts for asynchronous I/O are counted for the host. Programs that find no such calls do without.
pub(super) const ASYNCHRONOUS_IO: [libc::c_long; 6] = [
    libc::SYS_io_setup,
    libc::SYS_io_destroy,
    libc::SYS_io_submit,
    libc::SYS_io_cancel,
    libc::SYS_io_getevents,
    IO_PGETEVENTS,
];

/// System V and POSIX objects, by key, by name and by number: without an IPC namespace all of them are the host's.
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

/// Landlock has no right for watching, so that directories which cannot be read could be watched, and watches of a
/// machine without a user namespace are counted with the user's own. Programs that find no such calls look again and again.
pub(super) const WATCHES: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_add_watch,
];

/// Huge pages are set aside for the whole host, and outside every limit on memory.
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

/// What is counted whatever namespaces a machine has.
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

/// What is the host's where a machine has no namespaces of its own.
pub(super) fn shared(code: &mut Assembler) {
    code.calls(&IPC, |code| code.fail(EPERM));
    code.calls(WATCHES, |code| code.fail(ENOSYS));
}
