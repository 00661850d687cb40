//! Promises about limits of a machine: a command that exceeds a limit is stopped and told why, and the machine continues.

use std::time::Duration;

use super::rig::{Ran, Rig, archive, file, finish, pause, shell, soon};
use crate::{Cpus, ExitReason, Limits, MachineError, MachineSpec, SandboxClient, once};

const MIB: u64 = 1 << 20;
/// Small enough to be filled in no time.
const DISK: u64 = 8 * MIB;

async fn limited(client: &dyn SandboxClient, limits: Limits) -> Rig {
    Rig::with(client, MachineSpec::default().limits(limits)).await
}

/// A machine whose disk is held to a few megabytes.
async fn small_disk(client: &dyn SandboxClient) -> Rig {
    limited(client, Limits::default().disk(DISK)).await
}

/// Runs a script with a deadline of 50 seconds.
async fn attempt(rig: &Rig, script: &str) -> Ran {
    rig.run(shell(script).deadline(Duration::from_secs(50))).await
}

/// Work below the limits is not affected.
pub async fn work_within_its_limits_is_left_alone(client: &dyn SandboxClient) {
    let cpus: Cpus = "0.5".parse().expect("half a processor");
    let limits = Limits::default().memory(512 * MIB).cpus(cpus).disk(64 * MIB).pids(200);
    let rig = limited(client, limits).await;
    rig.put("in", vec![b'x'; 1 << 20]).await;
    let ran = rig.sh("cat in in >out && rm in && wc -c <out && sleep 1").await;
    assert_eq!(ran.text().trim(), "2097152");
}

/// A command that uses up the memory is killed, its exit names the reason, and no other command is affected.
pub async fn memory_used_up_ends_the_command(client: &dyn SandboxClient) {
    let rig = limited(client, Limits::default().memory(64 * MIB)).await;
    for _ in 0..2 {
        // The shell itself, not a child of it, comes to have 200 MB; never more.
        let ran = attempt(&rig, "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 60").await;
        assert_eq!((ran.exit.reason, ran.exit.code), (ExitReason::Memory, 137));
        assert_eq!(rig.sh("echo alive").await.text(), "alive\n");
    }
    let killed = rig.run(shell("kill -9 $$")).await;
    assert_eq!(killed.exit.reason, ExitReason::Signaled, "it was not the memory");
}

/// A command that fills the disk with many files is ended; the files can be removed, and the machine continues.
pub async fn a_disk_full_of_files_ends_the_command(client: &dyn SandboxClient) {
    let rig = small_disk(client).await;
    let fill = "i=0; while [ $i -lt 600 ]; do head -c 65536 /dev/zero >f$i || exit 9; i=$((i+1)); done; sleep 60";
    let ran = attempt(&rig, fill).await;
    assert_eq!(ran.exit.reason, ExitReason::Disk, "{:?}", ran.exit);
    let refused = rig.put_fails(&rig.at("more")).await;
    assert_eq!(refused.code(), "exhausted", "{refused}");
    rig.sh("sleep 1; rm -f f*").await;
    rig.put("more", "there is room").await;
    rig.sh("head -c 1000000 /dev/zero >again").await;
}

/// Empty files fill a disk as well.
pub async fn a_disk_full_of_nothing_ends_the_command(client: &dyn SandboxClient) {
    let rig = small_disk(client).await;
    // New files cost up to two seconds of processor time, of which a busy host gives a command little. The dots show that the
    // command still runs.
    let fill = "i=0; while [ $i -lt 20000 ]; do : >n$i || exit 9; i=$((i+1)); [ $((i % 250)) -gt 0 ] || echo .; done; sleep 50";
    let ran = rig.run(shell(fill).deadline(Duration::from_secs(300))).await;
    assert_eq!(ran.exit.reason, ExitReason::Disk, "{:?}", ran.exit);
    soon("remove", rig.machine.remove(&rig.at("n0"))).await.expect("it can be removed");
}

