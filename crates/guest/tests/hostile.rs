//! A host that sends malformed bytes: the guest ends the connection, never panics, hangs or leaves anything behind.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    fs,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use sandbar_guest::protocol::{At, Launch, Level, Open, Request, Spawn, VERSION};

struct Machine {
    supervisor: Child,
    leash: UnixStream,
    control: UnixStream,
    state: PathBuf,
}

impl Machine {
    fn launch(name: &str) -> Self {
        let state = std::env::temp_dir().join(format!("sandbar-hostile-{}-{name}", std::process::id()));
        fs::create_dir_all(&state).expect("state dir");
        let (leash, their_leash) = UnixStream::pair().expect("socket pair");
        let (control, their_control) = UnixStream::pair().expect("socket pair");
        let supervisor = Command::new(env!("CARGO_BIN_EXE_sandbar-guest"))
            .arg("supervise")
            .env_clear()
            .stdin(Stdio::from(OwnedFd::from(their_leash)))
            .stdout(Stdio::from(OwnedFd::from(their_control)))
            .stderr(Stdio::null())
            .spawn()
            .expect("start the supervisor");
        let mut machine = Self { supervisor, leash, control, state };
        for stream in [&machine.leash, &machine.control] {
            stream.set_read_timeout(Some(Duration::from_secs(60))).expect("timeout");
            stream.set_write_timeout(Some(Duration::from_secs(60))).expect("timeout");
        }
        let launch = Launch {
            version: VERSION,
            level: Level::Full,
            state: machine.state.as_os_str().as_encoded_bytes().to_vec(),
            id: b"machine".to_vec(),
            tmp_bytes: 1 << 20,
            pids: 64,
            open_files: 256,
            ..Launch::default()
        };
        let message = launch.encode();
        machine.leash.write_all(&(message.len() as u32).to_le_bytes()).expect("launch");
        machine.leash.write_all(&message).expect("launch");
        let mut header = [0; 9];
        machine.control.read_exact(&mut header).expect("the guest says hello");
        machine
    }

    /// Closes the connection and checks that the machine ended cleanly.
    fn finish(mut self) {
        drop(self.control);
        let mut last_words = Vec::new();
        self.leash.read_to_end(&mut last_words).expect("the supervisor ends in time");
        assert_eq!(String::from_utf8_lossy(&last_words), "");
        assert!(self.supervisor.wait().expect("wait").success());
        assert_eq!(fs::read_dir(&self.state).expect("state dir").count(), 0, "something was left behind");
        fs::remove_dir_all(&self.state).expect("clean up");
    }
}

/// Pseudorandom numbers, the same in every run.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn some_requests(random: &mut Seeded) -> Vec<u8> {
    let at = || At { path: b"/workspace/file".to_vec(), ..At::default() };
    let spawn = Spawn {
        argv: vec![b"cat".to_vec()],
        env: vec![b"PATH=/usr/bin:/bin".to_vec()],
        cwd: b"/workspace".to_vec(),
        stdin: true,
        deadline_ms: 200,
        ..Spawn::default()
    };
    let opens = [
        Open::Spawn(spawn),
        Open::Write(at()),
        Open::Read(at()),
        Open::Stat(at()),
        Open::List(At { path: b"/usr/bin".to_vec(), ..At::default() }),
        Open::Scan(At { path: b"/etc".to_vec(), ..At::default() }, Vec::new(), true),
        Open::Unpack(at()),
        Open::Pack(At { path: b"/etc".to_vec(), ..At::default() }, Vec::new()),
        Open::Connect(80),
        Open::Remove(at()),
    ];
    let mut stream = Vec::new();
    for channel in 1..12 {
        let open = opens[random.below(opens.len())].clone();
        Request::Open(1 << random.below(20), open).encode(channel, &mut stream);
        let most = if random.below(4) == 0 { 250_000 } else { 5000 };
        let noise = vec![b'x'; 1 + random.below(most)];
        match random.below(6) {
            0 => Request::Data(&noise).encode(channel, &mut stream),
            1 => Request::End.encode(channel, &mut stream),
            2 => Request::Credit(random.next() as u32).encode(channel, &mut stream),
            3 => Request::Signal(random.next() as u8).encode(channel, &mut stream),
            4 => Request::Resize(random.next() as u16, random.next() as u16).encode(channel, &mut stream),
            _ => Request::Close.encode(channel, &mut stream),
        }
    }
    stream
}

#[test]
fn mutated_requests_never_break_the_guest() {
    for seed in 1..40 {
        let mut random = Seeded(u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let mut machine = Machine::launch(&format!("mutated-{seed}"));
        let mut stream = some_requests(&mut random);
        for _ in 0..random.below(8) {
            let place = random.below(stream.len());
            match random.below(3) {
                0 => stream[place] = random.next() as u8,
                1 => stream.truncate(place.max(1)),
                _ => stream.insert(place, random.next() as u8),
            }
        }
        // The guest may close the connection at any time.
        let _hung_up = machine.control.write_all(&stream);
        let _half = machine.control.shutdown(std::net::Shutdown::Write);
        let mut answers = Vec::new();
        let _until_hung_up = machine.control.read_to_end(&mut answers);
        machine.finish();
    }
}

#[test]
fn a_frame_longer_than_any_ends_the_connection_at_once() {
    let mut machine = Machine::launch("long");
    machine.control.write_all(&[0xFF; 64]).expect("write");
    let mut rest = Vec::new();
    let _reset_or_end = machine.control.read_to_end(&mut rest);
    machine.finish();
}

#[test]
fn input_past_its_credit_ends_the_connection() {
    let mut machine = Machine::launch("greedy");
    let spawn = Spawn {
        argv: vec![b"sleep".to_vec(), b"60".to_vec()],
        env: vec![b"PATH=/usr/bin:/bin".to_vec()],
        cwd: b"/workspace".to_vec(),
        stdin: true,
        ..Spawn::default()
    };
    let mut stream = Vec::new();
    Request::Open(1 << 16, Open::Spawn(spawn)).encode(1, &mut stream);
    for _ in 0..8 {
        Request::Data(&vec![b'x'; 100_000]).encode(1, &mut stream);
    }
    let _hung_up = machine.control.write_all(&stream);
    let mut rest = Vec::new();
    let _reset_or_end = machine.control.read_to_end(&mut rest);
    machine.finish();
}
