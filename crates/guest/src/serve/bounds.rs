//! What the guest itself holds a machine to: memory where the kernel does not, and what is on disk. Watched only while
//! something runs.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::{
    cgroup::Controller,
    protocol::{ExitKind, FailKind, Held, Launch, Strength},
};

use super::{
    Channel, Server, Settings, Work,
    descriptors::Descriptors,
    files::{Answer, Fail},
    tree::{self, listed},
    usage::{Count, Looker, Places},
};
use crate::{
    group::{Hard, deaths, open_deaths},
    sys::{
        process::{Ended, tag_of},
        security::Token,
    },
};

/// How often a machine is looked at, and how often when it has used up half of something.
pub(super) const CALM: Duration = Duration::from_millis(100);
pub(super) const ALERT: Duration = Duration::from_millis(20);
/// How long the server may be busy with counting before it turns to its hosts again, and how long it then leaves it.
const TURN: Duration = Duration::from_millis(4);
const PAUSE: Duration = Duration::from_millis(10);
/// The longest count that everything waits for.
const STANDSTILL: Duration = Duration::from_secs(1);
/// How long a workspace of the host's may take to be counted when a machine starts.
const FIRST_COUNT: Duration = Duration::from_secs(5);
/// How much more a machine over its limit may come to have before its commands are ended again.
const SLACK: u64 = 256 << 10;
/// Where containers see their own control group, by version.
const CGROUPS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"];
/// Exit codes of a shell whose command the kernel killed for want of memory, or for a file that grew too large.
const KILLED: i32 = 128 + libc::SIGKILL;
const TOO_LARGE: i32 = 128 + libc::SIGXFSZ;

/// The limits of a machine that take watching.
#[derive(Default)]
pub(crate) struct Bounds {
    /// Bytes of memory, where nothing but the guest holds them.
    memory: Option<u64>,
    /// Where the kernel counts the processes it killed for want of memory.
    deaths: Option<OwnedFd>,
    /// Makes commands more likely to be killed for want of memory than the guest is.
    preference: Option<Preference>,
    disk: Option<Disk>,
    /// What of both is found in descriptors only.
    pub(super) descriptors: Descriptors,
}

impl Bounds {
    /// What the kernel holds, besides what the guest does.
    pub(crate) fn new(launch: &Launch, hard: Hard, deaths: Option<OwnedFd>) -> Self {
        let by_kernel = hard.has(Controller::Memory);
        let deaths = deaths.filter(|_| by_kernel);
        let preference = deaths.as_ref().and_then(|_| Preference::open());
        Self { memory: launch.memory.filter(|_| !by_kernel), deaths, preference, ..Self::default() }
    }

    /// Memory cannot be watched where other processes cannot be looked at.
    pub(crate) fn without_memory(self) -> Self {
        Self { memory: None, descriptors: self.descriptors.without_memory(), ..self }
    }

    /// In a container the engine holds what it can, and the guest the rest.
    pub(crate) fn in_container(launch: &Launch, token: Token, looker: Looker, places: &[&[u8]]) -> Self {
        let found =
            if launch.memory.is_none() { CGROUPS.iter().find_map(|dir| open_deaths(Path::new(dir))) } else { None };
        let preference = found.as_ref().and_then(|_| Preference::open());
        let bounds = Self { memory: launch.memory, deaths: found, preference, ..Self::default() };
        bounds.disk(launch, token, looker, places)
    }

    /// Watches as `looker`, and holds what is on disk in these places, of which the workspace is the last: without it where
    /// it is not written to.
    pub(crate) fn disk(mut self, launch: &Launch, token: Token, looker: Looker, places: &[&[u8]]) -> Self {
        let places = match (&launch.workspace, places.split_last()) {
            (Some((_, false)), Some((_, others))) => others,
            _ => places,
        };
        self.disk = launch.disk.map(|limit| Disk::new(limit, token, looker, places));
        let devices = self.disk.as_ref().map(|disk| disk.places.devices()).unwrap_or_default();
        let names = self.disk.as_ref().map(|disk| disk.places.names()).unwrap_or_default();
        self.descriptors = Descriptors::new(devices, names, looker, launch.open_files);
        if self.memory.is_some() {
            self.descriptors = self.descriptors.with_memory();
        }
        self
    }

