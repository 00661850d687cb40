//! Chooses the process to evict when the table is full.

/// The facts about a process that the choice depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: u64,
    /// Time of the last use; higher is more recent.
    pub(super) used: u64,
    pub(super) exited: bool,
    /// Whether a call is waiting for the process.
    pub(super) busy: bool,
}

/// The least recently used process that has exited, else the least recently used one; never one of the `protected` most
/// recently used, and never one that a call waits for.
pub(super) fn victim(mut candidates: Vec<Candidate>, protected: usize) -> Option<u64> {
    candidates.sort_unstable_by_key(|candidate| candidate.used);
    candidates.truncate(candidates.len().saturating_sub(protected));
    candidates.retain(|candidate| !candidate.busy);
    let exited = candidates.iter().find(|candidate| candidate.exited);
    exited.or(candidates.first()).map(|candidate| candidate.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per process, least recently used first: `r`unning, e`x`ited, upper case while a call waits.
    fn chosen(letters: &str, protected: usize) -> Option<u64> {
        let candidate = |(at, letter): (usize, char)| Candidate {
            id: at as u64,
            used: at as u64,
            exited: letter.eq_ignore_ascii_case(&'x'),
            busy: letter.is_uppercase(),
        };
        let mut candidates: Vec<Candidate> = letters.chars().enumerate().map(candidate).collect();
        candidates.reverse();
        victim(candidates, protected)
    }

    #[test]
    fn the_oldest_exited_process_is_evicted_first_then_the_oldest() {
        let table = [
            ("rrxrxrr", 2, Some(2)),
            ("rrrr", 2, Some(0)),
            ("Rrrr", 2, Some(1)),
            ("rXxrr", 2, Some(2)),
            ("rrrx", 2, Some(0)),
            ("RRrr", 2, None),
            ("rr", 2, None),
            ("r", 8, None),
            ("", 0, None),
        ];
        for (letters, protected, expected) in table {
            assert_eq!(chosen(letters, protected), expected, "{letters}");
        }
    }
}
