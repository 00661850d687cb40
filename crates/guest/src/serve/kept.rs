//! Commands that survive their hosts: detaching, listing, signals, attaching, and the lease after which a machine
//! without hosts ends.

use std::{
    os::fd::AsFd,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use sandbar_guest::protocol::{Event, FailKind, MAX_WORDS, ProcessRecord, ProcessState, Spawn};

use super::{
    Channel, Server, Work,
    files::{Answer, Fail},
    link::{Id, Link, NOBODY},
    process::Running,
    sending::Sending,
    tree,
};

/// Most surviving commands that run at a time.
const KEPT: usize = 128;
/// Most commands that ended detached whose output and exit are retained.
const ENDED: usize = 64;

/// How long the maker may take to connect before the lease starts.
const FIRST_HOST: Duration = Duration::from_secs(30);

/// The time that a machine lives without hosts.
pub(crate) struct Lease {
    length: Duration,
    /// When the last host left; `None` while a host is connected.
    idle: Option<Instant>,
    /// Idle time before the current hosts connected. Reset by the first request: a host that only checks whether the
    /// machine lives does not extend the lease.
    spent: Duration,
}

impl Lease {
    pub(crate) fn new(length: Duration) -> Self {
        let now = Instant::now();
        Self { length, idle: Some(now.checked_add(FIRST_HOST).unwrap_or(now)), spent: Duration::ZERO }
    }

    fn attended(&mut self) {
        if let Some(since) = self.idle.take() {
            self.spent += since.elapsed();
        }
    }

    fn left_alone(&mut self) {
        self.idle.get_or_insert_with(Instant::now);
    }

    fn used(&mut self) {
        self.spent = Duration::ZERO;
    }

    fn end(&self) -> Option<Instant> {
        self.idle?.checked_add(self.length.saturating_sub(self.spent))
    }
}

/// Describes a command when it starts.
pub(super) fn describe(id: u64, spawn: &Spawn, kept: bool) -> ProcessRecord {
    let mut room = MAX_WORDS;
    let mut argv = Vec::new();
    for word in &spawn.argv {
        let shown = word.get(..room).unwrap_or(word);
        argv.push(shown.to_vec());
        room = room.saturating_sub(shown.len() + 1);
        if room == 0 {
            break;
        }
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let state = ProcessState::Held;
    ProcessRecord { id, argv, user: spawn.user.clone(), tty: spawn.tty.is_some(), kept, since, state }
}

impl Server {
    /// Whether a command will survive its host; an error if too many do.
    pub(super) fn keeps(&self, spawn: &Spawn) -> Answer<bool> {
        if !spawn.keep || self.hub.is_none() {
            return Ok(false);
        }
        let running = self.processes().filter(|(_, _, running)| running.about.kept && !running.has_ended());
        if running.count() >= KEPT {
            return Err(Fail::of(
                FailKind::Full,
                format!("at most {KEPT} of them run on a machine at a time; end one first"),
            ));
        }
        Ok(true)
    }

    /// Every command whose channel is not closed.
    fn processes(&self) -> impl Iterator<Item = (Id, &Channel, &Running)> {
        self.channels.iter().filter(|(_, channel)| !channel.closed).filter_map(|(id, channel)| match &channel.work {
            Work::Process(running) => Some((*id, channel, running)),
            _ => None,
        })
    }

    fn find_process(&self, process: u64) -> Answer<(Id, &Channel, &Running)> {
        let found = self.processes().find(|(_, _, running)| running.about.id == process);
        found.ok_or_else(|| Fail::of(FailKind::NoProcess, "there is no such process"))
    }

    /// Sends the list of commands.
    pub(super) fn list_processes(&mut self, id: Id, window: u32) {
        let record = |(_, channel, running): (Id, &Channel, &Running)| {
            let state = match running.exit() {
                _ if !channel.relay.is_orphan() => ProcessState::Held,
                Some((code, how)) => ProcessState::Ended(code, how),
                None => ProcessState::Alone,
            };
            ProcessRecord { state, ..running.about.clone() }
        };
        let mut records: Vec<_> = self.processes().map(record).collect();
        records.sort_by_key(|record| record.id);
        self.send(id, window, Sending::Bytes(ProcessRecord::encode_all(&records), 0));
    }

    /// Sends a signal to a command's process tree, attached or not.
    pub(super) fn signal_process(&mut self, id: Id, process: u64, number: u8) -> Answer<()> {
        if !(1..=64).contains(&number) {
            return Err(Fail::of(FailKind::Invalid, "there is no such signal"));
        }
        let tag = self.find_process(process)?.2.tag;
        self.late.add(tree::signal_tree(self.settings.proc.as_fd(), |other| other == tag, i32::from(number)));
        self.push(id, &Event::Done);
        Ok(())
    }

    /// Attaches a host to a detached command, from the first byte that no host has confirmed.
    pub(super) fn adopt(&mut self, id: Id, window: u32, process: u64) -> Answer<()> {
        let (from, channel, _) = self.find_process(process)?;
        if !channel.relay.is_orphan() {
            return Err(Fail::of(FailKind::Held, "another client holds the process"));
        }
        let input = channel.relay.takes_input();
        self.rehome(from, id, Some(window));
        self.push(id, &Event::Kept(process, input));
        self.sending.push_back(id);
        Ok(())
    }

    /// Detaches a host from a channel: a surviving command goes on, anything else ends.
    pub(super) fn leave(&mut self, id: Id) {
        match self.channels.get(&id) {
            Some(Channel { work: Work::Process(running), closed: false, .. }) if running.about.kept => {}
            _ => return self.close(id),
        }
        self.links.entry(NOBODY).or_insert_with(Link::nobody);
        let mut to = Id { link: NOBODY, channel: self.next_orphan };
        while to.channel == 0 || self.channels.contains_key(&to) {
            to.channel = to.channel.wrapping_add(1);
        }
        self.next_orphan = to.channel.wrapping_add(1);
        self.rehome(id, to, None);
        self.forget_oldest();
    }

    /// Moves a command to another channel; without a window it has no host.
    fn rehome(&mut self, from: Id, to: Id, window: Option<u32>) {
        let Some(mut channel) = self.channels.remove(&from) else { return };
        channel.relay.rehome(to, window, &self.epoll);
        if let Work::Process(running) = &mut channel.work {
            running.untold();
            if let Some(known) = self.pids.get_mut(&running.pid).filter(|known| **known == from) {
                *known = to;
            }
            if let Some(deadline) = running.deadline {
                self.deadlines.remove(&(deadline, from));
                self.deadlines.insert((deadline, to));
            }
        }
        self.channels.insert(to, channel);
    }

    /// If too many commands ended detached, drops the one that ended first.
    pub(super) fn forget_oldest(&mut self) {
        let ended = |(id, channel, running): (Id, &Channel, &Running)| {
            running.ended_at.filter(|_| channel.relay.is_orphan()).map(|at| (at, id))
        };
        let all: Vec<_> = self.processes().filter_map(ended).collect();
        if all.len() > ENDED
            && let Some((_, oldest)) = all.into_iter().min()
        {
            self.close(oldest);
        }
    }

    /// Updates the lease after a host connected or left.
    pub(super) fn watch_lease(&mut self) {
        let attended = self.links.values().any(Link::is_open);
        if let Some(lease) = &mut self.lease {
            if attended { lease.attended() } else { lease.left_alone() }
        }
    }

    /// Resets the idle time after a request.
    pub(super) fn use_lease(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.used();
        }
    }

    /// When the machine ends unless a host connects.
    pub(super) fn lease_end(&self) -> Option<Instant> {
        self.lease.as_ref().and_then(Lease::end)
    }
}
