//! Corpora of the guest protocol: one message of each kind, and some of them damaged.

use std::{fs, path::Path};

use sandbar_guest::protocol::{
    AccountGroup, Accounts, At, BootFailure, Detached, Event, ExitKind, Expected, FRAME_HEADER, FailKind, Hello,
    HostPath, Kind, Knock, Launch, LaunchMount, Level, LimitStrengths, Open, ProcessRecord, ProcessState, Record,
    Request, Spawn, Strength, VERSION, Welcome, Wish,
};

/// A corpus: files by their names.
type Seeds = Vec<(String, Vec<u8>)>;

/// Writes the corpora below this folder. Files that were added to them by hand stay, if their names are others.
pub(crate) fn write(corpus: &Path) {
    let frames = requests().into_iter().chain(events()).map(|(name, frame)| (format!("one-{name}"), frame));
    let whole: Vec<u8> = requests().into_iter().chain(events()).flat_map(|(_, frame)| frame).collect();
    let connection = [("connection".to_owned(), whole)];
    let some_frames = frames.step_by(4).chain(connection).collect();
    let corpora = [
        ("boot_failure", damaged(boot_failures())),
        ("door", damaged(doors())),
        ("event", damaged(without_headers(events()))),
        ("frames", damaged(some_frames)),
        ("launch", damaged(launches())),
        ("processes", damaged(processes())),
        ("records", damaged(records())),
        ("request", damaged(without_headers(requests()))),
    ];
    for (target, seeds) in corpora {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in seeds {
            fs::write(folder.join(name), bytes).expect("a file");
        }
    }
}

/// The same with some that are cut off, too long, or of another kind.
fn damaged(mut seeds: Seeds) -> Seeds {
    let (_, longest) = seeds.iter().max_by_key(|(_, bytes)| bytes.len()).expect("seeds").clone();
    let with = |at: usize, byte: u8| {
        let mut bytes = longest.clone();
        bytes[at] = byte;
        bytes
    };
    let damages = [
        ("damaged-cut-in-half", longest[..longest.len() / 2].to_vec()),
        ("damaged-cut-at-the-end", longest[..longest.len() - 1].to_vec()),
        ("damaged-too-long", [&longest[..], b"\0"].concat()),
        ("damaged-beginning", with(0, 0xff)),
        ("damaged-length", with(3, 0xff)),
        ("damaged-nothing", Vec::new()),
    ];
    seeds.extend(damages.map(|(name, bytes)| (name.to_owned(), bytes)));
    seeds
}

/// Kind and payload, as the targets `event` and `request` read them.
fn without_headers(frames: Seeds) -> Seeds {
    frames.into_iter().map(|(name, frame)| (name, frame[FRAME_HEADER - 1..].to_vec())).collect()
}

fn named<const N: usize>(seeds: [(&str, Vec<u8>); N]) -> Seeds {
    seeds.map(|(name, bytes)| (name.to_owned(), bytes)).into()
}

fn at(path: &str) -> At {
    At { path: path.into(), ..At::default() }
}

fn requests() -> Seeds {
    let limited = At {
        user: Some(b"agent".into()),
        group: Some(b"staff".into()),
        beneath: Some(b"/workspace".into()),
        mode: Some(0o640),
        expected: Some(Expected::File(7, 0o100_644, 1)),
        ..at("/workspace/a b")
    };
    let spawn = Spawn {
        argv: vec![b"sh".into(), b"-c".into(), b"echo \xff".into()],
        env: vec![b"A=1".into(), b"B=".into()],
        cwd: b"/workspace".into(),
        user: Some(b"agent".into()),
        tty: Some((24, 80)),
        stdin: true,
        deadline_ms: 1000,
        rlimits: vec![(7, 1024)],
        keep: true,
        joined: true,
    };
    let opens = [
        ("spawn", Open::Spawn(spawn)),
        ("spawn-nothing", Open::Spawn(Spawn::default())),
        ("read", Open::Read(at("/etc/hosts"))),
        ("write", Open::Write(limited.clone())),
        ("write-new", Open::Write(At { expected: Some(Expected::Nothing), ..limited.clone() })),
        ("read-relative", Open::Read(at("etc/hosts"))),
        ("rename", Open::Rename(limited.clone(), at("/workspace/c"))),
        ("scan", Open::Scan(limited.clone(), vec![b".git".into(), b"target".into()], true)),
        ("pack", Open::Pack(limited, vec![])),
        ("connect", Open::Connect(u16::MAX)),
        ("processes", Open::Processes),
        ("signal-to", Open::Signal(u64::MAX, 9)),
        ("stop", Open::Stop),
    ];
    let opens = opens.map(|(name, open)| (name, Request::Open(u32::MAX, open)));
    let others = [
        ("data", Request::Data(b"bytes")),
        ("no-data", Request::Data(b"")),
        ("end", Request::End),
        ("credit", Request::Credit(1)),
        ("resize", Request::Resize(0, u16::MAX)),
        ("close", Request::Close),
        ("leave", Request::Leave),
    ];
    let encoded = |(name, request): (&str, Request<'_>)| {
        let mut frame = Vec::new();
        request.encode(3, &mut frame);
        (name.to_owned(), frame)
    };
    opens.into_iter().chain(others).map(encoded).collect()
}

