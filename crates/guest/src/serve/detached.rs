//! Commands that survive their hosts: detaching, listing, signals, attaching.

use std::time::{SystemTime, UNIX_EPOCH};

use sandbar_guest::protocol::{Event, FailKind, MAX_WORDS, ProcessRecord, ProcessState, Spawn};

use super::{
    Server,
    channels::{Channel, Command, Task, response::Response},
    files::{Answer, Fail},
    hosts::link::Id,
};

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
    /// Sends the list of commands.
    pub(super) fn list_processes(&mut self, id: Id, window: u32) {
        let record = |Command { relay, running, .. }: Command<'_>| {
            let state = match running.exit() {
                _ if !relay.is_orphan() => ProcessState::Held,
                Some((code, how)) => ProcessState::Ended(code, how),
                None => ProcessState::Alone,
            };
            ProcessRecord { state, ..running.about.clone() }
        };
        let mut records: Vec<_> = self.channels.commands().map(record).collect();
        records.sort_by_key(|record| record.id);
        self.channels.send(id, window, Response::Bytes(ProcessRecord::encode_all(&records), 0));
    }

    /// Sends a signal to a command's process tree, attached or not.
    pub(super) fn signal_process(&mut self, id: Id, process: u64, number: u8) -> Answer<()> {
        if !(1..=64).contains(&number) {
            return Err(Fail::of(FailKind::Invalid, "there is no such signal"));
        }
        let tag = self.channels.find_command(process)?.running.tag;
        self.trees.signal(tag, i32::from(number));
        self.hosts.push(id, &Event::Done);
        Ok(())
    }

    /// Attaches a host to a detached command, from the first byte that no host has confirmed.
    pub(super) fn adopt(&mut self, id: Id, window: u32, process: u64) -> Answer<()> {
        let Command { id: from, relay, .. } = self.channels.find_command(process)?;
        if !relay.is_orphan() {
            return Err(Fail::of(FailKind::Held, "another client holds the process"));
        }
        let input = relay.takes_input();
        self.channels.rehome(from, id, Some(window), &self.epoll);
        self.hosts.push(id, &Event::Kept(process, input));
        self.channels.to_send.push_back(id);
        Ok(())
    }

    /// Detaches a host from a channel: a surviving command goes on, anything else ends.
    pub(super) fn leave(&mut self, id: Id) {
        match self.channels.get(id) {
            Some(Channel { task: Task::Process(running), closed: false, .. }) if running.about.kept => {}
            _ => return self.close(id),
        }
        self.hosts.add_detached();
        let to = self.channels.next_detached();
        self.channels.rehome(id, to, None, &self.epoll);
        self.forget_oldest();
    }

    /// If too many commands ended detached, drops the one that ended first.
    pub(super) fn forget_oldest(&mut self) {
        if let Some(oldest) = self.channels.oldest_ended() {
            self.close(oldest);
        }
    }
}