    /// Refuses what is over the limit before anything has run, and what cannot be counted.
    pub(crate) fn first_count(&mut self) -> Result<(), String> {
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let mut count = Count::new(&disk.places);
        let whole = count.go_on(&disk.places, Instant::now() + FIRST_COUNT);
        disk.used = count.sum;
        match whole {
            _ if count.sum > disk.limit => {
                Err(format!("the workspace has {} bytes already, and may have {}", count.sum, disk.limit))
            }
            true => Ok(()),
            false => Err("there are too many files in the workspace to watch its size".to_owned()),
        }
    }

    /// How strongly each is held, where the kernel holds some.
    pub(crate) fn held(&self, hard: Hard) -> Held {
        let by_kernel = |controller| if hard.has(controller) { Strength::Hard } else { Strength::None };
        let soft = |is_watched: bool| if is_watched { Strength::Soft } else { Strength::None };
        Held {
            memory: if self.memory.is_some() { Strength::Soft } else { by_kernel(Controller::Memory) },
            cpu: by_kernel(Controller::Cpu),
            pids: by_kernel(Controller::Pids),
            disk: soft(self.disk.is_some()),
        }
    }

    /// The limits each command gets on top of the machine's others.
    pub(crate) fn rlimits(&self) -> Option<(u32, u64)> {
        // One quick writer is stopped by the kernel itself.
        self.disk.as_ref().map(|disk| (libc::RLIMIT_FSIZE, disk.limit))
    }

    fn note_nameless(&mut self) {
        if let Some(disk) = &mut self.disk {
            disk.nameless = self.descriptors.disk();
        }
    }

    fn is_watched(&self) -> bool {
        self.memory.is_some() || self.disk.is_some()
    }

    /// How many processes the kernel killed for want of memory.
    pub(crate) fn deaths(&self) -> u64 {
        self.deaths.as_ref().and_then(|file| deaths(file.as_fd())).unwrap_or_default()
    }

    /// Which limit ended a command, judging by how it ended and how many had died when it began.
    pub(crate) fn cause(&self, ended: &Ended, deaths_before: u64) -> Option<ExitKind> {
        match ended.code {
            KILLED if self.deaths() > deaths_before => Some(ExitKind::Memory),
            TOO_LARGE if self.disk.is_some() => Some(ExitKind::Disk),
            _ => None,
        }
    }

    /// Something ended that may have written to disk.
    pub(crate) fn changed(&mut self) {
        if let Some(disk) = &mut self.disk {
            (disk.stale, disk.unseen, disk.blurred) = (true, true, true);
        }
    }

    /// Runs `start`; what it starts is killed for want of memory before the guest is.
    pub(crate) fn prefer<T>(&self, start: impl FnOnce() -> T) -> T {
        let Some(preference) = &self.preference else { return start() };
        preference.set(preference.commands);
        let started = start();
        preference.set(preference.own);
        started
    }
}

/// How likely this process is to be killed when the memory is used up, as the kernel is told; children inherit it.
struct Preference {
    file: OwnedFd,
    own: i32,
    commands: i32,
}

impl Preference {
    fn open() -> Option<Self> {
        let file = rustix::fs::open("/proc/self/oom_score_adj", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut text = [0; 16];
        let length = rustix::io::read(&file, &mut text).ok()?;
        let own: i32 = std::str::from_utf8(text.get(..length)?).ok()?.trim().parse().ok()?;
        Some(Self { file, own, commands: own.saturating_add(300).min(1000) })
    }

    fn set(&self, value: i32) {
        let _stays_as_it_is = rustix::io::pwrite(&self.file, value.to_string().as_bytes(), 0);
    }
}

/// What is on disk, and what may be.
struct Disk {
    limit: u64,
    places: Places,
    /// Where these are, for people and requests.
    paths: Vec<Vec<u8>>,
    /// A count that is under way.
    count: Option<Count>,
    /// What is in files that were deleted while they are open.
    nameless: u64,
    /// Whether something ended since the last count began, and since the one before that was whole: then nobody can tell
    /// whether it, or what runs now, wrote what is found.
    unseen: bool,
    blurred: bool,
    /// The last whole count, and what was written for a host since.
    used: u64,
    /// Whether more may be there than was counted.
    stale: bool,
    /// What must not be passed: the limit, or, once that was, what was there then, so that things can be removed.
    ceiling: u64,
}

impl Disk {
    fn new(limit: u64, token: Token, looker: Looker, paths: &[&[u8]]) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |path: &[u8]| rustix::fs::open(path, flags, Mode::empty()).ok();
        let roots = paths.iter().filter_map(|path| open(path)).collect();
        let places = Places { roots, token, looker };
        let paths = paths.iter().map(|path| path.to_vec()).collect();
        let (count, nameless, used) = (None, 0, 0);
        Self {
            limit,
            places,
            paths,
            count,
            nameless,
            unseen: false,
            blurred: false,
            used,
            stale: false,
            ceiling: limit,
        }
    }

