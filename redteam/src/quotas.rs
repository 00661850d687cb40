//! Group J, quotas of the whole host: what a command could take from everything else that runs there.

use libc::{ENOMEM, ENOSYS, EPERM};

use crate::{
    Attack,
    Control::Host,
    Outcome,
    sys::{addr, addr_mut, at, call, close},
};

const HUGE_PAGE: u64 = 2 << 20;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "J76.asynchronous-io",
        promise: "The host's contexts for asynchronous I/O cannot be used up.",
        control: Host,
        expect: &[ENOSYS],
        run: |_| {
            let mut context = 0u64;
            let made = call(libc::SYS_io_setup, [1, addr_mut(&mut context)]);
            if made.is_ok() {
                let _given_back = call(libc::SYS_io_destroy, [context]);
            }
            Outcome::of(made)
        },
    },
    Attack {
        name: "J76.huge-pages",
        promise: "The host's huge pages, which no limit on memory counts, cannot be used up.",
        control: Host,
        expect: &[ENOMEM],
        // Nothing is set aside, so that it works on a host that has none.
        run: |_| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_HUGETLB;
            let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
            Outcome::of(call(libc::SYS_mmap, [0, HUGE_PAGE, protection, flags as u64, u64::MAX, 0]))
        },
    },
    Attack {
        name: "J76.file-of-huge-pages",
        promise: "Nor in a memory file.",
        control: Host,
        expect: &[ENOMEM],
        run: |_| Outcome::of(call(libc::SYS_memfd_create, [at(c"huge"), u64::from(libc::MFD_HUGETLB)])),
    },
    Attack {
        name: "J76.segment-of-huge-pages",
        promise: "Nor in a System V segment.",
        control: Host,
        expect: &[ENOMEM],
        run: |_| {
            let flags = libc::IPC_CREAT | libc::SHM_HUGETLB | libc::SHM_NORESERVE | 0o600;
            let made = call(libc::SYS_shmget, [libc::IPC_PRIVATE as u64, HUGE_PAGE, flags as u64]);
            if let Ok(id) = made {
                let _removed = call(libc::SYS_shmctl, [id as u64, libc::IPC_RMID as u64, 0]);
            }
            Outcome::of(made)
        },
    },
    Attack {
        name: "J76.socket-filters",
        promise: "The host's memory for compiled filters cannot be used up by sockets.",
        control: Host,
        expect: &[EPERM],
        run: |_| {
            // One instruction: pass the whole packet on.
            let instruction = [6u16, 0, 0xFFFF, 0];
            let program = [1u64, addr(&instruction)];
            let mut pair = [0i32; 2];
            let (family, kind) = (libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64);
            let attached = call(libc::SYS_socketpair, [family, kind, 0, addr_mut(&mut pair)]).and_then(|_| {
                let (level, option) = (libc::SOL_SOCKET as u64, libc::SO_ATTACH_FILTER as u64);
                call(libc::SYS_setsockopt, [pair[0] as u64, level, option, addr(&program), 16])
            });
            pair.into_iter().for_each(close);
            Outcome::of(attached)
        },
    },
];
