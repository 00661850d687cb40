//! The open channels of all hosts, and the children and deadlines that belong to them.

mod backlog;
mod connection;
pub(super) mod relay;
pub(super) mod response;

use std::{
    collections::{BTreeSet, HashMap, VecDeque, hash_map},
    os::fd::OwnedFd,
    time::Instant,
};

use sandbar_guest::protocol::{ExitKind, FailKind, Record};

use self::{connection::Connecting, relay::Relay, response::Response};
use super::{
    files::{Answer, Fail},
    hosts::link::{DETACHED, Id},
    process::Running,
    requests::Writing,
    worker::Worker,
};

/// Most surviving commands that run at a time.
const KEPT: usize = 128;
/// Most commands that ended detached whose output and exit are retained.
const ENDED: usize = 64;

/// One channel and its work.
pub(super) struct Channel {
    pub(super) relay: Relay,
    pub(super) task: Task,
    /// The channel is closed: nothing more is sent on it.
    pub(super) closed: bool,
}

pub(super) enum Task {
    Process(Running),
    Worker(Worker),
    Connecting(Connecting),
    Connected { half_closed: bool },
    Response(Response),
    Writing(Writing),
}

/// A command whose channel is not closed.
pub(super) struct Command<'a> {
    pub(super) id: Id,
    pub(super) relay: &'a Relay,
    pub(super) running: &'a Running,
}

/// All channels.
#[derive(Default)]
pub(super) struct Channels {
    all: HashMap<Id, Channel>,
    /// Children of the guest, by pid.
    children: HashMap<i32, Id>,
    deadlines: BTreeSet<(Instant, Id)>,
    /// Channels with bytes to send.
    pub(super) to_send: VecDeque<Id>,
    /// Last channel number that was given to a detached command.
    last_detached: u32,
}

impl Channels {
    pub(super) fn has(&self, id: Id) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get(&self, id: Id) -> Option<&Channel> {
        self.all.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Channel> {
        self.all.get_mut(&id)
    }

    pub(super) fn insert(&mut self, id: Id, relay: Relay, task: Task) {
        self.all.insert(id, Channel { relay, task, closed: false });
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Channel> {
        self.all.remove(&id)
    }

    /// The channels of a connection.
    pub(super) fn of(&self, link: u32) -> impl Iterator<Item = Id> {
        self.all.keys().filter(move |id| id.link == link).copied()
    }

    /// All channels.
    pub(super) fn iter_mut(&mut self) -> hash_map::IterMut<'_, Id, Channel> {
        self.all.iter_mut()
    }

    /// Starts to send a response.
    pub(super) fn send(&mut self, id: Id, window: u32, response: Response) {
        self.insert(id, Relay::new(id, window), Task::Response(response));
        self.to_send.push_back(id);
    }

    /// Sends records as a response.
    pub(super) fn send_records(&mut self, id: Id, window: u32, records: &[Record]) {
        let mut bytes = Vec::new();
        records.iter().for_each(|record| record.encode(&mut bytes));
        self.send(id, window, Response::Bytes(bytes, 0));
    }

    /// Adds a child that works for a channel.
    pub(super) fn add_child(&mut self, pid: i32, id: Id) {
        self.children.insert(pid, id);
    }

    /// Removes a child that has ended, and its deadline; returns its channel.
    pub(super) fn remove_child(&mut self, pid: i32) -> Option<Id> {
        let id = self.children.remove(&pid)?;
        if let Some(Channel { task: Task::Process(running), .. }) = self.all.get_mut(&id)
            && let Some(deadline) = running.deadline.take()
        {
            self.deadlines.remove(&(deadline, id));
        }
        Some(id)
    }

    pub(super) fn add_deadline(&mut self, deadline: Instant, id: Id) {
        self.deadlines.insert((deadline, id));
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Notes that the deadline of a command has passed, if there is such a command, and returns its tag.
    pub(super) fn expire_one(&mut self) -> Option<u64> {
        while self.next_deadline()? <= Instant::now() {
            let (_, id) = self.deadlines.pop_first()?;
            if let Some(Channel { task: Task::Process(running), .. }) = self.all.get_mut(&id) {
                running.deadline = None;
                running.cause = Some(ExitKind::Deadline);
                return Some(running.tag);
            }
        }
        None
    }

    /// Records why the commands with these tags end.
    pub(super) fn note_cause(&mut self, which: impl Fn(u64) -> bool, why: ExitKind) {
        for channel in self.all.values_mut() {
            if let Task::Process(running) = &mut channel.task
                && which(running.tag)
                && !running.has_ended()
            {
                running.cause = Some(why);
            }
        }
    }

    /// Pids of the workers.
    pub(super) fn workers(&self) -> impl Iterator<Item = i32> {
        self.all.values().filter_map(|channel| match &channel.task {
            Task::Worker(worker) => Some(worker.pid),
            _ => None,
        })
    }

    /// Whether a command runs, its channel closed or not.
    pub(super) fn has_running(&self) -> bool {
        let runs = |channel: &Channel| matches!(&channel.task, Task::Process(running) if !running.has_ended());
        self.all.values().any(runs)
    }

    /// Every command whose channel is not closed.
    pub(super) fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        self.all.iter().filter(|(_, channel)| !channel.closed).filter_map(|(id, channel)| match &channel.task {
            Task::Process(running) => Some(Command { id: *id, relay: &channel.relay, running }),
            _ => None,
        })
    }

    pub(super) fn find_command(&self, process: u64) -> Answer<Command<'_>> {
        let found = self.commands().find(|command| command.running.about.id == process);
        found.ok_or_else(|| Fail::of(FailKind::NoProcess, "there is no such process"))
    }

    /// Checks that one more command may survive its host.
    pub(super) fn may_keep(&self) -> Answer<()> {
        let kept = self.commands().filter(|Command { running, .. }| running.about.kept && !running.has_ended());
        if kept.count() >= KEPT {
            return Err(Fail::of(
                FailKind::Full,
                format!("at most {KEPT} of them run on a machine at a time; end one first"),
            ));
        }
        Ok(())
    }

    /// A free channel for a command without a host.
    pub(super) fn next_detached(&mut self) -> Id {
        loop {
            self.last_detached = self.last_detached.wrapping_add(1);
            let id = Id { link: DETACHED, channel: self.last_detached };
            if id.channel != 0 && !self.has(id) {
                return id;
            }
        }
    }

    /// Moves a command to another channel; without a window it has no host.
    pub(super) fn rehome(&mut self, from: Id, to: Id, window: Option<u32>, epoll: &OwnedFd) {
        let Some(mut channel) = self.all.remove(&from) else { return };
        channel.relay.rehome(to, window, epoll);
        if let Task::Process(running) = &mut channel.task {
            running.untold();
            if let Some(known) = self.children.get_mut(&running.pid).filter(|known| **known == from) {
                *known = to;
            }
            if let Some(deadline) = running.deadline {
                self.deadlines.remove(&(deadline, from));
                self.deadlines.insert((deadline, to));
            }
        }
        self.all.insert(to, channel);
    }

    /// If too many commands ended detached, the one that ended first.
    pub(super) fn oldest_ended(&self) -> Option<Id> {
        let ended = |Command { id, relay, running }: Command<'_>| {
            running.ended_at.filter(|_| relay.is_orphan()).map(|at| (at, id))
        };
        let all: Vec<_> = self.commands().filter_map(ended).collect();
        if all.len() > ENDED { all.into_iter().min().map(|(_, id)| id) } else { None }
    }
}
