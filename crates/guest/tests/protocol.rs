//! The protocol: its bytes on the wire, round trips, bounds, and malformed input.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use sandbar_guest::protocol::{
    AccountGroup, Accounts, At, BootFailure, Detached, Event, ExitKind, Expected, FRAME_HEADER, FailKind, FrameHeader,
    Hello, HostPath, Kind, Knock, Launch, LaunchMount, Level, LimitStrengths, MAX_ACCOUNTS, MAX_DATA, MAX_MEMO,
    MAX_PAYLOAD, MAX_WORDS, Open, ProcessRecord, ProcessState, Record, Records, Request, Spawn, Strength, Welcome,
    WireError, Wish,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn at() -> At {
    At {
        path: b"/a/b".to_vec(),
        user: Some(b"ada".to_vec()),
        group: Some(b"staff".to_vec()),
        beneath: Some(b"/a".to_vec()),
        mode: Some(0o640),
        expected: Some(Expected::File(5, 0o600, -7)),
    }
}

fn spawn() -> Spawn {
    Spawn {
        argv: vec![b"sh".to_vec(), b"-c".to_vec(), Vec::new()],
        env: vec![b"A=b".to_vec()],
        cwd: b"/w".to_vec(),
        user: Some(b"ada".to_vec()),
        tty: Some((24, 80)),
        stdin: true,
        deadline_ms: 1500,
        rlimits: vec![(7, 64), (0, u64::MAX)],
        keep: true,
        joined: false,
    }
}

fn launch() -> Launch {
    let host = |path: &str| HostPath { path: path.as_bytes().to_vec(), device: 3, inode: 4 };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    Launch {
        version: 6,
        level: Level::Landlock,
        state: b"/s".to_vec(),
        id: b"m1".to_vec(),
        sweep: true,
        workspace: Some((host("/w"), true)),
        mounts: vec![LaunchMount { host: host("/m"), inside: b"/i".to_vec(), writable: false }],
        rootfs: Some(host("/r")),
        host_network: true,
        tmp_bytes: 1 << 20,
        pids: 64,
        open_files: 256,
        memory: Some(1 << 30),
        cpus: Some(1500),
        disk: None,
        accounts: Accounts {
            users: names(&["ada"]),
            groups: vec![AccountGroup { name: "staff".into(), members: names(&["ada", "bob"]) }],
        },
        detached: Some(Detached { nonce: [9; 16], memo: vec![0, 1, 2], lease_ms: 60_000 }),
        owner: Some((1000, 1001)),
    }
}

fn hello() -> Hello {
    Hello {
        version: 6,
        layers: vec!["seccomp".into(), "é".into()],
        workspace: b"/workspace".to_vec(),
        home: b"/home/agent".to_vec(),
        users: true,
        held: LimitStrengths {
            memory: Strength::Hard,
            cpu: Strength::None,
            pids: Strength::Soft,
            disk: Strength::Soft,
        },
    }
}

fn requests() -> Vec<Request<'static>> {
    let bare = || At { path: b"/".to_vec(), ..At::default() };
    let opens = [
        Open::Spawn(spawn()),
        Open::Read(at()),
        Open::Write(At { expected: Some(Expected::Nothing), ..bare() }),
        Open::Stat(bare()),
        Open::List(bare()),
        Open::MakeDir(bare()),
        Open::Remove(bare()),
        Open::Rename(bare(), at()),
        Open::Scan(bare(), vec![b"x".to_vec()], true),
        Open::Pack(bare(), vec![b"x".to_vec(), b"y/z".to_vec()]),
        Open::Unpack(bare()),
        Open::Connect(8080),
        Open::Processes,
        Open::Adopt(1 << 40),
        Open::Signal(3, 15),
        Open::Stop,
    ];
    let others = [
        Request::Data(b"bulk"),
        Request::End,
        Request::Credit(70_000),
        Request::Signal(9),
        Request::Resize(24, 80),
        Request::Close,
        Request::Leave,
    ];
    opens.into_iter().map(|open| Request::Open(4096, open)).chain(others).collect()
}

