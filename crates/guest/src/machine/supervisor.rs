//! The supervisor, outside the namespaces: creates the machine's directory and id maps, starts PID 1, and removes
//! everything when PID 1 has ended, also when the harness was killed.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::ExitCode,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Mode,
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};
use sandbar_guest::protocol::{BootFailure, LET_GO, Launch, Level, USERS_STAGE, VERSION};

use crate::{
    confine::root::{Given, Ownership, Source},
    door::{Door, Verdict},
    handles, limits,
    machine::{
        boot::{self, Inside, Population},
        descendants,
        failure::{Setup, Step, refuse},
        group::Groups,
        idmap::{self, Ids},
        namespaces,
        state::StateDir,
    },
    sys::{
        process::{self, Fork},
        security,
    },
};

/// How long a guest whose harness is gone may take to exit.
const GRACE: Duration = Duration::from_millis(500);
/// Longest launch message in bytes.
const MAX_LAUNCH: u32 = 4 * 1024 * 1024;

/// Runs one machine from start to end.
pub(crate) fn main() -> ExitCode {
    let Ok((mut leash, control)) = take_descriptors() else { return ExitCode::from(125) };
    limits::use_all_descriptors();
    let outcome = receive(&mut leash).and_then(|launch| run(&launch, &leash, control));
    if let Err(failure) = outcome {
        let _harness_gone = leash.write_all(&failure.encode());
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Moves the two sockets away from standard input and output, which become `/dev/null`, and closes everything else.
fn take_descriptors() -> io::Result<(UnixStream, OwnedFd)> {
    process::close_from(3)?;
    let leash = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
    handles::occupy_stdio()?;
    // A new session: Ctrl-C is for the harness, and the cleanup must survive it.
    let _already_leader = rustix::process::setsid();
    rustix::process::umask(Mode::from_raw_mode(0o022));
    Ok((leash.into(), control))
}

/// Reads the launch message, which follows its length.
pub(crate) fn receive(from: &mut impl Read) -> Setup<Launch> {
    let step = "read what to launch";
    let mut length = [0; 4];
    from.read_exact(&mut length).step(step)?;
    let length = u32::from_le_bytes(length);
    if length > MAX_LAUNCH {
        return Err(refuse(step, "", ""));
    }
    let mut message = vec![0; length as usize];
    from.read_exact(&mut message).step(step)?;
    let launch = Launch::decode(&message).map_err(|error| refuse(format!("{step}: {error}"), "", ""))?;
    if launch.version != VERSION {
        return Err(refuse(format!("{step}: version {} is not {VERSION}", launch.version), "", ""));
    }
    Ok(launch)
}

fn run(launch: &Launch, leash: &UnixStream, control: OwnedFd) -> Setup<()> {
    let ids = if launch.level == Level::Full { Some(Ids::choose(&launch.accounts)?) } else { None };
    check_accounts(launch, ids.as_ref())?;
    let dir = StateDir::create(launch, ids.as_ref())?;
    let mut groups = Groups::make(launch, dir.as_fd());
    let outcome = open_door(launch, &dir, control).and_then(|(door, control)| {
        let mut machine = start(launch, &MachineSetup { dir: &dir, ids: ids.as_ref() }, &mut groups, control)?;
        machine.sweeper = sweep_beside(launch, &dir);
        let last = watch(&mut machine, leash, door)?;
        reap_init(machine, last)
    });
    if launch.level != Level::Full {
        // Without a PID namespace, processes survive a guest that was killed; they are this process's children now.
        descendants::end_children(|| while process::reap().is_some() {});
    }
    // If a group is left, the directory that records it stays too.
    groups.remove().step("remove the machine's control groups")?;
    let removed = dir.remove().step("remove the machine's directory");
    outcome.and(removed)
}

/// Several users need several uids; without namespaces there is only one.
fn check_accounts(launch: &Launch, ids: Option<&Ids>) -> Setup<()> {
    if launch.accounts.need_many() && ids.is_none() {
        return Err(refuse(USERS_STAGE, "namespaces, without which all are one user", "ask for --isolation full"));
    }
    Ok(())
}

/// Opens the door of a machine that outlives its maker. PID 1 then gets the hub instead of its maker's stream,
/// which is the first connection from it.
fn open_door(launch: &Launch, dir: &StateDir, control: OwnedFd) -> Setup<(Option<Door>, OwnedFd)> {
    let Some(detached) = &launch.detached else { return Ok((None, control)) };
    let (door, hub) = Door::open(dir.as_fd(), detached)?;
    door.hand_over(&control).step("hand the stream over")?;
    Ok((Some(door), hub))
}

/// PID 1, and the pipe on which it reports a setup failure.
struct Started {
    pid: i32,
    trouble: OwnedFd,
    /// A child that removes leftovers of dead machines.
    sweeper: Option<(i32, OwnedFd)>,
}

/// The machine's directory and the ids of its users.
struct MachineSetup<'a> {
    dir: &'a StateDir,
    ids: Option<&'a Ids>,
}

fn start(launch: &Launch, ground: &MachineSetup<'_>, groups: &mut Groups, control: OwnedFd) -> Setup<Started> {
    let MachineSetup { dir, ids } = *ground;
    let given = match ids {
        Some(ids @ Ids::Range { .. }) => Some(open_as_root(launch, dir, ids)?),
        _ => None,
    };
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).step("make a pipe");
    let (wait, go) = pipe()?;
    let (trouble, report) = pipe()?;
    if launch.level != Level::Full {
        process::adopt_orphans().step("adopt orphans")?;
    }
    let deaths = groups.take_deaths();
    let pid = match process::fork_into(new_namespaces(launch)).map_err(|error| namespaces::not_made(&error))? {
        Fork::Child => {
            drop((go, trouble));
            let users = if matches!(ids, None | Some(Ids::One { .. })) { Population::One } else { Population::Many };
            boot::pid1(launch, Inside { dir: dir.path.clone(), users, given, control, wait, report, deaths })
        }
        Fork::Parent(pid) => pid,
    };
    drop((wait, report, control, given, deaths));
    // The child still waits, so everything it starts will be in the groups too.
    let hard = groups.enter(pid);
    let mapped = ids.map_or(Ok(()), |ids| ids.write(pid)).and_then(|()| Ok(rustix::io::write(&go, &[hard.byte()])?));
    if let Err(error) = mapped {
        process::signal(pid, libc::SIGKILL);
        let _reaped = process::wait_for(pid);
        return Err(namespaces::not_mapped(&error));
    }
    // Only now: an ordinary user cannot write the id maps of a process whose memory is closed.
    security::close_memory().step("close the supervisor's memory")?;
    Ok(Started { pid, trouble, sweeper: None })
}

