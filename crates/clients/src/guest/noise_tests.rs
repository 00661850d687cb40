//! Every message survives encoding and decoding, and no bytes make a decoder panic.

use sandbar_guest::protocol::{
    AccountGroup, Accounts, At, BootFailure, Detached, Event, ExitKind, FRAME_HEADER, FailKind, FrameHeader, HostPath,
    Kind, Knock, Launch, LaunchMount, Level, Open, Record, Records, Request, Spawn, VERSION, Welcome,
};

use super::fake::hello;

pub(super) fn frame(channel: u32, event: &Event<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    event.encode(channel, &mut out);
    out
}

/// The kind byte of an event.
fn kind(event: &Event<'_>) -> u8 {
    *frame(1, event).get(FRAME_HEADER - 1).expect("kind")
}

/// Deterministic pseudo-random bytes.
pub(super) struct Noise(pub(super) u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).expect("small")
    }

    pub(super) fn bytes(&mut self, limit: usize) -> Vec<u8> {
        let count = self.below(limit + 1);
        (0..count).map(|_| self.byte()).collect()
    }

    fn byte(&mut self) -> u8 {
        (self.next() & 0xff) as u8
    }

    /// Flips, cuts, repeats or inserts bytes.
    pub(super) fn spoil(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len());
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at.min(bytes.len()), self.byte()),
                2 => bytes.extend_from_within(at.min(bytes.len())..),
                _ => {
                    let value = self.byte();
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = value;
                    }
                }
            }
        }
    }
}

fn some_record(noise: &mut Noise) -> Record {
    let plain = |noise: &mut Noise| noise.bytes(40).into_iter().map(|byte| byte | 1).collect::<Vec<_>>();
    Record {
        path: plain(noise),
        kind: [Kind::File, Kind::Dir, Kind::Symlink, Kind::Other].get(noise.below(4)).copied().unwrap_or_default(),
        size: noise.next(),
        mode: 0o644,
        modified_ns: 7,
        uid: 1,
        gid: 2,
        link: (noise.below(2) == 0).then(|| plain(noise)),
        sha256: (noise.below(2) == 0).then_some([3; 32]),
    }
}

fn some_requests(noise: &mut Noise) -> Vec<Request<'static>> {
    let text = |noise: &mut Noise| noise.bytes(20).into_iter().map(|byte| byte | 1).collect::<Vec<_>>();
    let at = At {
        path: b"/a".to_vec(),
        user: Some(text(noise)),
        group: Some(text(noise)),
        beneath: Some(b"/".to_vec()),
        mode: Some(0o600),
        expected: None,
    };
    let spawn = Spawn {
        argv: vec![text(noise), text(noise)],
        env: vec![text(noise)],
        cwd: text(noise),
        tty: Some((24, 80)),
        deadline_ms: noise.next(),
        rlimits: vec![(1, 2)],
        keep: true,
        ..Spawn::default()
    };
    vec![
        Request::Open(5, Open::Spawn(spawn)),
        Request::Open(5, Open::Read(at.clone())),
        Request::Open(5, Open::Rename(at.clone(), At { path: b"/b".to_vec(), ..At::default() })),
        Request::Open(5, Open::Scan(at.clone(), vec![text(noise)], true)),
        Request::Open(5, Open::Pack(at, vec![])),
        Request::Open(0, Open::Connect(80)),
        Request::Open(0, Open::Stop),
        Request::Data(b"bytes"),
        Request::End,
        Request::Credit(9),
        Request::Signal(15),
        Request::Resize(1, 2),
        Request::Close,
        Request::Leave,
        Request::Open(1, Open::Processes),
        Request::Open(1, Open::Adopt(noise.next())),
        Request::Open(1, Open::Signal(noise.next(), 15)),
    ]
}

fn some_events() -> Vec<Event<'static>> {
    vec![
        hello(),
        Event::Started,
        Event::Kept(7, true),
        Event::Omitted(u64::MAX),
        Event::Data(b"out"),
        Event::ErrorData(b"err"),
        Event::Credit(1),
        Event::Exit(-1, ExitKind::Disk),
        Event::Done,
        Event::Fail(FailKind::Archive, 2, "no".to_owned()),
    ]
}