fn events() -> Vec<Event<'static>> {
    let ends = [ExitKind::Exited, ExitKind::Signaled, ExitKind::Deadline, ExitKind::Memory, ExitKind::Disk];
    let fails = [
        FailKind::Errno,
        FailKind::Symlink,
        FailKind::WrongKind,
        FailKind::User,
        FailKind::Archive,
        FailKind::Invalid,
        FailKind::Changed,
        FailKind::NoProcess,
        FailKind::Held,
        FailKind::Full,
    ];
    let mut events = vec![
        Event::Hello(hello()),
        Event::Started,
        Event::Kept(5, true),
        Event::Omitted(6),
        Event::Data(b"out"),
        Event::ErrorData(b"err"),
        Event::Credit(7),
        Event::Done,
    ];
    events.extend(ends.map(|how| Event::Exit(-1, how)));
    events.extend(fails.map(|kind| Event::Fail(kind, 2, "why".into())));
    events
}

fn records() -> Vec<Record> {
    let file = Record {
        path: b"a/b".to_vec(),
        kind: Kind::File,
        size: 9,
        mode: 0o4755,
        modified_ns: -1,
        uid: 1000,
        gid: 1001,
        link: None,
        sha256: Some([7; 32]),
    };
    let link = Record { kind: Kind::Symlink, link: Some(b"c".to_vec()), sha256: None, ..file.clone() };
    let dir = Record { kind: Kind::Dir, ..Record::default() };
    vec![file, link, dir, Record { kind: Kind::Other, ..Record::default() }]
}

fn processes() -> Vec<ProcessRecord> {
    let argv = vec![b"sh".to_vec(), Vec::new()];
    let held = ProcessRecord { id: 7, argv, since: 9, ..ProcessRecord::default() };
    let alone = ProcessRecord { state: ProcessState::Alone, user: Some(b"ada".to_vec()), ..held.clone() };
    let state = ProcessState::Ended(-3, ExitKind::Deadline);
    vec![held.clone(), alone, ProcessRecord { state, tty: true, kept: true, ..held }]
}

/// Every message of the protocol, in bytes.
fn wire() -> String {
    let mut lines = Vec::new();
    let mut line = |name: String, bytes: &[u8]| lines.push(format!("{name} {}\n", hex(bytes)));
    for request in requests() {
        let mut bytes = Vec::new();
        request.encode(0x0102_0304, &mut bytes);
        line("request".to_owned(), &bytes);
    }
    for event in events() {
        let mut bytes = Vec::new();
        event.encode(0x0102_0304, &mut bytes);
        line("event".to_owned(), &bytes);
    }
    for record in records() {
        let mut bytes = Vec::new();
        record.encode(&mut bytes);
        line("record".to_owned(), &bytes);
    }
    for level in [Level::None, Level::Landlock, Level::Full] {
        line("launch".to_owned(), &Launch { level, ..launch() }.encode());
    }
    line("processes".to_owned(), &ProcessRecord::encode_all(&processes()));
    let failure = BootFailure { stage: "mount".into(), errno: 1, missing: "ids".into(), fix: "add".into() };
    line("failure".to_owned(), &failure.encode());
    for wish in [Wish::Attach, Wish::End] {
        line("knock".to_owned(), &Knock { version: 6, wish, nonce: [8; 16] }.encode());
    }
    line("welcome".to_owned(), &Welcome { version: 6, length: 99 }.encode());
    lines.concat()
}

#[test]
fn messages_have_the_bytes_of_this_version() {
    let (now, before) = (wire(), include_str!("protocol.hex"));
    if std::env::var("PROTOCOL_BYTES").as_deref() == Ok("write") {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocol.hex"), now).unwrap();
        return;
    }
    for (now, before) in now.lines().zip(before.lines()) {
        assert_eq!(now, before, "a changed message needs another VERSION");
    }
    assert_eq!(now.lines().count(), before.lines().count());
}

/// Splits a frame into its kind and its payload.
fn frame(encode: impl FnOnce(&mut Vec<u8>)) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    let header = FrameHeader::decode(&bytes).unwrap().unwrap();
    assert_eq!((header.channel, header.length as usize), (5, bytes.len() - FRAME_HEADER));
    (header.kind, bytes.split_off(FRAME_HEADER))
}

