//! An outbox over a socket, without a machine.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use rustix::pipe::{PipeFlags, pipe_with};
use sandbar_guest::protocol::{ExitKind, FRAME_HEADER, FrameHeader};

use super::*;

fn pair() -> (UnixStream, Outbox) {
    let (host, guest) = UnixStream::pair().unwrap();
    guest.set_nonblocking(true).unwrap();
    host.set_nonblocking(true).unwrap();
    (host, Outbox::new(guest.into()))
}

/// A pipe with these bytes, and its writing end.
fn pipe_of(bytes: &[u8]) -> (Rc<Shared>, File) {
    let (fd, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
    let mut write = File::from(write);
    write.write_all(bytes).unwrap();
    (Rc::new(Shared { fd, queued: Cell::new(0) }), write)
}

/// A file with these bytes, already without a name.
fn file_of(name: &str, bytes: &[u8]) -> Rc<File> {
    let path = path_of(name);
    std::fs::write(&path, bytes).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    Rc::new(file)
}

fn path_of(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("sandbar-outbox-{name}-{}", std::process::id()))
}

/// Flushes until everything is sent; returns it, and how often the stream was full.
fn received(outbox: &mut Outbox, host: &mut UnixStream) -> (Vec<u8>, usize) {
    let (mut bytes, mut full) = (Vec::new(), 0);
    loop {
        let done = outbox.flush().unwrap();
        let _would_block = host.read_to_end(&mut bytes);
        match done {
            true => return (bytes, full),
            false => full += 1,
        }
    }
}

/// The frames in these bytes: channel, kind and payload.
fn frames(mut bytes: &[u8]) -> Vec<(u32, u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::decode(bytes).unwrap() {
        let (payload, rest) = bytes[FRAME_HEADER..].split_at(header.length as usize);
        frames.push((header.channel, header.kind, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

fn bulk(channel: u32, error: bool, bytes: &[u8]) -> (u32, u8, Vec<u8>) {
    (channel, FrameHeader::decode(&Event::bulk_header(channel, 0, error)).unwrap().unwrap().kind, bytes.to_vec())
}

fn numbered(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

#[test]
fn pieces_of_every_kind_leave_in_order_however_little_the_stream_takes() {
    let (mut host, mut outbox) = pair();
    let (small, large, piped) = (numbered(10), numbered(900_000), numbered(50_000));
    let (pipe, _write) = pipe_of(&piped);
    let exit = Event::Exit(3, ExitKind::Exited);
    outbox.bulk(1, false, &large).unwrap();
    outbox.bulk(1, true, &small).unwrap();
    outbox.file(2, file_of("order", &large), 100, 800_000);
    outbox.pipe(3, true, pipe.clone(), 50_000);
    outbox.push(1, &exit);
    assert!(outbox.is_full() && pipe.queued.get() == 50_000);
    let (bytes, full) = received(&mut outbox, &mut host);
    assert!(full > 0, "the stream was never full");
    let mut last = Vec::new();
    exit.encode(1, &mut last);
    let expected = vec![
        bulk(1, false, &large),
        bulk(1, true, &small),
        bulk(2, false, &large[100..800_100]),
        bulk(3, true, &piped),
        frames(&last).remove(0),
    ];
    assert!(frames(&bytes) == expected);
    assert!(outbox.is_empty() && !outbox.is_full() && pipe.queued.get() == 0);
    outbox.push(1, &Event::Done);
    assert_eq!(frames(&received(&mut outbox, &mut host).0).len(), 1, "the outbox works again after it was empty");
}

#[test]
fn a_file_that_shrinks_after_its_length_was_announced_is_filled_up_with_zeros() {
    let (mut host, mut outbox) = pair();
    let file = file_of("shrinks", &numbered(1000));
    outbox.file(1, file.clone(), 200, 800);
    outbox.push(1, &Event::Done);
    file.set_len(500).unwrap();
    let frames = frames(&received(&mut outbox, &mut host).0);
    assert_eq!(frames[0], bulk(1, false, &[&numbered(500)[200..], &[0; 500]].concat()));
    assert_eq!(frames.len(), 2);
}

#[test]
fn a_stream_that_takes_no_spliced_bytes_gets_them_copied() {
    let path = path_of("appends");
    // The kernel neither splices nor sends a file into a file that is only appended to.
    let stream = File::options().append(true).create(true).open(&path).unwrap();
    let mut outbox = Outbox::new(stream.into());
    let (pipe, _write) = pipe_of(&numbered(30_000));
    outbox.pipe(1, false, pipe.clone(), 20_000);
    outbox.file(2, file_of("copied", &numbered(70_000)), 1000, 69_000);
    assert!(outbox.flush().unwrap() && outbox.is_empty());
    let frames = frames(&std::fs::read(&path).unwrap());
    assert!(frames == [bulk(1, false, &numbered(20_000)), bulk(2, false, &numbered(70_000)[1000..])]);
    assert_eq!((pipe.queued.get(), rustix::io::ioctl_fionread(&pipe.fd).unwrap()), (0, 10_000));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_closed_outbox_drops_everything_but_leaves_the_bytes_of_pipes_to_the_next_reader() {
    let (mut host, mut outbox) = pair();
    let (pipe, _write) = pipe_of(&numbered(40_000));
    outbox.push(1, &Event::Started);
    outbox.pipe(1, false, pipe.clone(), 30_000);
    outbox.shut();
    assert_eq!((pipe.queued.get(), rustix::io::ioctl_fionread(&pipe.fd).unwrap()), (0, 40_000));
    outbox.push(1, &Event::Done);
    outbox.bulk(1, false, &numbered(100_000)).unwrap();
    outbox.file(1, file_of("closed", b"x"), 0, 1);
    outbox.pipe(1, false, pipe.clone(), 30_000);
    assert!(outbox.is_empty() && outbox.stream().is_none() && pipe.queued.get() == 0);
    assert!(outbox.flush().unwrap());
    let mut bytes = Vec::new();
    assert_eq!(host.read_to_end(&mut bytes).unwrap(), 0);
}

#[test]
fn a_host_that_is_gone_is_an_error() {
    let (host, mut outbox) = pair();
    drop(host);
    outbox.push(1, &Event::Done);
    assert!(outbox.flush().is_err());
    let (host, mut outbox) = pair();
    drop(host);
    assert!(outbox.bulk(1, false, &numbered(100_000)).is_err(), "written at once");
}