/// Removes leftovers of dead machines in a child that ends with this process: that can take long, and the machine need
/// not wait for it.
fn sweep_beside(launch: &Launch, dir: &StateDir) -> Option<(i32, OwnedFd)> {
    if !launch.sweep || !dir.has_neighbours() {
        return None;
    }
    let supervisor = rustix::process::getpid();
    match process::fork_into(0).ok()? {
        Fork::Child => {
            // Exits also if the supervisor died before `die_with_parent` took effect. The child keeps the usual
            // priority: a child that waits for a processor keeps its locks, some of which its supervisor shares.
            if process::die_with_parent().is_err() || rustix::process::getppid() != Some(supervisor) {
                process::exit_now(0);
            }
            dir.sweep_neighbours();
            process::exit_now(0)
        }
        Fork::Parent(pid) => Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?)),
    }
}

fn new_namespaces(launch: &Launch) -> libc::c_int {
    if launch.level != Level::Full {
        return 0;
    }
    // The cgroup namespace is created later, inside the machine's own group: groups above it must not be visible.
    let all = libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    if launch.host_network { all } else { all | libc::CLONE_NEWNET }
}

/// Opens the host paths as root, outside the namespaces, and maps each owner to the agent. Root's own files are never
/// chowned.
fn open_as_root(launch: &Launch, dir: &StateDir, ids: &Ids) -> Setup<Given> {
    let agent = ids.agent().unwrap_or_default();
    let mut maps: Vec<((u32, u32), OwnedFd)> = Vec::new();
    Given::open(launch, &dir.path, |place, ownership| match ownership {
        Ownership::Machines => Source::open(place),
        Ownership::Hosts => {
            let stat = rustix::fs::fstat(place)?;
            let owner = (stat.st_uid, stat.st_gid);
            if !maps.iter().any(|(known, _)| *known == owner) {
                maps.push((owner, idmap::owner_to_agent(owner.0, owner.1, agent)?));
            }
            let map = maps.iter().find(|(known, _)| *known == owner).map(|(_, map)| map.as_fd());
            Source::open_mapped(place, Some(map.ok_or(io::ErrorKind::NotFound)?))
        }
    })
}

/// What the machine's lifetime depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// Its maker, at the other end of the leash.
    Leash,
    /// Nothing: the machine lives until a visitor at its door ends it.
    Door,
    /// The machine is ending, and is killed at this time.
    Ending(Instant),
}

