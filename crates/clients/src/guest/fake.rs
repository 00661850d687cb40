//! Guests for tests: one that the test scripts frame by frame, and a simple one in memory.

use std::{collections::HashMap, time::Duration};

use sandbar_guest::protocol::{
    CWD, Event, ExitKind, FRAME_HEADER, FailKind, FrameHeader, Hello, INPUT_WINDOW, Kind, LimitStrengths, Open, Record,
    Request, VERSION,
};
use sandbar_machine::{Isolation, LimitReport, MachineHandle};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
};

use super::{GuestMachine, GuestSetup};

/// Fails the test if the future takes longer than a minute.
pub(super) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("took longer than a minute")
}

pub(super) fn setup() -> GuestSetup {
    GuestSetup {
        handle: MachineHandle { client: "fake".to_owned(), state: serde_json::Value::Null },
        isolation: Isolation::None,
        limits: LimitReport::NONE,
        env: [("FROM_SPEC".to_owned(), "yes".to_owned())].into(),
        ports: vec![8080],
        output_buffer: 64 * 1024,
        deadline: None,
    }
}

pub(super) fn hello() -> Event<'static> {
    Event::Hello(Hello {
        version: VERSION,
        layers: vec!["imagination".to_owned()],
        workspace: b"/workspace".to_vec(),
        home: b"/home/agent".to_vec(),
        users: false,
        held: LimitStrengths::default(),
    })
}

/// The guest's end of a connection, controlled by the test.
pub(super) struct Far(pub(super) UnixStream);

/// A request as the guest receives it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) channel: u32,
    pub(super) kind: u8,
    pub(super) payload: Vec<u8>,
}

impl Heard {
    pub(super) fn request(&self) -> Request<'_> {
        Request::decode(self.kind, &self.payload).expect("a request")
    }
}

impl Far {
    pub(super) async fn say(&mut self, channel: u32, event: Event<'_>) {
        let mut out = Vec::new();
        event.encode(channel, &mut out);
        self.raw(&out).await;
    }

    /// The host may have closed the connection already, which some tests check.
    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        let _host_gone = self.0.write_all(bytes).await;
    }

    pub(super) async fn hear(&mut self) -> Option<Heard> {
        let mut header = [0; FRAME_HEADER];
        self.0.read_exact(&mut header).await.ok()?;
        let header = FrameHeader::decode(&header).expect("header").expect("whole");
        let mut payload = vec![0; header.length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Heard { channel: header.channel, kind: header.kind, payload })
    }

    /// Waits for a request that opens a channel.
    pub(super) async fn opened(&mut self) -> (u32, u32, Open) {
        loop {
            let heard = self.hear().await.expect("a request");
            if let Request::Open(window, open) = heard.request() {
                return (heard.channel, window, open);
            }
        }
    }
}

/// A machine whose guest is scripted by the test.
pub(super) async fn scripted() -> (GuestMachine, Far) {
    let (near, far) = UnixStream::pair().expect("pair");
    let mut far = Far(far);
    far.say(0, hello()).await;
    let (reader, writer) = near.into_split();
    (soon(GuestMachine::connect(reader, writer, setup())).await.expect("connect"), far)
}

/// A machine whose guest knows a few programs and stores files in memory.
pub(super) async fn simple() -> GuestMachine {
    let (machine, far) = scripted().await;
    tokio::spawn(Simple { far, files: HashMap::new(), lanes: HashMap::new() }.run());
    machine
}

struct Simple {
    far: Far,
    files: HashMap<Vec<u8>, Vec<u8>>,
    lanes: HashMap<u32, Doing>,
}

enum Doing {
    Writing(Vec<u8>, Vec<u8>),
    /// Echoes its input as far as credit allows, and accepts no more than that.
    Echoing {
        waiting: Vec<u8>,
        credit: u64,
        ended: bool,
        process: bool,
    },
    /// Sends this many more bytes as credit allows.
    Sending {
        left: u64,
        credit: u64,
    },
    Sleeping,
}

impl Doing {
    fn echoing(window: u32, process: bool) -> Self {
        Self::Echoing { waiting: Vec::new(), credit: u64::from(window), ended: false, process }
    }
}

impl Simple {
    async fn run(mut self) {
        while let Some(heard) = self.far.hear().await {
            let channel = heard.channel;
            match heard.request() {
                Request::Open(window, open) => self.open(channel, window, open).await,
                Request::Data(bytes) => self.data(channel, bytes).await,
                Request::End => self.end(channel).await,
                Request::Credit(more) => {
                    if let Some(Doing::Sending { credit, .. } | Doing::Echoing { credit, .. }) =
                        self.lanes.get_mut(&channel)
                    {
                        *credit += u64::from(more);
                    }
                    self.echo(channel).await;
                    self.pour(channel).await;
                }
                Request::Signal(number) => self.exit(channel, 128 + i32::from(number), ExitKind::Signaled).await,
                Request::Close | Request::Leave => self.exit(channel, 137, ExitKind::Signaled).await,
                Request::Resize(rows, cols) => {
                    let text = format!("{rows}x{cols}\n");
                    self.far.say(channel, Event::Data(text.as_bytes())).await;
                }
            }
        }
    }