fn events() -> Seeds {
    let hello = Hello {
        version: VERSION,
        layers: vec!["namespaces".to_owned(), "seccomp".to_owned()],
        workspace: b"/workspace".into(),
        home: b"/home/agent".into(),
        users: true,
        held: LimitStrengths { memory: Strength::Hard, cpu: Strength::Soft, ..LimitStrengths::default() },
    };
    let events = [
        ("hello", Event::Hello(hello)),
        ("started", Event::Started),
        ("kept", Event::Kept(u64::MAX, true)),
        ("omitted", Event::Omitted(0)),
        ("data", Event::Data(b"out")),
        ("error-data", Event::ErrorData(b"\0\xff")),
        ("no-data", Event::Data(b"")),
        ("credit", Event::Credit(u32::MAX)),
        ("exit", Event::Exit(i32::MIN, ExitKind::Exited)),
        ("exit-memory", Event::Exit(137, ExitKind::Memory)),
        ("done", Event::Done),
        ("fail", Event::Fail(FailKind::Errno, 2, "no such file".to_owned())),
        ("fail-held", Event::Fail(FailKind::Held, 0, String::new())),
    ];
    let encoded = |(name, event): (&str, Event<'_>)| {
        let mut frame = Vec::new();
        event.encode(3, &mut frame);
        (name.to_owned(), frame)
    };
    events.map(encoded).into()
}

fn launches() -> Seeds {
    let host = HostPath { path: b"/srv/project".into(), device: 1, inode: u64::MAX };
    let small = Launch { version: VERSION, state: b"/run/s".into(), id: b"m1".into(), ..Launch::default() };
    let large = Launch {
        level: Level::Landlock,
        sweep: true,
        workspace: Some((host.clone(), true)),
        mounts: vec![LaunchMount { host: host.clone(), inside: b"/data".into(), writable: false }],
        rootfs: Some(host),
        host_network: true,
        memory: Some(1 << 30),
        cpus: Some(1500),
        disk: Some(0),
        accounts: Accounts {
            users: vec!["agent".to_owned(), "other".to_owned()],
            groups: vec![AccountGroup { name: "staff".to_owned(), members: vec!["agent".to_owned()] }],
        },
        detached: Some(Detached { nonce: [7; 16], memo: b"memo".into(), lease_ms: 1 }),
        owner: Some((1000, 1000)),
        ..small.clone()
    };
    let with_id = |id: &[u8]| Launch { id: id.into(), ..small.clone() }.encode();
    named([
        ("small", small.encode()),
        ("large", large.encode()),
        ("id-above", with_id(b"..")),
        ("id-path", with_id(b"a/b")),
        ("id-empty", with_id(b"")),
    ])
}

fn doors() -> Seeds {
    named([
        ("attach", Knock::new(Wish::Attach, [1; 16]).encode()),
        ("end", Knock::new(Wish::End, [0xff; 16]).encode()),
        ("welcome", Welcome { version: VERSION, length: 4 }.encode()),
        ("welcome-endless", Welcome { version: VERSION, length: u32::MAX }.encode()),
    ])
}

fn boot_failures() -> Seeds {
    let failure = |stage: &str, errno| BootFailure {
        stage: stage.to_owned(),
        errno,
        missing: "user namespaces".to_owned(),
        fix: "allow them".to_owned(),
    };
    named([
        ("full", failure("make namespaces", 1).encode()),
        ("empty", BootFailure::default().encode()),
        ("not-text", failure("\u{fffd}", i32::MIN).encode()),
    ])
}

fn processes() -> Seeds {
    let running = ProcessRecord { id: 1, argv: vec![b"sleep".into(), b"1".into()], ..ProcessRecord::default() };
    let exited = ProcessRecord {
        id: u64::MAX,
        state: ProcessState::Ended(-1, ExitKind::Signaled),
        user: Some(b"agent".into()),
        tty: true,
        kept: true,
        ..running.clone()
    };
    let alone = ProcessRecord { state: ProcessState::Alone, argv: vec![], ..running.clone() };
    named([
        ("none", ProcessRecord::encode_all(&[])),
        ("one", ProcessRecord::encode_all(std::slice::from_ref(&running))),
        ("three", ProcessRecord::encode_all(&[running, exited, alone])),
    ])
}

/// The first byte is the size of the pieces.
fn records() -> Seeds {
    let file = Record { path: b"a/b".into(), mode: 0o644, size: 5, sha256: Some([9; 32]), ..Record::default() };
    let link = Record { path: b"l".into(), kind: Kind::Symlink, link: Some(b"a/b".into()), ..Record::default() };
    let other = Record { path: b"\xff".into(), kind: Kind::Other, modified_ns: i64::MIN, ..Record::default() };
    let stream = |size: u8, records: &[&Record]| {
        let mut bytes = vec![size];
        records.iter().for_each(|record| record.encode(&mut bytes));
        bytes
    };
    named([
        ("none", stream(0, &[])),
        ("one", stream(255, &[&file])),
        ("three", stream(0, &[&file, &link, &other])),
        ("three-in-pieces", stream(7, &[&other, &file, &link])),
    ])
}