    /// Counts a little; whether the ceiling seems to have been passed.
    fn look(&mut self) -> bool {
        let count = self.count.get_or_insert_with(|| {
            self.unseen = false;
            Count::new(&self.places)
        });
        let whole = count.go_on(&self.places, Instant::now() + TURN);
        let sum = count.sum.saturating_add(self.nameless);
        let over = sum > self.threshold();
        if whole {
            self.counted(sum);
        }
        over
    }

    /// What is too much.
    fn threshold(&self) -> u64 {
        if self.ceiling > self.limit { self.ceiling.saturating_add(SLACK) } else { self.limit }
    }

    fn counted(&mut self, sum: u64) {
        (self.used, self.stale, self.count) = (sum, false, None);
        self.blurred = self.unseen;
        self.ceiling = self.limit.max(self.ceiling.min(sum));
    }

    /// Counts everything anew, until this time.
    fn count_until(&mut self, until: Instant) -> u64 {
        (self.count, self.unseen) = (None, false);
        let mut count = Count::new(&self.places);
        count.go_on(&self.places, until);
        let sum = count.sum.saturating_add(self.nameless);
        drop(count);
        self.counted(sum);
        sum
    }

    /// How many more bytes there may be, as far as is known.
    fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    fn full(&self) -> Fail {
        let limit = self.limit;
        Fail::of(
            FailKind::Full,
            format!("the workspace and the homes may have {limit} bytes, and nearly do; remove some"),
        )
    }
}

impl Server {
    /// Something was started: from now on it is watched.
    pub(super) fn watch(&mut self) {
        if self.settings.bounds.is_watched() && self.look_at.is_none() {
            self.look_at = Some(Instant::now() + ALERT);
        }
    }

    /// Looks at the machine if it is time to, and ends what goes past a limit.
    pub(super) fn keep_bounds(&mut self) {
        let Some(at) = self.look_at else { return };
        if Instant::now() < at {
            return;
        }
        let alive = self.is_anything_alive();
        self.glance_into_descriptors();
        let memory = self.settings.bounds.memory.map(|limit| self.keep_memory(limit));
        let disk = self.settings.bounds.disk.is_some().then(|| self.keep_disk());
        let looking = self.settings.bounds.descriptors.is_looking().then_some(ALERT);
        let again = [memory, disk, looking].into_iter().flatten().min().unwrap_or(CALM);
        // What ended in the meantime left what it wrote: it is counted to the end.
        let counting = self.settings.bounds.disk.as_ref().is_some_and(|disk| disk.count.is_some() || disk.unseen);
        self.look_at = (alive || counting).then(|| Instant::now() + again);
    }

    /// Looks on into the descriptors of all commands.
    fn glance_into_descriptors(&mut self) {
        let Settings { proc, bounds, .. } = &mut self.settings;
        bounds.descriptors.look(proc.as_fd(), |tag| self.tags.has(tag), Instant::now() + TURN);
        bounds.note_nameless();
    }

    /// Looks into all of them now, as far as that can be waited for.
    pub(super) fn look_into_descriptors(&mut self) {
        let Settings { proc, bounds, .. } = &mut self.settings;
        bounds.descriptors.look_now(proc.as_fd(), |tag| self.tags.has(tag), Instant::now() + STANDSTILL / 2);
        bounds.note_nameless();
    }

