//! Promises about ports inside that the host can reach.

use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU32, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::rig::{Rig, pause, soon, until};
use crate::{Command, Endpoint, Lifetime, MachineSpec, Process, Result, SandboxClient};

/// Server that sends a greeting on each connection, echoes its input until the end, and closes it.
const ECHO: &str = r#"
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
def serve(peer):
    peer.sendall(b"hello ")
    while data := peer.recv(65536):
        peer.sendall(data)
    peer.sendall(b" bye")
    peer.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"#;

/// Server that sends a text, shuts that direction down, and prints how many bytes it then receives.
const LISTENER: &str = r#"
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
peer = server.accept()[0]
peer.sendall(b"your turn")
peer.shutdown(socket.SHUT_WR)
got = b""
while data := peer.recv(65536):
    got += data
print("got", len(got), flush=True)
"#;

/// A port that is free on the host, in case the machine shares the host's network. It lies below the ephemeral ports, so that
/// the kernel does not give it to another program.
async fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(8).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(number % 20_000).expect("a port");
        if TcpListener::bind(("127.0.0.1", port)).await.is_ok() {
            return port;
        }
    }
}

/// A machine with this port declared.
async fn rig(client: &dyn SandboxClient, port: u16) -> Rig {
    Rig::with(client, MachineSpec::default().ports([port])).await
}

async fn open(rig: &Rig, port: u16) -> Result<Endpoint> {
    soon("port", rig.machine.ports().expect("it has ports").open(port)).await
}

async fn serve(rig: &Rig, script: &str, port: u16) -> Process {
    let argv = ["python3", "-c", script, &port.to_string()].map(String::from);
    let mut process = rig.spawn(Command::new(argv)).await;
    until(&mut process, "ready").await;
    process
}

async fn address(rig: &Rig, port: u16) -> SocketAddr {
    let endpoint = open(rig, port).await.expect("a declared port");
    let address = endpoint.socket().expect("a port of this host");
    assert!(address.ip().is_loopback(), "{address} is open to others");
    address
}

async fn connect(address: SocketAddr) -> TcpStream {
    soon("connect", TcpStream::connect(address)).await.expect("it is reachable")
}

async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    soon("the end of the connection", stream.read_to_end(&mut all)).await.expect("a clean end");
    all
}

/// The host can connect to a port that a server inside listens on, many times at once and with much data.
pub async fn a_declared_port_is_reachable(client: &dyn SandboxClient) {
    let port = free().await;
    let rig = rig(client, port).await;
    let _server = serve(&rig, ECHO, port).await;
    let address = address(&rig, port).await;
    let sent = vec![b'z'; 3 << 20];
    let talks = (0..8).map(|_| async {
        let (mut reader, mut writer) = connect(address).await.into_split();
        let write = async {
            soon("send", writer.write_all(&sent)).await.expect("it is sent");
            writer.shutdown().await.expect("it is closed");
        };
        let mut got = Vec::new();
        let read = async { soon("receive", reader.read_to_end(&mut got)).await.expect("a clean end") };
        tokio::join!(write, read);
        assert!(got == [b"hello ", sent.as_slice(), b" bye"].concat(), "{} bytes came back", got.len());
    });
    futures::future::join_all(talks).await;
}

/// If one side of a connection shuts its direction down, the other direction stays open.
pub async fn either_side_of_a_connection_can_close_first(client: &dyn SandboxClient) {
    let port = free().await;
    let rig = rig(client, port).await;
    let server = serve(&rig, ECHO, port).await;
    let address = address(&rig, port).await;
    let mut stream = connect(address).await;
    stream.shutdown().await.expect("it is closed");
    assert_eq!(rest(&mut stream).await, b"hello  bye");
    drop(server);
    let mut listener = soon("the port of the old server to be free", async {
        loop {
            // The port of the old server may be in use for another moment.
            let argv = ["python3", "-c", LISTENER, &port.to_string()].map(String::from);
            let mut process = rig.spawn(Command::new(argv)).await;
            match process.output.recv().await {
                Some(Ok(crate::Output::Stdout(_))) => return process,
                _ => pause(200).await,
            }
        }
    })
    .await;
    let mut stream = connect(address).await;
    assert_eq!(rest(&mut stream).await, b"your turn");
    soon("send", stream.write_all(&[1; 100_000])).await.expect("this direction is still open");
    stream.shutdown().await.expect("it is closed");
    until(&mut listener, "got 100000").await;
}

/// Only declared ports can be opened.
pub async fn an_undeclared_port_is_refused(client: &dyn SandboxClient) {
    let port = free().await;
    let rig = rig(client, port).await;
    let other = if port == u16::MAX { port - 1 } else { port + 1 };
    let refused = open(&rig, other).await.expect_err("it was not declared");
    assert!(matches!(refused.code(), "invalid" | "denied" | "unsupported"), "{refused}");
}

/// Whether no server answers at this address: the connection is refused, or closed without data.
async fn is_dead(address: SocketAddr) -> bool {
    let Ok(mut stream) = soon("connect", TcpStream::connect(address)).await else { return true };
    let mut all = Vec::new();
    // A reset is an answer too.
    let _reset = soon("the connection to close", stream.read_to_end(&mut all)).await;
    all.is_empty()
}

/// A connection to a port without a server is closed and does not hang; a server that starts later is reached.
pub async fn a_port_nobody_listens_on_closes(client: &dyn SandboxClient) {
    let port = free().await;
    let rig = rig(client, port).await;
    let address = address(&rig, port).await;
    assert!(is_dead(address).await);
    let _server = serve(&rig, ECHO, port).await;
    let mut stream = connect(address).await;
    stream.shutdown().await.expect("it is closed");
    assert_eq!(rest(&mut stream).await, b"hello  bye");
}

/// After a stop, nothing of the machine can be reached.
pub async fn a_port_dies_with_its_machine(client: &dyn SandboxClient) {
    let port = free().await;
    let rig = rig(client, port).await;
    let _server = serve(&rig, ECHO, port).await;
    let address = address(&rig, port).await;
    let mut open = connect(address).await;
    let mut hello = [0; 6];
    soon("hello", open.read_exact(&mut hello)).await.expect("it is reachable");
    soon("stop", rig.machine.stop()).await.expect("it stops");
    let mut more = Vec::new();
    let _reset = soon("the open connection to end", open.read_to_end(&mut more)).await;
    assert!(is_dead(address).await);
}

/// Every holder of a detached machine reaches the servers that other holders started.
pub async fn a_port_is_reached_by_every_holder(client: &dyn SandboxClient) {
    let port = free().await;
    let spec = MachineSpec::default().ports([port]).lifetime(Lifetime::Detached);
    let first = Rig::with(client, spec).await;
    let found = soon("attach", client.attach(&first.machine.handle())).await.expect("no error").expect("it lives");
    let second = Rig { machine: found };
    let _server = serve(&first, ECHO, port).await;
    for rig in [&first, &second] {
        let mut stream = connect(address(rig, port).await).await;
        stream.shutdown().await.expect("it is closed");
        assert_eq!(rest(&mut stream).await, b"hello  bye");
    }
}
