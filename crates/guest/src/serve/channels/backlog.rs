//! Output of a command that no host has confirmed yet: bounded, in order, with an exact count of dropped bytes.

use std::collections::VecDeque;

/// Most stored bytes of one command.
pub(crate) const MOST: usize = 1 << 20;
/// Most stored runs, so that alternating single bytes of the two streams cannot fill the memory.
const RUNS: usize = 16 * 1024;

/// A run of bytes of one of the two streams.
struct Run {
    error: bool,
    length: usize,
}

/// All output after the last confirmed byte.
#[derive(Default)]
pub(crate) struct Backlog {
    bytes: VecDeque<u8>,
    runs: VecDeque<Run>,
    /// Bytes sent to the current host, and that position as a run and an offset in it.
    sent: usize,
    run: usize,
    within: usize,
    /// Bytes dropped before the stored ones, and whether the current host was told.
    omitted: u64,
    told: bool,
}

impl Backlog {
    /// Bytes that can be added without dropping any.
    pub(crate) fn room(&self) -> usize {
        if self.runs.len() >= RUNS { 0 } else { MOST.saturating_sub(self.bytes.len()) }
    }

    /// Whether the current host was sent everything.
    pub(crate) fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Adds bytes; drops the oldest if there is no room.
    pub(crate) fn push(&mut self, error: bool, bytes: &[u8]) {
        let kept = bytes.get(bytes.len().saturating_sub(MOST)..).unwrap_or_default();
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(MOST);
        // Bytes that exceed the whole room are dropped as if they had been stored.
        let skipped = bytes.len() - kept.len();
        self.drop_oldest(excess - skipped);
        self.omitted = self.omitted.saturating_add(skipped as u64);
        self.bytes.extend(kept);
        match self.runs.back_mut() {
            Some(run) if run.error == error => run.length += kept.len(),
            _ => self.runs.push_back(Run { error, length: kept.len() }),
        }
        while self.runs.len() > RUNS {
            let first = self.runs.front().map_or(0, |run| run.length);
            self.drop_oldest(first);
        }
    }

    fn drop_oldest(&mut self, count: usize) {
        self.omitted = self.omitted.saturating_add(count as u64);
        self.advance_front(count);
    }

    /// Removes bytes that a host has confirmed.
    pub(crate) fn confirm(&mut self, count: usize) {
        let count = count.min(self.sent);
        self.advance_front(count);
        if count > 0 && self.told {
            self.omitted = 0;
        }
    }

    fn advance_front(&mut self, count: usize) {
        self.bytes.drain(..count);
        self.sent = self.sent.saturating_sub(count);
        let mut left = count;
        while let Some(run) = self.runs.front_mut().filter(|_| left > 0) {
            let taken = run.length.min(left);
            left -= taken;
            run.length -= taken;
            if self.run == 0 {
                self.within = self.within.saturating_sub(taken);
            }
            if run.length == 0 {
                self.runs.pop_front();
                self.run = self.run.saturating_sub(1);
            }
        }
    }

    /// Starts from the first stored byte, for another host.
    pub(crate) fn rewind(&mut self) {
        (self.sent, self.run, self.within, self.told) = (0, 0, 0, false);
    }

    /// Number of dropped bytes to report to the current host; only once for each host.
    pub(crate) fn untold(&mut self) -> Option<u64> {
        let told = std::mem::replace(&mut self.told, true);
        (!told && self.omitted > 0).then_some(self.omitted)
    }

    /// The next bytes for the current host, at most `most`, and whether they are standard error.
    pub(crate) fn next(&mut self, most: usize) -> Option<(bool, &[u8])> {
        while self.run + 1 < self.runs.len() && self.runs.get(self.run).is_some_and(|run| run.length == self.within) {
            self.run += 1;
            self.within = 0;
        }
        let run = self.runs.get(self.run)?;
        let length = (run.length - self.within).min(most);
        let (front, back) = self.bytes.as_slices();
        let bytes = match self.sent.checked_sub(front.len()) {
            None => front.get(self.sent..).unwrap_or_default(),
            Some(offset) => back.get(offset..).unwrap_or_default(),
        };
        let bytes = bytes.get(..length).unwrap_or(bytes);
        (!bytes.is_empty()).then_some((run.error, bytes))
    }