/// Waits for PID 1 to end; ends it when nothing keeps the machine alive any more.
fn watch(machine: &mut Started, leash: &UnixStream, mut door: Option<Door>) -> Setup<Hold> {
    let pid = Pid::from_raw(machine.pid).ok_or_else(|| refuse("watch the machine", "", ""))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).step("watch the machine")?;
    let mut hold = Hold::Leash;
    process::forget_code();
    loop {
        let woken = wait(pidfd.as_fd(), leash, (door.as_ref(), &mut machine.sweeper), hold);
        if woken == Woken::Ended {
            return Ok(hold);
        }
        hold = match (hold, &mut door) {
            (Hold::Ending(at), _) if woken == Woken::Broken || Instant::now() >= at => {
                descendants::kill_until(machine.pid, |pause| has_ended(pidfd.as_fd(), pause));
                return Ok(hold);
            }
            (Hold::Ending(_), _) => hold,
            (Hold::Leash, _) if woken == Woken::Timeout => hold,
            // After the launch message the maker writes only this one byte: any other readable event means it is gone.
            (Hold::Leash, Some(_)) if woken == Woken::Other && lets_go(leash) => Hold::Door,
            (Hold::Door, Some(door)) if woken != Woken::Broken => match door.turn() {
                Verdict::Stay => Hold::Door,
                Verdict::End => Hold::Ending(Instant::now() + GRACE),
            },
            (Hold::Leash | Hold::Door, _) => Hold::Ending(Instant::now() + GRACE),
        };
        if matches!(hold, Hold::Ending(_)) {
            // Without a door no host can connect any more: PID 1 ends by itself.
            door = None;
        }
    }
}

/// Whether a process ends within this time.
fn has_ended(pidfd: BorrowedFd<'_>, within: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    poll(&mut fds, Some(&timespec(within))).is_ok_and(|ready| ready > 0)
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) }
}

/// Whether the maker asked the machine to outlive it, rather than closing the leash.
fn lets_go(mut leash: &UnixStream) -> bool {
    let mut word = [0];
    leash.read(&mut word).is_ok_and(|count| count == 1) && word == [LET_GO]
}

/// Reaps PID 1 and reads its setup failure, if any.
fn reap_init(machine: Started, hold: Hold) -> Setup<()> {
    let ended = process::wait_for(machine.pid).step("wait for the machine")?;
    let mut trouble = Vec::new();
    let read = std::fs::File::from(machine.trouble).take(64 * 1024).read_to_end(&mut trouble);
    match read {
        Ok(0) | Err(_) if ended.signaled && !matches!(hold, Hold::Ending(_)) => {
            Err(refuse(format!("run the machine: signal {} killed the guest", ended.code - 128), "", ""))
        }
        Ok(0) | Err(_) => Ok(()),
        Ok(_) => Err(BootFailure::decode(&trouble).unwrap_or_else(|error| refuse(error.to_string(), "", ""))),
    }
}

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// PID 1 ended.
    Ended,
    /// Another descriptor became ready.
    Other,
    /// The timeout passed, or a sweeper ended.
    Timeout,
    /// Polling failed: the machine must end.
    Broken,
}

fn wait(
    pidfd: BorrowedFd<'_>,
    leash: &UnixStream,
    (door, sweeper): (Option<&Door>, &mut Option<(i32, OwnedFd)>),
    hold: Hold,
) -> Woken {
    if let Some((pid, swept)) = sweeper
        && has_ended(swept.as_fd(), Duration::ZERO)
    {
        let _reaped = process::wait_for(*pid);
        *sweeper = None;
    }
    let mut fds = vec![PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    let until = match (hold, door) {
        (Hold::Leash, _) => {
            fds.push(PollFd::new(leash, PollFlags::IN));
            None
        }
        (Hold::Door, Some(door)) => {
            door.wait_for(&mut fds);
            door.deadline()
        }
        (Hold::Door, None) => None,
        (Hold::Ending(at), _) => Some(at),
    };
    fds.extend(sweeper.iter().map(|(_, swept)| PollFd::new(swept, PollFlags::IN)));
    let timeout = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) if fds.first().is_some_and(|fd| !fd.revents().is_empty()) => Woken::Ended,
        Ok(0) | Err(Errno::INTR) => Woken::Timeout,
        // Only the sweeper ended.
        Ok(1) if sweeper.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty()) => Woken::Timeout,
        Ok(_) => Woken::Other,
        Err(_) => Woken::Broken,
    }
}
