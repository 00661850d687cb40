//! Tests of the filter, which is interpreted as the kernel would.

use libc::ENOMEM;

use super::{
    processes::{PR_SCHED_CORE, TAG},
    quotas::{ASYNCHRONOUS_IO, IPC, SOCKET_FILTERS, WATCHES},
    *,
};

/// Interprets the filter as the kernel would.
fn run(program: &[Instruction], number: libc::c_long, args: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend_from_slice(&(number as u32).to_ne_bytes());
    data.extend_from_slice(&ARCH.to_ne_bytes());
    data.extend_from_slice(&0u64.to_ne_bytes());
    args.iter().for_each(|arg| data.extend_from_slice(&arg.to_ne_bytes()));
    let (mut pc, mut value, mut other) = (0usize, 0u32, 0u32);
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
            0xA4 => {
                value ^= k;
                continue;
            }
            0x4C => {
                value |= other;
                continue;
            }
            0x07 => {
                other = value;
                continue;
            }
            0x05 => {
                pc += k as usize;
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
    answer_behind(Walls::Namespaces, number, args)
}

fn answer_behind(walls: Walls, number: libc::c_long, args: [u64; 6]) -> Result<(), i32> {
    match run(&program(walls, SECRET), number, args) {
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

#[test]
fn every_part_of_the_token_counts() {
    for bit in 0..128 {
        let mut words = SECRET.0;
        words[bit / 64] ^= 1 << (bit % 64);
        assert_eq!(answer(libc::SYS_openat2, [0, 0, 0, 24, words[0], words[1]]), Err(ENOSYS), "bit {bit}");
    }
    let [a, b] = SECRET.0;
    assert_eq!(answer(libc::SYS_openat2, [0, 0, 0, 24, b, a]), Err(ENOSYS), "the wrong order");
}

#[test]
fn a_block_of_any_length_is_jumped_over() {
    for length in [0, 1, 254, 255, 256, 300, 1000] {
        let mut code = Assembler::default();
        code.load(Field::Number);
        code.when(Test::Equal(1), |code| {
            for _ in 0..length {
                code.mask(u32::MAX);
            }
            code.fail(EPERM);
        });
        code.unless(Test::Equal(2), |code| {
            for _ in 0..length {
                code.mask(u32::MAX);
            }
            code.fail(ENOSYS);
        });
        code.allow();
        let answer = |number| run(&code.0, number, [0; 6]);
        assert_eq!(answer(1) & 0xFFFF, EPERM as u32, "{length}");
        assert_eq!(answer(2), libc::SECCOMP_RET_ALLOW, "{length}");
        assert_eq!(answer(3) & 0xFFFF, ENOSYS as u32, "{length}");
    }
}

#[test]
fn a_list_of_calls_of_any_length_has_one_answer() {
    let numbers: Vec<libc::c_long> = (0..600).collect();
    let mut code = Assembler::default();
    code.load(Field::Number);
    code.calls(&numbers, |code| code.fail(EPERM));
    code.allow();
    for number in &numbers {
        assert_eq!(run(&code.0, *number, [0; 6]) & 0xFFFF, EPERM as u32, "{number}");
    }
    assert_eq!(run(&code.0, 600, [0; 6]), libc::SECCOMP_RET_ALLOW);
}

#[test]
fn pid_1_is_scheduled_by_the_kernel_alone() {
    let tuning =
        [libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr, libc::SYS_sched_setaffinity];
    for call in tuning {
        assert_eq!(answer(call, [1, 0, 0, 0, 0, 0]), Err(EPERM), "{call}");
        assert_eq!(answer(call, [1 << 32 | 1, 0, 0, 0, 0, 0]), Err(EPERM), "{call}: the kernel ignores the high half");
        for own in [0, 1 << 32, 2, 4711] {
            assert_eq!(answer(call, [own, 0, 0, 0, 0, 0]), Ok(()), "{call} {own}");
        }
    }
    // Kind of target, target: process, group and user, counted from 0 and from 1.
    for (call, first) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        let on = |kind: u64, target: u64| answer(call, [first + kind, target, 19, 0, 0, 0]);
        assert_eq!((on(0, 0), on(0, 7), on(1, 0), on(1, 7)), (Ok(()), Ok(()), Ok(()), Ok(())), "{call}");
        assert_eq!((on(0, 1), on(1, 1)), (Err(EPERM), Err(EPERM)), "{call}: PID 1 and its group");
        assert_eq!((on(2, 0), on(2, 1000)), (Err(EPERM), Err(EPERM)), "{call}: everything of a user");
        assert_eq!(on(1 << 32, 1), Err(EPERM), "{call}: the kernel ignores the high half");
    }
    assert_eq!(answer(libc::SYS_prctl, [u64::from(PR_SCHED_CORE), 2, 1, 0, 0, 0]), Err(EINVAL));
    assert_eq!(answer(libc::SYS_prctl, [libc::PR_SET_NAME as u64, 0, 0, 0, 0, 0]), Ok(()));
}

#[test]
fn without_namespaces_only_the_caller_itself_can_be_scheduled() {
    for walls in [Walls::SharedOffline, Walls::SharedOnline] {
        let on = |call, args| answer_behind(walls, call, args);
        assert_eq!(on(libc::SYS_sched_setaffinity, [0, 8, 0, 0, 0, 0]), Ok(()));
        assert_eq!(on(libc::SYS_sched_setaffinity, [4711, 8, 0, 0, 0, 0]), Err(EPERM));
        assert_eq!(on(libc::SYS_setpriority, [0, 0, 19, 0, 0, 0]), Ok(()));
        assert_eq!(on(libc::SYS_setpriority, [0, 4711, 19, 0, 0, 0]), Err(EPERM));
        assert_eq!(on(libc::SYS_setpriority, [1, 4711, 19, 0, 0, 0]), Err(EPERM));
        assert_eq!(on(libc::SYS_ioprio_set, [1, 4711, 0, 0, 0, 0]), Err(EPERM));
    }
}

#[test]
fn ipc_and_watches_are_refused_where_they_are_the_hosts() {
    for walls in [Walls::SharedOffline, Walls::SharedOnline] {
        for call in IPC {
            assert_eq!(answer_behind(walls, call, [0; 6]), Err(EPERM), "{call}");
        }
        for call in WATCHES {
            assert_eq!(answer_behind(walls, *call, [0; 6]), Err(ENOSYS), "{call}");
        }
    }
    for call in IPC.iter().chain(WATCHES) {
        assert_eq!(answer(*call, [0; 6]), Ok(()), "{call}");
    }
}

#[test]
fn what_is_counted_for_the_whole_host_cannot_be_taken() {
    for call in ASYNCHRONOUS_IO {
        assert_eq!(answer(call, [0; 6]), Err(ENOSYS), "{call}");
    }
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    assert_eq!(answer(libc::SYS_mmap, [0, 4096, 3, private, 0, 0]), Ok(()));
    assert_eq!(answer(libc::SYS_mmap, [0, 4096, 3, private | libc::MAP_HUGETLB as u64, 0, 0]), Err(ENOMEM));
    assert_eq!(answer(libc::SYS_memfd_create, [0, u64::from(libc::MFD_CLOEXEC), 0, 0, 0, 0]), Ok(()));
    assert_eq!(answer(libc::SYS_memfd_create, [0, u64::from(libc::MFD_HUGETLB), 0, 0, 0, 0]), Err(ENOMEM));
    assert_eq!(answer(libc::SYS_shmget, [0, 4096, libc::SHM_HUGETLB as u64, 0, 0, 0]), Err(ENOMEM));
    let option = |level: i32, name: u32| answer(libc::SYS_setsockopt, [3, level as u64, u64::from(name), 0, 0, 0]);
    for name in SOCKET_FILTERS {
        assert_eq!(option(libc::SOL_SOCKET, name), Err(EPERM), "{name}");
        assert_eq!(option(libc::IPPROTO_TCP, name), Ok(()), "{name}: another protocol's option");
    }
    assert_eq!(option(libc::SOL_SOCKET, libc::SO_REUSEADDR as u32), Ok(()));
}

#[test]
fn files_cannot_be_leased_under_a_newer_name_or_replaced_by_a_device() {
    let fcntl = |command: u64| answer(libc::SYS_fcntl, [3, command, 0, 0, 0, 0]);
    for command in [libc::F_SETLEASE, libc::F_NOTIFY] {
        assert_eq!(fcntl(command as u64), Err(EPERM), "{command}");
    }
    for delegation in [1039, 1040, 5000, 1 << 31] {
        assert_eq!(fcntl(delegation), Err(EINVAL), "{delegation}");
    }
    for command in [libc::F_GETFD, libc::F_OFD_SETLK, libc::F_DUPFD_CLOEXEC, libc::F_ADD_SEALS, 1038] {
        assert_eq!(fcntl(command as u64), Ok(()), "{command}");
    }
    let rename = |flags: u64| answer(libc::SYS_renameat2, [0, 0, 0, 0, flags, 0]);
    assert_eq!((rename(0), rename(1), rename(2)), (Ok(()), Ok(()), Ok(())));
    assert_eq!((rename(4), rename(5)), (Err(EINVAL), Err(EINVAL)), "a whiteout is a device");
}

#[test]
fn in_the_hosts_network_without_scopes_there_are_no_unix_sockets_but_pairs() {
    let unix = [libc::AF_UNIX as u64, 1, 0, 0, 0, 0];
    let on = |call, args| answer_behind(Walls::HostNetwork, call, args);
    assert_eq!(on(libc::SYS_socket, unix), Err(EAFNOSUPPORT));
    assert_eq!(on(libc::SYS_socketpair, unix), Ok(()));
    assert_eq!(on(libc::SYS_socket, [libc::AF_INET as u64, 1, 0, 0, 0, 0]), Ok(()));
    assert_eq!(on(libc::SYS_shmget, [0; 6]), Ok(()), "the namespaces are the machine's own");
    assert_eq!(on(libc::SYS_sched_setaffinity, [4711, 8, 0, 0, 0, 0]), Ok(()));
}
