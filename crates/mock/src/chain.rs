//! Progress of each conversation, encoded in the ids that the server assigns, so that the server need not remember the progress.

use std::collections::BTreeMap;

use crate::play::{Play, Position};

/// Last known item of each conversation. `0_4-1_2` means: conversation 0 is at its turn 4, and the last answer was turn 2 of
/// conversation 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    seen: BTreeMap<usize, (usize, usize)>,
    /// Index of the conversation that answered last.
    last: Option<usize>,
}

impl Chain {
    /// Parses the output of [`Chain::write`]. `None` if the text is invalid, or belongs to another script.
    pub(crate) fn read(text: &str, play: &Play) -> Option<Self> {
        let mut chain = Self::default();
        for part in text.split('-') {
            let (conversation, turn) = part.split_once('_')?;
            let (conversation, turn) = (number(conversation)?, number(turn)?);
            play.turn(conversation, turn)?;
            chain.seen.insert(conversation, (turn, usize::MAX));
            chain.last = Some(conversation);
        }
        Some(chain)
    }

    /// Writes the chain. The conversation that answered last is the last entry.
    pub(crate) fn write(&self) -> String {
        let others = self.seen.iter().filter(|(conversation, _)| Some(**conversation) != self.last);
        let last = self.last.and_then(|last| self.seen.get_key_value(&last));
        let parts: Vec<String> =
            others.chain(last).map(|(conversation, (turn, _))| format!("{conversation}_{turn}")).collect();
        parts.join("-")
    }

    /// Position of the last answer.
    pub(crate) fn last(&self) -> Option<(usize, usize)> {
        let last = self.last?;
        Some((last, self.seen.get(&last)?.0))
    }

    pub(crate) fn knows(&self, conversation: usize) -> bool {
        self.seen.contains_key(&conversation)
    }

    /// Index of the next turn of a conversation.
    pub(crate) fn next_turn(&self, conversation: usize) -> usize {
        self.seen.get(&conversation).map_or(0, |(turn, _)| turn.saturating_add(1))
    }

    /// Whether the chain has reached an item.
    pub(crate) fn covers(&self, at: Position) -> bool {
        self.seen.get(&at.conversation).is_some_and(|seen| (at.turn, at.item) <= *seen)
    }

    /// Records that a conversation has reached at least this position.
    pub(crate) fn advance(&mut self, at: Position) {
        let seen = self.seen.entry(at.conversation).or_insert((at.turn, at.item));
        *seen = (*seen).max((at.turn, at.item));
        self.last = Some(at.conversation);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (conversation, (turn, item)) in &other.seen {
            self.advance(Position { conversation: *conversation, turn: *turn, item: *item });
        }
    }

    /// Records a mark that each of these positions leaves: every conversation advances to its first position that was not
    /// reached yet.
    pub(crate) fn advance_to_next(&mut self, positions: &[Position]) {
        let mut from = 0;
        while let Some(first) = positions.get(from) {
            let conversation = first.conversation;
            let end = from + positions[from..].partition_point(|at| at.conversation == conversation);
            let next = from + positions[from..end].partition_point(|at| self.covers(*at));
            if next < end {
                self.advance(positions[next]);
            }
            from = end;
        }
    }
}

fn number(text: &str) -> Option<usize> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conversation, Script, item};

    fn play() -> Play {
        let turns = |count| (0..count).fold(Conversation::new(), |all, at| all.turn(item::text(format!("t{at}"))));
        Play::new(Script::new().conversation(turns(3)).conversation(turns(2))).unwrap()
    }

    #[test]
    fn a_chain_is_read_as_it_was_written() {
        for text in ["0_0", "0_2", "1_1", "0_1-1_0", "1_0-0_2"] {
            assert_eq!(Chain::read(text, &play()).unwrap().write(), text);
        }
        for text in ["", "0", "0_3", "2_0", "0_-1", "0_+1", "a_b", "0_0-", "0_99999999999999999999999"] {
            assert_eq!(Chain::read(text, &play()), None, "{text}");
        }
    }

    #[test]
    fn the_same_mark_twice_is_two_turns() {
        let at = |conversation, turn| Position { conversation, turn, item: 0 };
        let positions = [at(0, 0), at(0, 2), at(1, 1)];
        let mut chain = Chain::default();
        let mut next = || {
            chain.advance_to_next(&positions);
            (chain.next_turn(0), chain.next_turn(1))
        };
        assert_eq!([next(), next(), next()], [(1, 2), (3, 2), (3, 2)]);
    }
}
