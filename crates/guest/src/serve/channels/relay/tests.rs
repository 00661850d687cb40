//! A relay between pipes and a socket, without a machine.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
};

use rustix::{
    fs::{Mode, OFlags},
    pipe::{PipeFlags, pipe_with},
    pty::{OpenptFlags, openpt, ptsname, unlockpt},
};
use sandbar_guest::protocol::{Event, FRAME_HEADER, FrameHeader, INPUT_WINDOW};

use super::{
    sink::{BULK_WINDOW, SinkEnd},
    *,
};

const ID: Id = Id { link: 0, channel: 7 };

/// A relay, and the host's end of its connection.
struct Rig {
    relay: Relay,
    epoll: OwnedFd,
    outbox: Outbox,
    host: UnixStream,
}

impl Rig {
    fn new(credit: u32) -> Self {
        let (host, guest) = UnixStream::pair().unwrap();
        host.set_nonblocking(true).unwrap();
        guest.set_nonblocking(true).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        Self { relay: Relay::new(ID, credit), epoll, outbox: Outbox::new(guest.into()), host }
    }

    /// Adds a source of this role; returns its writing end.
    fn source(&mut self, role: Role) -> File {
        let (read, write) = pipe();
        self.relay.source(role, read, SourceKind::Pipe, &self.epoll);
        write.into()
    }

    /// Adds a sink; returns its reading end.
    fn sink(&mut self, end: SinkEnd) -> File {
        let (read, write) = pipe();
        self.relay.sink(write, end);
        read.into()
    }

    fn pump(&mut self, role: Role) {
        let mut scratch = vec![0; 128 * 1024];
        self.relay.pump(role, &mut scratch, &mut self.outbox, &self.epoll).unwrap();
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.relay.feed(bytes, &mut self.outbox, &self.epoll);
    }

    fn grant(&mut self, more: u32) {
        self.relay.grant(more, &self.epoll);
    }