    /// Advances over bytes that were sent.
    pub(crate) fn sent(&mut self, count: usize) {
        self.sent += count;
        self.within += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that a new host is sent, and the dropped bytes reported to it.
    fn replay(backlog: &mut Backlog, most: usize) -> (u64, Vec<(bool, Vec<u8>)>) {
        backlog.rewind();
        (backlog.untold().unwrap_or(0), rest(backlog, most))
    }

    /// Everything not sent yet.
    fn rest(backlog: &mut Backlog, most: usize) -> Vec<(bool, Vec<u8>)> {
        let mut all: Vec<(bool, Vec<u8>)> = Vec::new();
        while let Some((error, bytes)) = backlog.next(most) {
            let (bytes, count) = (bytes.to_vec(), bytes.len());
            match all.last_mut().filter(|(last, _)| *last == error) {
                Some((_, last)) => last.extend(bytes),
                None => all.push((error, bytes)),
            }
            backlog.sent(count);
        }
        assert!(backlog.is_sent());
        all
    }

    #[test]
    fn what_was_not_confirmed_is_sent_again_in_order() {
        let mut backlog = Backlog::default();
        for (error, bytes) in [(false, "one"), (true, "two"), (true, "three"), (false, "four")] {
            backlog.push(error, bytes.as_bytes());
        }
        let whole = vec![(false, b"one".to_vec()), (true, b"twothree".to_vec()), (false, b"four".to_vec())];
        for most in [1, 2, 100] {
            assert_eq!(replay(&mut backlog, most), (0, whole.clone()));
        }
        backlog.confirm(5);
        backlog.push(false, b"five");
        assert_eq!(rest(&mut backlog, 100), vec![(false, b"five".to_vec())]);
        assert_eq!(replay(&mut backlog, 3), (0, vec![(true, b"othree".to_vec()), (false, b"fourfive".to_vec())]));
        backlog.confirm(1000);
        assert_eq!(replay(&mut backlog, 3), (0, Vec::new()));
    }

    #[test]
    fn what_does_not_fit_is_dropped_oldest_first_and_counted_exactly() {
        let mut backlog = Backlog::default();
        let (mut printed, mut last) = (0u64, Vec::new());
        for turn in 0..40u8 {
            let piece = vec![turn; 100_000 + usize::from(turn)];
            printed += piece.len() as u64;
            last.extend_from_slice(&piece);
            backlog.push(false, &piece);
        }
        let (omitted, kept) = replay(&mut backlog, 70_000);
        assert_eq!(kept.len(), 1);
        assert_eq!(omitted + kept[0].1.len() as u64, printed);
        assert_eq!((kept[0].1.len(), &kept[0].1[..]), (MOST, &last[last.len() - MOST..]));
        // Reported again to the next host, unless this one confirmed bytes.
        assert_eq!(replay(&mut backlog, 70_000).0, omitted);
        backlog.confirm(10);
        assert_eq!(replay(&mut backlog, 70_000).0, 0);
        backlog.rewind();
        backlog.push(true, &vec![7; 3 * MOST]);
        let (omitted, kept) = replay(&mut backlog, MOST);
        assert_eq!(omitted, (3 * MOST - 10) as u64);
        assert_eq!(kept, vec![(true, vec![7; MOST])]);
    }

    #[test]
    fn single_bytes_of_two_streams_cannot_fill_the_memory() {
        let mut backlog = Backlog::default();
        for turn in 0..5 * RUNS {
            backlog.push(turn % 2 == 0, b"x");
        }
        assert_eq!(backlog.runs.len(), RUNS);
        assert_eq!(backlog.room(), 0, "a host that is there holds the command up");
        let (omitted, kept) = replay(&mut backlog, MOST);
        assert_eq!((omitted, kept.len()), (4 * RUNS as u64, RUNS));
        backlog.confirm(1);
        assert!(backlog.room() > 0);
    }
}