/// Checks that a message is decoded from exactly its bytes: not from fewer, and not from more. `decode` returns whether
/// the decoded message equals the encoded one.
fn check(bytes: &[u8], decode: impl Fn(&[u8]) -> Result<bool, WireError>) {
    assert_eq!(decode(bytes), Ok(true), "{}", hex(bytes));
    for end in 0..bytes.len() {
        assert_ne!(decode(&bytes[..end]), Ok(true), "{end} bytes of {}", hex(bytes));
    }
    assert_eq!(decode(&[bytes, &[0]].concat()), Err(WireError("it has bytes left over")), "{}", hex(bytes));
}

#[test]
fn every_message_survives_a_round_trip_and_no_other_length_is_accepted() {
    for request in requests() {
        let (kind, payload) = frame(|out| request.encode(5, out));
        let is_bulk = matches!(request, Request::Data(_));
        assert_eq!(Request::is_bulk(kind), is_bulk);
        match is_bulk {
            true => assert_eq!(Request::decode(kind, &payload), Ok(request)),
            false => check(&payload, |bytes| Ok(Request::decode(kind, bytes)? == request)),
        }
    }
    for event in events() {
        let (kind, payload) = frame(|out| event.encode(5, out));
        match Event::bulk(kind) {
            Some(error) => {
                assert_eq!(error, matches!(event, Event::ErrorData(_)));
                let header = FrameHeader::decode(&Event::bulk_header(5, payload.len() as u32, error));
                assert_eq!(header.unwrap().unwrap().kind, kind);
                assert_eq!(Event::decode(kind, &payload), Ok(event));
            }
            None => check(&payload, |bytes| Ok(Event::decode(kind, bytes)? == event)),
        }
    }
    let failure = BootFailure { stage: "mount".into(), errno: 1, missing: "ids".into(), fix: "add".into() };
    check(&failure.encode(), |bytes| Ok(BootFailure::decode(bytes)? == failure));
    let smallest = Launch { id: b"x".to_vec(), ..Launch::default() };
    for launch in [launch(), smallest] {
        check(&launch.encode(), |bytes| Ok(Launch::decode(bytes)? == launch));
        let length = (launch.encode().len() as u32).to_le_bytes();
        assert_eq!(launch.encode_framed().unwrap(), [length.as_slice(), &launch.encode()].concat());
    }
    let processes = processes();
    check(&ProcessRecord::encode_all(&processes), |bytes| Ok(ProcessRecord::decode_all(bytes)? == processes));
    let welcome = Welcome { version: 6, length: 99 };
    check(&welcome.encode(), |bytes| Ok(Welcome::decode(bytes)? == welcome));
}