    fn is_anything_alive(&self) -> bool {
        let runs = |channel: &Channel| matches!(&channel.work, Work::Process(running) if !running.has_ended());
        self.channels.values().any(runs) || {
            let proc = self.settings.proc.as_fd();
            listed(proc).into_iter().any(|pid| tag_of(pid).is_some_and(|tag| self.tags.has(tag)))
        }
    }

    /// Counts on; where it seems too much, everything stands still until it is known. When to look again.
    fn keep_disk(&mut self) -> Duration {
        let began = Instant::now();
        let Some(disk) = &mut self.settings.bounds.disk else { return CALM };
        let threshold = disk.threshold();
        // Once: from then on nothing may be added, by whomever.
        let spared = disk.blurred && disk.ceiling <= disk.limit;
        if disk.look() {
            let stopped = self.stop_all();
            let passed = self.is_passed(threshold);
            if passed && !spared {
                self.end_trees(|_| true, ExitKind::Disk);
            } else {
                tree::resume(&stopped);
            }
        }
        let Some(disk) = &self.settings.bounds.disk else { return CALM };
        match &disk.count {
            Some(_) => PAUSE,
            None if disk.used > disk.limit / 2 => ALERT.max(began.elapsed() * 10),
            None => CALM.max(began.elapsed() * 10),
        }
    }

    /// Counts all that is on disk now, with a name and without, as far as that can be waited for.
    fn count_now(&mut self) -> u64 {
        let until = Instant::now() + STANDSTILL;
        self.look_into_descriptors();
        self.settings.bounds.disk.as_mut().map_or(0, |disk| disk.count_until(until))
    }

    /// Counts; whether it is more than this, which is remembered.
    fn is_passed(&mut self, threshold: u64) -> bool {
        let found = self.count_now();
        let passed = found > threshold;
        if let Some(disk) = self.settings.bounds.disk.as_mut().filter(|_| passed) {
            disk.ceiling = found;
        }
        passed
    }

    pub(super) fn stop_all(&self) -> Vec<i32> {
        tree::stop(self.settings.proc.as_fd(), |tag| self.tags.has(tag))
    }

    /// Kills what has these tags, and remembers why.
    pub(super) fn end_trees(&mut self, which: impl Fn(u64) -> bool, why: ExitKind) {
        for channel in self.channels.values_mut() {
            if let Work::Process(running) = &mut channel.work
                && which(running.tag)
                && !running.has_ended()
            {
                running.cause = Some(why);
            }
        }
        let tags = &self.tags;
        self.late.add(tree::signal_tree(self.settings.proc.as_fd(), |tag| tags.has(tag) && which(tag), libc::SIGKILL));
    }

    /// A command ended. On a machine that is over its limit, what it left is counted at once: many short ones would
    /// otherwise never be seen.
    pub(super) fn left_too_much(&mut self) -> bool {
        let Some(disk) = &self.settings.bounds.disk else { return false };
        if disk.ceiling <= disk.limit {
            return false;
        }
        let threshold = disk.threshold();
        self.is_passed(threshold)
    }

    /// Whether what is written to a path counts.
    pub(super) fn is_counted(&self, path: &[u8]) -> bool {
        self.settings.bounds.disk.as_ref().is_some_and(|disk| {
            let below =
                |place: &Vec<u8>| path.strip_prefix(place.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
            disk.paths.iter().any(below)
        })
    }

    /// Takes bytes that are about to be written off what there may be.
    pub(super) fn take_room(&mut self, bytes: u64) -> Answer<()> {
        let Some(disk) = &self.settings.bounds.disk else { return Ok(()) };
        if disk.stale || disk.room() < bytes {
            // Counting is done as others.
            self.guise.shed();
            self.count_now();
        }
        let Some(disk) = &mut self.settings.bounds.disk else { return Ok(()) };
        if disk.room() < bytes {
            return Err(disk.full());
        }
        disk.used = disk.used.saturating_add(bytes);
        Ok(())
    }

    /// What file work may write; `None` is whatever it likes.
    pub(super) fn allowance(&mut self, path: &[u8]) -> Option<u64> {
        let counted = self.is_counted(&[path, b"/"].concat());
        let disk = self.settings.bounds.disk.as_ref().filter(|_| counted)?;
        if disk.stale || disk.used > 0 {
            self.guise.shed();
            self.count_now();
        }
        self.settings.bounds.disk.as_ref().map(Disk::room)
    }
}