/// Deleted files fill a disk as long as they are open; a small one does no harm.
pub async fn a_disk_full_of_deleted_files_ends_the_command(client: &dyn SandboxClient) {
    let rig = small_disk(client).await;
    let ran = rig.sh("exec 3>a; rm a; head -c 1000000 /dev/zero >&3; sleep 1; echo well").await;
    assert_eq!(ran.text(), "well\n");
    let rig = small_disk(client).await;
    // Each is smaller than any one file may be.
    let fill = "head -c 6000000 /dev/zero";
    let ran = attempt(&rig, &format!("exec 3>a 4>b; rm a b; {fill} >&3; {fill} >&4; sleep 60")).await;
    assert_eq!(ran.exit.reason, ExitReason::Disk, "{:?}", ran.exit);
    rig.put("more", vec![b'x'; 1 << 20]).await;
    rig.sh("cat more >again").await;
}

/// A single file cannot grow beyond the limit of the disk.
pub async fn a_file_as_large_as_the_disk_ends_its_writer(client: &dyn SandboxClient) {
    let rig = small_disk(client).await;
    let ran = attempt(&rig, "exec head -c 50000000 /dev/zero >big").await;
    assert_eq!(ran.exit.reason, ExitReason::Disk, "{:?}", ran.exit);
    let size: u64 = rig.sh("wc -c <big").await.text().trim().parse().expect("a number");
    assert!(size <= DISK, "{size} bytes were written");
    rig.sh("rm big && echo fine >small").await;
}

/// Data that does not fit on the disk is refused, and the file that it would replace is unchanged.
pub async fn what_does_not_fit_on_disk_is_refused(client: &dyn SandboxClient) {
    let rig = small_disk(client).await;
    rig.put("file", "as it was").await;
    let much = vec![b'x'; usize::try_from(DISK + MIB).expect("a size")];
    let refused = |done: Result<(), MachineError>| match done {
        Err(MachineError::Exhausted { what, reason }) => assert!(what.contains("disk"), "{what}: {reason}"),
        other => panic!("{other:?}"),
    };
    refused(soon("write", rig.machine.write(&rig.at("file"), once(much.clone()))).await);
    assert_eq!(rig.read(&rig.at("file")).await.expect("it is there"), "as it was");
    let packed = archive(&[(file(b"large", 0o644, &much), &much)]);
    refused(soon("unpack", rig.machine.unpack(&rig.at("tree"), once(packed))).await);
    soon("remove", rig.machine.remove(&rig.at("tree"))).await.expect("what came of it can be removed");
    rig.put("file", vec![b'y'; 1 << 20]).await;
}

/// A command at the limit of processes cannot start more, and ends at its deadline.
pub async fn a_fork_bomb_is_contained(client: &dyn SandboxClient) {
    let rig = limited(client, Limits::default().pids(64)).await;
    let crowd = "i=0; while [ $i -lt 200 ]; do sleep 9 & i=$((i+1)); done; echo all";
    let ran = rig.run(shell(crowd).deadline(Duration::from_secs(20))).await;
    assert_eq!(ran.text(), "", "two hundred processes ran at once");
    // The sleeping processes of the shell may still take room, so that the bomb may not start; otherwise it fills the room.
    let bomb = shell("b() { b | b & b | b; }; b").deadline(Duration::from_secs(3));
    if let Ok(process) = soon("spawn", rig.machine.spawn(bomb)).await {
        let exit = finish(process).await.exit;
        assert!(!exit.success(), "{exit:?}");
    }
    soon("room for a command", async {
        loop {
            match rig.machine.spawn(shell("echo alive")).await {
                Ok(process) => match finish(process).await.text().as_str() {
                    "alive\n" => return,
                    _ => pause(200).await,
                },
                Err(MachineError::Exhausted { .. }) => pause(200).await,
                Err(other) => panic!("{other}"),
            }
        }
    })
    .await;
}