#[test]
fn records_arrive_in_pieces_of_any_size() {
    let mut bytes = Vec::new();
    records().iter().for_each(|record| record.encode(&mut bytes));
    for size in 1..bytes.len() {
        let (mut decoder, mut decoded) = (Records::default(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.feed(piece, &mut decoded).unwrap();
        }
        assert!(decoder.is_complete());
        assert_eq!(decoded, records(), "{size}");
    }
    let (mut decoder, mut decoded) = (Records::default(), Vec::new());
    decoder.feed(&bytes[..bytes.len() - 1], &mut decoded).unwrap();
    assert!(!decoder.is_complete() && decoded.len() == records().len() - 1);
}

/// Bytes of a message with some of them replaced.
fn with(bytes: &[u8], at: usize, new: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

#[test]
fn malformed_requests_are_refused_for_the_right_reason() {
    let payload = |request: Request<'_>| frame(|out| request.encode(5, out));
    let refused = |kind: u8, bytes: &[u8]| Request::decode(kind, bytes).unwrap_err().0;
    let (stat, bare) = payload(Request::Open(1, Open::Stat(At { path: b"/".to_vec(), ..At::default() })));
    assert_eq!(refused(stat, &with(&bare, 8, b"x")), "a path is not absolute");
    assert_eq!(refused(stat, &with(&bare, 8, &[0])), "a string contains NUL");
    assert_eq!(refused(stat, &with(&bare, 9, &[2])), "a flag is neither 0 nor 1");
    assert_eq!(refused(stat, &with(&bare, 4, &u32::MAX.to_le_bytes())), "it ends too early");
    assert_eq!(refused(stat, &bare[..7]), "it ends too early");
    let (stat, beneath) = payload(Request::Open(1, Open::Stat(At { beneath: Some(b"a".to_vec()), ..at() })));
    assert_eq!(refused(stat, &beneath), "a path is not absolute");
    let (write, expected) = payload(Request::Open(
        1,
        Open::Write(At { expected: Some(Expected::Nothing), path: b"/".to_vec(), ..At::default() }),
    ));
    assert_eq!(refused(write, &with(&expected, expected.len() - 1, &[2])), "a flag is neither 0 nor 1");
    let (run, spawn) = payload(Request::Open(1, Open::Spawn(spawn())));
    assert_eq!(refused(run, &with(&spawn, 4, &u32::MAX.to_le_bytes())), "a list is longer than its frame");
    assert_eq!(refused(0, &[]), "it ends too early");
    for unknown in [0, 17, 31, 39, 64, 255] {
        assert_eq!(refused(unknown, &[0; 4]), "its kind is unknown");
    }
    let data = Request::decode(payload(Request::Data(b"x")).0, &[1; MAX_DATA]);
    assert_eq!(data, Ok(Request::Data(&[1; MAX_DATA])));
    for bytes in [&[][..], &[1; MAX_DATA + 1]] {
        assert_eq!(refused(payload(Request::Data(b"x")).0, bytes), "its data is empty or too long");
    }
}

#[test]
fn malformed_events_are_refused_for_the_right_reason() {
    let payload = |event: Event<'_>| frame(|out| event.encode(5, out));
    let refused = |kind: u8, bytes: &[u8]| Event::decode(kind, bytes).unwrap_err().0;
    let (exit, bytes) = payload(Event::Exit(1, ExitKind::Exited));
    assert_eq!(refused(exit, &with(&bytes, 4, &[5])), "a choice is unknown");
    let (fail, bytes) = payload(Event::Fail(FailKind::Errno, 1, "x".into()));
    assert_eq!(refused(fail, &with(&bytes, 0, &[10])), "a choice is unknown");
    let text = Event::Fail(FailKind::Errno, 1, "\u{fffd}".into());
    assert_eq!(Event::decode(fail, &with(&bytes, 9, &[0xff])), Ok(text), "text that is not UTF-8 is replaced");
    let (hello, bytes) = payload(Event::Hello(hello()));
    assert_eq!(refused(hello, &with(&bytes, bytes.len() - 1, &[3])), "a choice is unknown");
    assert_eq!(refused(hello, &with(&bytes, bytes.len() - 5, &[7])), "a flag is neither 0 nor 1");
    assert_eq!(refused(hello, &with(&bytes, 4, &u32::MAX.to_le_bytes())), "a list is longer than its frame");
    for unknown in [0, 63, 74, 255] {
        assert_eq!(refused(unknown, &[]), "its kind is unknown");
    }
    for event in [Event::Data(b"x"), Event::ErrorData(b"x")] {
        let kind = payload(event).0;
        assert!(Event::decode(kind, &[1; MAX_DATA]).is_ok());
        for bytes in [&[][..], &[1; MAX_DATA + 1]] {
            assert_eq!(refused(kind, bytes), "its data is empty or too long");
        }
    }
}

#[test]
fn malformed_launch_messages_and_records_are_refused_for_the_right_reason() {
    let refused = |launch: Launch| Launch::decode(&launch.encode()).unwrap_err().0;
    for id in ["", ".", "..", ".hidden", "a/b", "/"] {
        let launch = Launch { id: id.into(), ..launch() };
        assert_eq!(refused(launch), "the machine's name is not a plain file name", "{id}");
    }
    let detached = |length| Some(Detached { memo: vec![0; length], ..Detached::default() });
    assert!(Launch::decode(&Launch { detached: detached(MAX_MEMO), ..launch() }.encode()).is_ok());
    assert_eq!(refused(Launch { detached: detached(MAX_MEMO + 1), ..launch() }), "its memo is too long");
    let accounts = Accounts { users: vec!["a".into(); MAX_ACCOUNTS + 1], ..Accounts::default() };
    assert_eq!(refused(Launch { accounts, ..launch() }), "there are too many accounts");
    let accounts = Accounts { users: vec!["a:b".into()], ..Accounts::default() };
    assert_eq!(refused(Launch { accounts, ..launch() }), "a name cannot be an account's");
    let bytes = Launch { owner: None, ..launch() }.encode();
    assert_eq!(Launch::decode(&with(&bytes, 4, &[3])).unwrap_err().0, "a choice is unknown");
    let nonce = bytes.len() - 1 - 8 - 7 - 20;
    let longer = [&bytes[..nonce], &17u32.to_le_bytes(), &[0], &bytes[nonce + 4..]].concat();
    assert_eq!(Launch::decode(&longer).unwrap_err().0, "a nonce is not 16 bytes");

    let refused = |bytes: &[u8]| Records::default().feed(bytes, &mut Vec::new()).unwrap_err().0;
    let mut bytes = Vec::new();
    records()[0].encode(&mut bytes);
    assert_eq!(refused(&with(&bytes, 0, &u32::MAX.to_le_bytes())), "a record is too long");
    assert_eq!(refused(&with(&bytes, 11, &[4])), "a choice is unknown");
    let shorter =
        [&(bytes.len() as u32 - 5).to_le_bytes(), &bytes[4..bytes.len() - 36], &31u32.to_le_bytes(), &[7; 31]];
    assert_eq!(refused(&shorter.concat()), "a digest is not 32 bytes");
    let mut decoded = Vec::new();
    Records::default().feed(&with(&bytes, 20, &u32::MAX.to_le_bytes()), &mut decoded).unwrap();
    assert_eq!(decoded[0].mode, 0o7777, "bits that are no permissions are dropped");

    let words = |count| {
        let argv = vec![Vec::new(); count];
        ProcessRecord::decode_all(&ProcessRecord::encode_all(&[ProcessRecord { argv, ..ProcessRecord::default() }]))
    };
    assert!(words(2 * MAX_WORDS).is_ok());
    assert_eq!(words(2 * MAX_WORDS + 1).unwrap_err().0, "a command has too many words");
    let one = ProcessRecord::encode_all(&[ProcessRecord::default()]);
    let refused = |bytes: &[u8]| ProcessRecord::decode_all(bytes).unwrap_err().0;
    assert_eq!(refused(&with(&one, one.len() - 1, &[3])), "a choice is unknown");
    assert_eq!(refused(&with(&one, 0, &u32::MAX.to_le_bytes())), "a list is longer than its frame");
}

#[test]
fn malformed_knocks_welcomes_and_frames_are_refused_for_the_right_reason() {
    let knock = Knock { version: 6, wish: Wish::End, nonce: [8; 16] }.encode();
    assert_eq!(Knock::decode(&with(&knock, 4, &[2])).err(), Some(WireError("a choice is unknown")));
    for length in [20, 22] {
        let mut knock = knock.clone();
        knock.resize(length, 0);
        assert_eq!(Knock::decode(&knock).err(), Some(WireError("a nonce is not 16 bytes")));
    }
    let welcome = |length: usize| Welcome::decode(&Welcome { version: 6, length: length as u32 }.encode());
    assert_eq!(welcome(MAX_MEMO), Ok(Welcome { version: 6, length: MAX_MEMO as u32 }));
    assert_eq!(welcome(MAX_MEMO + 1), Err(WireError("its memo is too long")));
    let header = |length: usize| FrameHeader { length: length as u32, channel: 1, kind: 2 };
    assert_eq!(FrameHeader::decode(&header(MAX_PAYLOAD).encode()), Ok(Some(header(MAX_PAYLOAD))));
    assert_eq!(FrameHeader::decode(&header(0).encode()[..8]), Ok(None));
    let too_long = FrameHeader::decode(&header(MAX_PAYLOAD + 1).encode());
    assert_eq!(too_long, Err(WireError("its payload is longer than any frame's may be")));
}
