//! Visitors at a door: each sends its knock, and is let in, refused, or ends the machine.

use std::{
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::{
    event::PollFlags,
    io::Errno,
    net::{SocketFlags, accept_with},
};
use sandbar_guest::protocol::{Detached, Knock, Nonce, VERSION, Welcome, Wish};

/// Visitors handled at a time; further ones wait in the listen queue.
const MOST: usize = 16;
/// How long a visitor may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Result of one turn.
pub(crate) enum Verdict {
    /// Connections to accept.
    Enter(Vec<OwnedFd>),
    /// An authorized visitor asked to end the machine.
    End,
}

/// A listening socket and its visitors.
pub(crate) struct Visitors {
    listener: OwnedFd,
    /// Whether a peer may knock at all.
    is_welcome: fn(&OwnedFd) -> bool,
    nonce: Nonce,
    memo: Vec<u8>,
    waiting: Vec<Visitor>,
}

impl Visitors {
    pub(crate) fn new(listener: OwnedFd, detached: &Detached, is_welcome: fn(&OwnedFd) -> bool) -> Self {
        Self { listener, is_welcome, nonce: detached.nonce, memo: detached.memo.clone(), waiting: Vec::new() }
    }

    /// Descriptors to poll, and for what.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (&OwnedFd, PollFlags)> {
        let listening = if self.waiting.len() < MOST { PollFlags::IN } else { PollFlags::empty() };
        let each = self.waiting.iter().map(|visitor| {
            let until = if visitor.answer.is_some() { PollFlags::OUT } else { PollFlags::IN };
            (&visitor.stream, until)
        });
        std::iter::once((&self.listener, listening)).chain(each)
    }

    /// When the oldest visitor times out.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.waiting.iter().map(|visitor| visitor.until).min()
    }

    /// Handles everything that is ready, without blocking.
    pub(crate) fn turn(&mut self) -> Verdict {
        while self.waiting.len() < MOST {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                Ok(stream) if (self.is_welcome)(&stream) => self.waiting.push(Visitor::new(stream)),
                Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) => break,
                // For example, no descriptors are free; a later attempt may work.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(50));
                    break;
                }
            }
        }
        let now = Instant::now();
        let mut entering = Vec::new();
        for mut visitor in std::mem::take(&mut self.waiting) {
            match visitor.proceed(self.nonce, &self.memo) {
                Next::Wait if visitor.until > now => self.waiting.push(visitor),
                Next::Enter => entering.push(visitor.stream),
                Next::End => return Verdict::End,
                Next::Wait | Next::Leave => {}
            }
        }
        Verdict::Enter(entering)
    }
}

/// A connection whose knock is not answered yet.
struct Visitor {
    stream: OwnedFd,
    said: Vec<u8>,
    /// The answer, and how many bytes of it were sent.
    answer: Option<(Vec<u8>, usize)>,
    until: Instant,
}

/// Next state of a visitor.
enum Next {
    Wait,
    Enter,
    Leave,
    End,
}

impl Visitor {
    fn new(stream: OwnedFd) -> Self {
        Self { stream, said: Vec::new(), answer: None, until: Instant::now() + PATIENCE }
    }

    fn proceed(&mut self, nonce: Nonce, memo: &[u8]) -> Next {
        if self.answer.is_none() {
            let mut buffer = [0; Knock::LENGTH];
            let room = buffer.get_mut(self.said.len()..).unwrap_or_default();
            match rustix::io::read(&self.stream, &mut *room) {
                Ok(0) => return Next::Leave,
                Ok(count) => self.said.extend_from_slice(room.get(..count).unwrap_or_default()),
                Err(Errno::AGAIN | Errno::INTR) => return Next::Wait,
                Err(_) => return Next::Leave,
            }
            if self.said.len() < Knock::LENGTH {
                return Next::Wait;
            }
            match Knock::decode(&self.said) {
                Ok(knock) if !same(knock.nonce, nonce) => return Next::Leave,
                Ok(Knock { wish: Wish::End, .. }) => {
                    let _gone = rustix::io::write(&self.stream, &welcome(&[]));
                    return Next::End;
                }
                Ok(Knock { version: VERSION, .. }) => self.answer = Some((welcome(memo), 0)),
                // The answer contains the version that the visitor would have to speak.
                Ok(_) => {
                    let _gone = rustix::io::write(&self.stream, &welcome(&[]));
                    return Next::Leave;
                }
                Err(_) => return Next::Leave,
            }
        }
        let Some((answer, sent)) = &mut self.answer else { return Next::Leave };
        while let Some(rest) = answer.get(*sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&self.stream, rest) {
                Ok(count) => *sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Next::Wait,
                Err(_) => return Next::Leave,
            }
        }
        Next::Enter
    }
}

fn welcome(memo: &[u8]) -> Vec<u8> {
    let length = u32::try_from(memo.len()).unwrap_or_default();
    let mut answer = Welcome { version: VERSION, length }.encode();
    answer.extend_from_slice(memo);
    answer
}

/// Compares in constant time.
fn same(one: Nonce, other: Nonce) -> bool {
    one.iter().zip(other).fold(0, |differences, (one, other)| differences | (one ^ other)) == 0
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket_with};

    use super::*;

    const NONCE: Nonce = [7; 16];

    /// A connected visitor and its door.
    fn at_door(name: &str) -> (OwnedFd, Visitors) {
        let socket =
            |flags| socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | flags, None).unwrap();
        let name = format!("sandbar-test-{name}-{}", std::process::id());
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let (listener, visitor) = (socket(SocketFlags::NONBLOCK), socket(SocketFlags::empty()));
        bind(&listener, &address).unwrap();
        listen(&listener, 8).unwrap();
        connect(&visitor, &address).unwrap();
        let detached = Detached { nonce: NONCE, memo: b"notes".to_vec(), lease_ms: 0 };
        (visitor, Visitors::new(listener, &detached, |_| true))
    }

    fn heard(visitor: &OwnedFd) -> Vec<u8> {
        let mut bytes = [0; 64];
        let count = rustix::io::read(visitor, &mut bytes).unwrap_or_default();
        bytes[..count].to_vec()
    }

    #[test]
    fn a_visitor_with_the_nonce_gets_the_memo_and_is_let_in() {
        let (visitor, mut door) = at_door("known");
        let knock = Knock::new(Wish::Attach, NONCE).encode();
        for (part, entered) in [(&knock[..5], 0), (&knock[5..], 1)] {
            rustix::io::write(&visitor, part).unwrap();
            let Verdict::Enter(streams) = door.turn() else { panic!("it ends") };
            assert_eq!(streams.len(), entered);
            assert_eq!(door.deadline().is_some(), entered == 0, "only those that are not in yet are waited for");
        }
        assert_eq!(heard(&visitor), [Welcome { version: VERSION, length: 5 }.encode(), b"notes".to_vec()].concat());
    }

    #[test]
    fn a_visitor_without_the_nonce_is_disconnected() {
        for wish in [Wish::Attach, Wish::End] {
            let (visitor, mut door) = at_door(&format!("unknown-{wish:?}"));
            rustix::io::write(&visitor, &Knock::new(wish, [8; 16]).encode()).unwrap();
            assert!(matches!(door.turn(), Verdict::Enter(streams) if streams.is_empty()));
            assert_eq!(heard(&visitor), b"");
        }
    }

    #[test]
    fn a_visitor_with_the_nonce_can_end_the_machine() {
        let (visitor, mut door) = at_door("end");
        rustix::io::write(&visitor, &Knock::new(Wish::End, NONCE).encode()).unwrap();
        assert!(matches!(door.turn(), Verdict::End));
    }
}