fn some_launch(noise: &mut Noise) -> Launch {
    Launch {
        version: VERSION,
        level: Level::Landlock,
        state: b"/tmp/x".to_vec(),
        id: b"abc".to_vec(),
        sweep: true,
        workspace: Some((HostPath { path: b"/w".to_vec(), device: noise.next(), inode: noise.next() }, true)),
        mounts: vec![LaunchMount {
            host: HostPath { path: b"/a".to_vec(), device: 1, inode: 2 },
            inside: b"/b".to_vec(),
            writable: false,
        }],
        rootfs: Some(HostPath { path: b"/r".to_vec(), device: 3, inode: u64::MAX }),
        host_network: false,
        tmp_bytes: noise.next(),
        pids: 1,
        open_files: 2,
        memory: Some(noise.next()),
        cpus: Some(1500),
        disk: None,
        accounts: Accounts {
            users: vec!["ada".to_owned()],
            groups: vec![AccountGroup { name: "staff".to_owned(), members: vec!["ada".to_owned(), "bob".to_owned()] }],
        },
        detached: Some(Detached { nonce: [5; 16], memo: noise.bytes(40), lease_ms: 7 }),
        owner: Some((7, u32::MAX)),
    }
}

#[test]
fn decoding_returns_what_was_encoded() {
    let mut noise = Noise(1);
    for _ in 0..200 {
        for request in some_requests(&mut noise) {
            let mut out = Vec::new();
            request.encode(7, &mut out);
            let header = FrameHeader::decode(&out).expect("header").expect("whole");
            let payload = out.get(FRAME_HEADER..).expect("payload");
            assert_eq!((header.channel, header.length as usize), (7, payload.len()));
            assert_eq!(Request::decode(header.kind, payload).expect("request"), request);
        }
        for event in some_events() {
            let out = frame(7, &event);
            assert_eq!(Event::decode(kind(&event), out.get(FRAME_HEADER..).expect("payload")).expect("event"), event);
        }
        let launch = some_launch(&mut noise);
        assert_eq!(Launch::decode(&launch.encode()).expect("launch"), launch);
        let failure = BootFailure { stage: "s".into(), errno: 1, missing: "m".into(), fix: "f".into() };
        assert_eq!(BootFailure::decode(&failure.encode()).expect("failure"), failure);
        let wanted: Vec<_> = (0..20).map(|_| some_record(&mut noise)).collect();
        let mut out = Vec::new();
        wanted.iter().for_each(|record| record.encode(&mut out));
        let (mut pieces, mut got) = (Records::default(), Vec::new());
        for piece in out.chunks(1 + noise.below(100)) {
            pieces.feed(piece, &mut got).expect("records");
        }
        assert!(pieces.is_complete());
        assert_eq!(got, wanted);
    }
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut noise = Noise(0xdead_beef);
    for round in 0..200_000 {
        let mut bytes = match round % 5 {
            0 => noise.bytes(64),
            1 => {
                let all = some_requests(&mut noise);
                let mut out = Vec::new();
                if let Some(one) = all.get(noise.below(all.len())) {
                    one.encode(1, &mut out);
                }
                out
            }
            2 => some_events().get(noise.below(8)).map(|event| frame(1, event)).unwrap_or_default(),
            3 => some_launch(&mut noise).encode(),
            _ => {
                let mut out = Vec::new();
                some_record(&mut noise).encode(&mut out);
                out
            }
        };
        noise.spoil(&mut bytes);
        // The decoders must return; whether they return an error does not matter here.
        let _header = FrameHeader::decode(&bytes);
        let (head, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER));
        let kind = head.last().copied().unwrap_or_default();
        let _request = Request::decode(kind, rest);
        let _event = Event::decode(kind, rest);
        let _launch = Launch::decode(&bytes);
        let _failure = BootFailure::decode(&bytes);
        let _knock = Knock::decode(&bytes);
        let _welcome = Welcome::decode(&bytes);
        let _records = Records::default().feed(&bytes, &mut Vec::new());
    }
}
