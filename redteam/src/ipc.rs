//! Group F, objects by their number: queues, semaphores and shared memory of the host's, without asking for them by key.

use libc::{E2BIG, EINVAL, ENOENT};

use crate::{
    Attack,
    Control::Host,
    Outcome,
    sys::{addr, addr_mut, at, call, text},
};

/// Larger than what the kernel tells about any of them.
type About = [u64; 32];
const NO_WAIT: u64 = libc::IPC_NOWAIT as u64;
/// One semaphore, the first, by one more, without waiting.
const RELEASE: [i16; 3] = [0, 1, libc::IPC_NOWAIT as i16];

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "F47.look-at-memory-by-number",
        promise: "Shared memory of the host cannot be looked at by its number, which can be guessed.",
        control: Host,
        expect: &[EINVAL],
        run: |a| control(libc::SYS_shmctl, [a.number("shmid") as u64, libc::IPC_STAT as u64]),
    },
    Attack {
        name: "F47.attach-memory-by-number",
        promise: "Nor attached.",
        control: Host,
        expect: &[EINVAL],
        run: |a| {
            let attached = call(libc::SYS_shmat, [a.number("shmid") as u64, 0, libc::SHM_RDONLY as u64]);
            if let Ok(address) = attached {
                let _detached = call(libc::SYS_shmdt, [address as u64]);
            }
            Outcome::of(attached)
        },
    },
    Attack {
        name: "F47.change-memory-by-number",
        promise: "Nor changed or removed.",
        control: Host,
        expect: &[EINVAL],
        run: |a| change(libc::SYS_shmctl, a.number("shmid")),
    },
    Attack {
        name: "F47.read-a-message-by-number",
        promise: "Messages of the host cannot be received by their queue's number.",
        control: Host,
        expect: &[EINVAL],
        run: |a| {
            let mut message = [0u64; 2];
            // With room for nothing it stays where it is, and the error says that it is there.
            match call(libc::SYS_msgrcv, [a.number("msgid") as u64, addr_mut(&mut message), 0, 0, NO_WAIT]) {
                Err(E2BIG) => Outcome::Reached("a message is there".to_owned()),
                other => Outcome::of(other),
            }
        },
    },
    Attack {
        name: "F47.send-a-message-by-number",
        promise: "Nor sent.",
        control: Host,
        expect: &[EINVAL],
        run: |a| {
            let (id, message) = (a.number("msgid") as u64, [7u64, 0]);
            let sent = call(libc::SYS_msgsnd, [id, addr(&message), 0, NO_WAIT]);
            if sent.is_ok() {
                let mut back = [0u64; 2];
                let _taken_back = call(libc::SYS_msgrcv, [id, addr_mut(&mut back), 0, 7, NO_WAIT]);
            }
            Outcome::of(sent)
        },
    },
    Attack {
        name: "F47.change-a-queue-by-number",
        promise: "Nor their queue changed or removed.",
        control: Host,
        expect: &[EINVAL],
        run: |a| change(libc::SYS_msgctl, a.number("msgid")),
    },
    Attack {
        name: "F47.use-a-semaphore-by-number",
        promise: "Semaphores of the host cannot be taken or released by their number.",
        control: Host,
        expect: &[EINVAL],
        run: |a| Outcome::of(call(libc::SYS_semop, [a.number("semid") as u64, addr(&RELEASE), 1])),
    },
    Attack {
        name: "F47.use-a-semaphore-with-a-deadline",
        promise: "Nor by the call that has a deadline.",
        control: Host,
        expect: &[EINVAL],
        run: |a| Outcome::of(call(libc::SYS_semtimedop, [a.number("semid") as u64, addr(&RELEASE), 1, 0])),
    },
    Attack {
        name: "F47.set-a-semaphore-by-number",
        promise: "Nor set or removed.",
        control: Host,
        expect: &[EINVAL],
        run: |a| {
            const SETVAL: u64 = 16;
            Outcome::of(call(libc::SYS_semctl, [a.number("semid") as u64, 0, SETVAL, 1]))
        },
    },
    Attack {
        name: "F47.remove-a-posix-queue",
        promise: "POSIX message queues of the host cannot be removed.",
        control: Host,
        expect: &[ENOENT],
        run: |a| {
            let name = text(a.get("spare-queue"));
            Outcome::of(call(libc::SYS_mq_unlink, [at(&name)]))
        },
    },
];

fn control(number: libc::c_long, [id, command]: [u64; 2]) -> Outcome {
    let mut about: About = [0; 32];
    Outcome::of(call(number, [id, command, addr_mut(&mut about)]))
}

/// To what it is: harmless, and the same right as removing it.
fn change(number: libc::c_long, id: i64) -> Outcome {
    let mut about: About = [0; 32];
    let changed = call(number, [id as u64, libc::IPC_STAT as u64, addr_mut(&mut about)])
        .and_then(|_| call(number, [id as u64, libc::IPC_SET as u64, addr(&about)]));
    Outcome::of(changed)
}