    async fn open(&mut self, channel: u32, window: u32, open: Open) {
        match open {
            Open::Spawn(spawn) => {
                let words: Vec<_> = spawn.argv.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
                if spawn.cwd != b"/workspace" {
                    return self.far.say(channel, Event::Fail(FailKind::Errno, 2, CWD.to_owned())).await;
                }
                self.far.say(channel, Event::Started).await;
                match words.first().map_or("", String::as_str) {
                    "cat" => drop(self.lanes.insert(channel, Doing::echoing(window, true))),
                    "sleep" => drop(self.lanes.insert(channel, Doing::Sleeping)),
                    "zeros" => {
                        let left = words.get(1).and_then(|count| count.parse().ok()).unwrap_or_default();
                        self.lanes.insert(channel, Doing::Sending { left, credit: u64::from(window) });
                        self.pour(channel).await;
                    }
                    "env" => {
                        let text = spawn.env.join(&b'\n');
                        self.far.say(channel, Event::Data(&text)).await;
                        self.exit(channel, 0, ExitKind::Exited).await;
                    }
                    _ => {
                        self.far.say(channel, Event::ErrorData(b"not found\n")).await;
                        self.exit(channel, 127, ExitKind::Exited).await;
                    }
                }
            }
            Open::Read(at) => match self.files.get(&at.path).cloned() {
                Some(bytes) => {
                    self.far.say(channel, Event::Started).await;
                    for piece in bytes.chunks(64 * 1024) {
                        self.far.say(channel, Event::Data(piece)).await;
                    }
                    self.far.say(channel, Event::Done).await;
                }
                None => self.far.say(channel, Event::Fail(FailKind::Errno, 2, String::new())).await,
            },
            Open::Write(at) => drop(self.lanes.insert(channel, Doing::Writing(at.path, Vec::new()))),
            Open::Stat(at) => match self.files.get(&at.path) {
                Some(bytes) => {
                    let mut record = Vec::new();
                    Record { path: b"x".to_vec(), kind: Kind::File, size: bytes.len() as u64, ..Record::default() }
                        .encode(&mut record);
                    self.far.say(channel, Event::Data(&record)).await;
                    self.far.say(channel, Event::Done).await;
                }
                None => self.far.say(channel, Event::Fail(FailKind::Errno, 20, String::new())).await,
            },
            Open::Connect(_) => {
                self.lanes.insert(channel, Doing::echoing(window, false));
                self.far.say(channel, Event::Started).await;
            }
            _ => self.far.say(channel, Event::Done).await,
        }
    }

    async fn data(&mut self, channel: u32, bytes: &[u8]) {
        match self.lanes.get_mut(&channel) {
            Some(Doing::Writing(_, content)) => content.extend_from_slice(bytes),
            Some(Doing::Echoing { waiting, .. }) => {
                waiting.extend_from_slice(bytes);
                assert!(waiting.len() <= INPUT_WINDOW as usize, "the host sent more than it may");
                return self.echo(channel).await;
            }
            _ => {}
        }
        let count = u32::try_from(bytes.len()).expect("small");
        assert!(count <= INPUT_WINDOW);
        self.far.say(channel, Event::Credit(count)).await;
    }

    async fn end(&mut self, channel: u32) {
        match self.lanes.remove(&channel) {
            Some(Doing::Writing(path, content)) => {
                self.files.insert(path, content);
                self.far.say(channel, Event::Done).await;
            }
            Some(Doing::Echoing { waiting, credit, process, .. }) => {
                self.lanes.insert(channel, Doing::Echoing { waiting, credit, process, ended: true });
                self.echo(channel).await;
            }
            Some(doing) => {
                self.lanes.insert(channel, doing);
                self.exit(channel, 0, ExitKind::Exited).await;
            }
            None => {}
        }
    }

    async fn echo(&mut self, channel: u32) {
        while let Some(Doing::Echoing { waiting, credit, ended, process }) = self.lanes.get_mut(&channel) {
            let count = waiting.len().min(usize::try_from(*credit).expect("small")).min(64 * 1024);
            if count == 0 {
                if *ended && waiting.is_empty() {
                    if *process {
                        return self.exit(channel, 0, ExitKind::Exited).await;
                    }
                    self.lanes.remove(&channel);
                    self.far.say(channel, Event::Exit(0, ExitKind::Exited)).await;
                    self.far.say(channel, Event::Done).await;
                }
                return;
            }
            *credit -= count as u64;
            let piece: Vec<u8> = waiting.drain(..count).collect();
            self.far.say(channel, Event::Data(&piece)).await;
            self.far.say(channel, Event::Credit(u32::try_from(count).expect("small"))).await;
        }
    }

    async fn pour(&mut self, channel: u32) {
        while let Some(Doing::Sending { left, credit }) = self.lanes.get_mut(&channel) {
            let count = (*left).min(*credit).min(64 * 1024);
            *left -= count;
            *credit -= count;
            let over = *left == 0;
            if count > 0 {
                let bytes = vec![0; usize::try_from(count).expect("small")];
                self.far.say(channel, Event::Data(&bytes)).await;
            }
            if over {
                return self.exit(channel, 0, ExitKind::Exited).await;
            }
            if count == 0 {
                return;
            }
        }
    }

    async fn exit(&mut self, channel: u32, code: i32, how: ExitKind) {
        if self.lanes.remove(&channel).is_some() || how == ExitKind::Exited {
            self.far.say(channel, Event::Exit(code, how)).await;
            self.far.say(channel, Event::Done).await;
        }
    }
}