    /// What the host has received: bytes of standard output, bytes of standard error, credit, and dropped bytes.
    fn received(&mut self) -> Received {
        let mut bytes = Vec::new();
        loop {
            let done = self.outbox.flush().unwrap();
            let _would_block = self.host.read_to_end(&mut bytes);
            if done {
                break;
            }
        }
        let (mut received, mut rest) = (Received::default(), bytes.as_slice());
        while let Some(header) = FrameHeader::decode(rest).unwrap() {
            assert_eq!(header.channel, self.relay.id.channel);
            let (payload, after) = rest[FRAME_HEADER..].split_at(header.length as usize);
            match Event::decode(header.kind, payload).unwrap() {
                Event::Data(bytes) => received.out.extend(bytes),
                Event::ErrorData(bytes) => received.err.extend(bytes),
                Event::Credit(more) => received.credit += more,
                Event::Omitted(count) => received.omitted += count,
                other => panic!("{other:?}"),
            }
            rest = after;
        }
        assert!(rest.is_empty());
        received
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Received {
    out: Vec<u8>,
    err: Vec<u8>,
    credit: u32,
    omitted: u64,
}

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap()
}

/// Everything that is in a pipe.
fn content(pipe: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _would_block = pipe.read_to_end(&mut bytes);
    bytes
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn output_stops_at_the_end_of_the_credit_and_goes_on_with_more() {
    let mut rig = Rig::new(60);
    let (mut out, mut err) = (rig.source(Role::Out), rig.source(Role::Err));
    let bytes = numbered(100);
    out.write_all(&bytes).unwrap();
    rig.pump(Role::Out);
    assert_eq!(rig.received().out, &bytes[..60]);
    assert!(rig.relay.is_stalled(), "a source without credit is not polled");
    err.write_all(b"wrong").unwrap();
    rig.pump(Role::Err);
    assert_eq!(rig.received(), Received::default());
    rig.grant(45);
    assert!(!rig.relay.is_stalled());
    rig.pump(Role::Out);
    rig.pump(Role::Err);
    let received = rig.received();
    assert_eq!((received.out.as_slice(), received.err.as_slice()), (&bytes[60..], b"wrong".as_slice()));
    assert_eq!(rig.relay.available(), 0);
    drop((out, err));
    rig.grant(1);
    rig.pump(Role::Out);
    assert!(!rig.relay.is_silent());
    rig.pump(Role::Err);
    assert!(rig.relay.is_silent());
}

#[test]
fn spliced_output_arrives_in_order_and_is_not_read_twice() {
    let mut rig = Rig::new(u32::MAX);
    let mut out = rig.source(Role::Out);
    let bytes = numbered(WORTH_MOVING + 5_000);
    out.write_all(&bytes[..WORTH_MOVING]).unwrap();
    rig.pump(Role::Out);
    assert!(rig.relay.out.as_ref().unwrap().is_moving());
    out.write_all(&bytes[WORTH_MOVING..]).unwrap();
    rig.pump(Role::Out);
    assert!(rig.relay.is_stalled(), "queued bytes are sent before the pipe is read again");
    assert_eq!(rig.received().out, &bytes[..WORTH_MOVING]);
    rig.pump(Role::Out);
    assert_eq!(rig.received().out, &bytes[WORTH_MOVING..]);
    assert_eq!(rig.relay.available(), u32::MAX as usize - bytes.len());
}

#[test]
fn discarded_output_is_read_without_credit() {
    let mut rig = Rig::new(0);
    let mut out = rig.source(Role::Out);
    out.write_all(&numbered(50_000)).unwrap();
    rig.pump(Role::Out);
    rig.relay.discard(&rig.epoll);
    rig.pump(Role::Out);
    out.write_all(&numbered(60_000)).expect("room again");
    assert_eq!(rig.received(), Received::default());
}

#[test]
fn output_of_the_command_itself_is_all_there_although_its_children_hold_the_pipe() {
    let mut rig = Rig::new(10);
    let mut out = rig.source(Role::Out);
    out.write_all(b"last words").unwrap();
    rig.relay.expect_rest();
    assert!(!rig.relay.is_dry());
    out.write_all(b" of a child").unwrap();
    rig.pump(Role::Out);
    assert!(rig.relay.is_dry() && !rig.relay.is_silent());
    assert_eq!(rig.received().out, b"last words");
}

#[test]
fn input_is_queued_and_costs_credit_until_the_process_reads() {
    let mut rig = Rig::new(0);
    let mut process = rig.sink(SinkEnd::Close);
    let bytes = numbered(INPUT_WINDOW as usize);
    assert_eq!(rig.relay.room(), bytes.len());
    rig.feed(&bytes);
    let written = bytes.len() - (INPUT_WINDOW as usize - rig.relay.room());
    assert!((1..bytes.len()).contains(&written), "{written}: a pipe holds less than the window");
    assert_eq!(rig.received().credit as usize, written);
    rig.relay.end(&mut rig.outbox, &rig.epoll);
    assert!(rig.relay.has_sink() && !rig.relay.takes_input(), "the end comes after the queue");
    let mut read = Vec::new();
    let mut credit = written;
    while rig.relay.has_sink() {
        read.extend(content(&mut process));
        rig.relay.drain(&mut rig.outbox, &rig.epoll);
        credit += rig.received().credit as usize;
    }
    read.extend(content(&mut process));
    assert_eq!((read, credit), (bytes, INPUT_WINDOW as usize));
    assert_eq!(process.read(&mut [0]).unwrap(), 0, "the input has ended");
}

#[test]
fn input_for_a_process_that_does_not_read_any_more_is_dropped_and_credited() {
    let mut rig = Rig::new(0);
    drop(rig.sink(SinkEnd::Close));
    rig.feed(b"first");
    assert!(!rig.relay.has_sink());
    rig.feed(b"second");
    assert_eq!(rig.received().credit, 11);
}

#[test]
fn the_end_of_a_terminals_input_is_a_character_and_two_in_the_middle_of_a_line() {
    for (typed, sent) in [("", "\x04"), ("x\n", "x\n\x04"), ("x\r", "x\r\x04"), ("x", "x\x04\x04")] {
        let mut rig = Rig::new(0);
        let mut process = rig.sink(SinkEnd::Terminal);
        if !typed.is_empty() {
            rig.feed(typed.as_bytes());
        }
        rig.relay.end(&mut rig.outbox, &rig.epoll);
        assert_eq!(String::from_utf8(content(&mut process)).unwrap(), sent, "{typed:?}");
        assert!(rig.relay.takes_input(), "a terminal goes on after it");
    }
}

#[test]
fn credit_for_a_bulk_sink_follows_its_reader_and_never_exceeds_what_was_written() {
    let mut rig = Rig::new(0);
    let (mut read, write) = pipe();
    let meter = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    let reader = File::from(rustix::io::dup(&meter).unwrap());
    assert!(!rig.relay.read_meter(&mut rig.outbox), "no meter yet");
    rig.relay.bulk_sink(write, meter, &mut rig.outbox, &rig.epoll).unwrap();
    assert_eq!(rig.received().credit, BULK_WINDOW - INPUT_WINDOW);
    assert_eq!((rig.relay.room(), rig.relay.has_meter()), (BULK_WINDOW as usize, true));
    rig.feed(&numbered(1000));
    let (mut host, guest) = UnixStream::pair().unwrap();
    host.write_all(&numbered(500)).unwrap();
    assert_eq!(rig.relay.move_in(&guest.into(), 400), Some(400), "no more than the frame has");
    assert_eq!(rig.received().credit, 0, "written is not read");
    for (count, credit) in [(600, 600), (u64::MAX - 1, 800), (5, 0)] {
        (&reader).write_all(&count.to_ne_bytes()).unwrap();
        assert!(rig.relay.read_meter(&mut rig.outbox));
        assert_eq!(rig.received().credit, credit);
    }
    let all = [numbered(1000), numbered(400)].concat();
    assert_eq!(content(&mut File::from(rustix::io::dup(&read).unwrap())), all);
    assert_eq!(read_one(&mut read), None);
}

fn read_one(pipe: &mut OwnedFd) -> Option<u8> {
    let mut byte = [0];
    rustix::io::read(pipe, &mut byte).ok().filter(|count| *count > 0).map(|_| byte[0])
}

#[test]
fn output_without_a_host_is_stored_and_sent_to_the_next_one_from_the_first_unconfirmed_byte() {
    let mut rig = Rig::new(1000);
    rig.relay.remember();
    let mut out = rig.source(Role::Out);
    out.write_all(b"onetwo").unwrap();
    rig.pump(Role::Out);
    assert_eq!(rig.received().out, b"onetwo");
    rig.grant(3);
    rig.relay.rehome(Id { link: 1, channel: 1 }, None, &rig.epoll);
    assert!(rig.relay.is_orphan());
    out.write_all(b"three").unwrap();
    rig.pump(Role::Out);
    assert_eq!(rig.received(), Received::default());
    rig.relay.rehome(Id { link: 2, channel: 9 }, Some(4), &rig.epoll);
    assert!(!rig.relay.is_orphan() && rig.relay.is_behind());
    assert!(!rig.relay.replay(&mut rig.outbox).unwrap(), "the window is used up");
    assert_eq!(rig.received().out, b"twot");
    rig.grant(100);
    assert!(!rig.relay.replay(&mut rig.outbox).unwrap());
    assert_eq!(rig.received().out, b"hree");
    assert!(!rig.relay.is_behind());
}

#[test]
fn queued_input_stays_with_the_process_and_costs_the_next_host_nothing() {
    let mut rig = Rig::new(0);
    let mut process = rig.sink(SinkEnd::Close);
    let bytes = numbered(INPUT_WINDOW as usize);
    rig.feed(&bytes);
    assert!(rig.relay.room() < bytes.len());
    let _by_the_first_host = rig.received();
    rig.relay.rehome(Id { link: 1, channel: 1 }, Some(0), &rig.epoll);
    assert_eq!(rig.relay.room(), bytes.len());
    let mut read = Vec::new();
    while read.len() < bytes.len() {
        read.extend(content(&mut process));
        rig.relay.drain(&mut rig.outbox, &rig.epoll);
    }
    assert_eq!((read, rig.received().credit), (bytes, 0));
}

/// Writes one byte to a terminal and closes it while another thread reads; `None` if the byte was lost.
fn last_byte(delay: u32, read: fn(&OwnedFd, &mut [u8]) -> rustix::io::Result<usize>) -> Option<u8> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    unlockpt(&master).expect("unlock");
    let path = ptsname(&master, Vec::new()).expect("its name");
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let mut slave = File::from(rustix::fs::open(path.as_c_str(), flags, Mode::empty()).expect("its other end"));
    rustix::io::ioctl_fionbio(&master, true).expect("non-blocking");
    let writer = thread::spawn(move || {
        (0..delay).for_each(|_| std::hint::spin_loop());
        slave.write_all(b"x").expect("write");
    });
    let mut buffer = [0; 8];
    let answer = loop {
        match read(&master, &mut buffer) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            answer => break answer,
        }
    };
    writer.join().expect("the writer ends");
    answer.ok().filter(|count| *count > 0).map(|_| buffer[0])
}

#[test]
fn what_was_written_right_before_a_terminal_closed_is_read() {
    for round in 0..5_000 {
        assert_eq!(last_byte(round % 2_000, read), Some(b'x'), "round {round}");
    }
}
