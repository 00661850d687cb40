//! Group J: output without end, and a host that stays responsive meanwhile.

use std::time::{Duration, Instant};

use sandbar_machine::{Command, Control, Limits, Machine, Output, Signal, TerminalSize};
use sandbar_redteam::LIMITS;
use tokio::time::{sleep, timeout};

use crate::escape::{
    lifetime::rss,
    rig::{Rig, SOON, inside, run as run_inside, until},
    tally::Tally,
};

/// What a reader takes of an endless stream before it has had enough.
const ENOUGH: usize = 512 << 20;
/// Growth of the harness's memory that is still called bounded, in KiB.
const BOUNDED: u64 = 64 << 10;

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
    unread(machine.as_ref(), &mut tally).await;
    read_for_long(machine.as_ref(), &mut tally).await;
    terminal(machine.as_ref(), &mut tally).await;
    machine.stop().await.expect("stop");
    bomb(rig, &mut tally).await;
    ports(rig, &mut tally).await;
    tally.finish("floods");
}

/// Unread output blocks its command; the harness does not grow, and the machine answers other requests.
async fn unread(machine: &dyn Machine, tally: &mut Tally) {
    let before = rss();
    let flood = machine.spawn(inside("flood", [])).await.expect("the flood starts");
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let other = run_inside(machine, Command::new(["true"])).await;
    let grown = rss().saturating_sub(before);
    let held = other.exit.is_some_and(|exit| exit.success()) && grown < BOUNDED;
    tally.expect("J75.unread-output", held, format!("{grown} KiB more; another command took {:?}", start.elapsed()));
    drop(flood);
}

/// Half a gigabyte of one line is read and thrown away, then the rest is dropped.
async fn read_for_long(machine: &dyn Machine, tally: &mut Tally) {
    let before = rss();
    let mut flood = machine.spawn(inside("flood", [])).await.expect("the flood starts");
    let (start, mut bytes, mut most) = (Instant::now(), 0, 0);
    while bytes < ENOUGH {
        match timeout(SOON, flood.output.recv()).await {
            Ok(Some(Ok(Output::Stdout(piece)))) => bytes += piece.len(),
            other => panic!("the flood dried up: {other:?}"),
        }
        most = most.max(rss().saturating_sub(before) * u64::from(bytes % (16 << 20) < 65536));
    }
    drop(flood);
    tally.expect(
        "J75.endless-line",
        most < BOUNDED,
        format!("{bytes} bytes in {:?}, at most {most} KiB more", start.elapsed()),
    );
}

/// The same on a terminal, where the signal must not wait behind the output.
async fn terminal(machine: &dyn Machine, tally: &mut Tally) {
    let before = rss();
    let mut flood = machine.spawn(inside("flood", []).tty(TerminalSize::default())).await.expect("the flood starts");
    sleep(Duration::from_millis(500)).await;
    let start = Instant::now();
    flood.control.send(Control::Signal(Signal::Kill)).await.expect("a signal");
    let ended = timeout(SOON, async {
        while let Some(Ok(output)) = flood.output.recv().await {
            if let Output::Exit(exit) = output {
                return Some(exit.code);
            }
        }
        None
    })
    .await;
    let grown = rss().saturating_sub(before);
    let held = ended == Ok(Some(137)) && grown < BOUNDED;
    tally.expect("J75.terminal-flood", held, format!("{ended:?} after {:?}, {grown} KiB more", start.elapsed()));
}

/// A fork bomb in one machine does not keep the host, or another machine, from working.
async fn bomb(rig: &Rig, tally: &mut Tally) {
    let workspace = rig.dir("workspace");
    let limits = Limits::default().pids(LIMITS.0 as u64);
    let bombed = rig.create(rig.spec(&workspace).limits(limits)).await;
    let bomb = "f() { f | f & }; f; sleep 60";
    let storm = bombed.spawn(Command::new(["sh", "-c", bomb])).await.expect("the bomb starts");
    sleep(Duration::from_millis(500)).await;
    let start = Instant::now();
    let other = rig.create(rig.spec(&workspace)).await;
    let ran = run_inside(other.as_ref(), Command::new(["true"])).await;
    let took = start.elapsed();
    other.stop().await.expect("stop");
    drop(storm);
    let stopped = timeout(SOON, bombed.stop()).await;
    let held = ran.exit.is_some_and(|exit| exit.success()) && took < SOON && matches!(stopped, Ok(Ok(())));
    tally.expect("J71.host-stays-responsive", held, format!("another machine came and went in {took:?}; {stopped:?}"));
}

/// Numbers 57 and 58: ports of another machine, and ports that were not declared.
async fn ports(rig: &Rig, tally: &mut Tally) {
    let workspace = rig.dir("workspace");
    let server = "import socket; s=socket.socket(); s.bind(('127.0.0.1',8123)); s.listen()\n\
                  while True: c,_=s.accept(); c.send(b'hello'); c.close()";
    let one = rig.create(rig.spec(&workspace).ports([8123])).await;
    let other = rig.create(rig.spec(&workspace)).await;
    let serving = one.spawn(Command::new(["python3", "-c", server])).await.expect("a server");
    let address = one
        .ports()
        .expect("it has ports")
        .open(8123)
        .await
        .expect("a declared port")
        .socket()
        .expect("a port of this host");
    // Until the server listens, a connection is closed without data.
    let hello = until(async || {
        let said = tokio::task::spawn_blocking(move || {
            let mut text = String::new();
            let stream = std::net::TcpStream::connect(address);
            stream.and_then(|mut stream| std::io::Read::read_to_string(&mut stream, &mut text)).map(|_| text)
        });
        said.await.expect("no panic").is_ok_and(|text| text == "hello")
    })
    .await;
    for number in ["G57", "G58"] {
        tally.control(number, hello, "the declared port answers");
    }
    let words = ["port=8123".to_owned()];
    let ran = run_inside(other.as_ref(), inside("G50.host-loopback", words)).await;
    tally.expect("G57.port-of-another-machine", ran.stdout.contains("refused 111"), ran.stdout.trim());
    let undeclared = one.ports().expect("it has ports").open(8124).await;
    tally.expect("G58.undeclared-port", undeclared.is_err(), format!("{undeclared:?}"));
    drop(serving);
    let address = one
        .ports()
        .expect("it has ports")
        .open(8123)
        .await
        .expect("a declared port")
        .socket()
        .expect("a port of this host");
    one.stop().await.expect("stop");
    let dead = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(2));
    tally.expect("G58.port-dies-with-the-machine", dead.is_err(), format!("{dead:?}"));
    other.stop().await.expect("stop");
}
