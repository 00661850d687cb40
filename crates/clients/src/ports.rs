//! Ports of a machine on the host's loopback interface: one listener per declared port, one channel per connection.

use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use sandbar_guest::protocol::{Open, Request};
use sandbar_machine::{Endpoint, MachineError, Ports, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
    task::{JoinHandle, JoinSet},
};

use crate::guest::{Channel, Incoming, Link, Shape};

/// Maximum number of connections to one port; further ones wait in the listener's queue.
const CONNECTIONS: usize = 256;

/// Bytes from the machine that may wait for one slow client.
const WINDOW: u32 = 256 * 1024;

/// Bytes read from a client at once.
const CHUNK: usize = 64 * 1024;

const ACTION: &str = "forward a connection";

/// The declared ports of a machine and their open mappings. Dropping this value ends every mapping and its connections.
pub(crate) struct Mappings {
    link: Arc<Link>,
    declared: Vec<u16>,
    open: Mutex<HashMap<u16, Mapping>>,
}

struct Mapping {
    address: SocketAddr,
    listener: JoinHandle<()>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

#[async_trait]
impl Ports for Mappings {
    async fn open(&self, port: u16) -> Result<Endpoint> {
        if port == 0 || !self.declared.contains(&port) {
            let reason = format!("was not declared; add it to MachineSpec::ports (--port {port})");
            return Err(MachineError::invalid(format!("port {port}"), reason));
        }
        if let Some(end) = self.link.ended() {
            return Err(end.error("expose a port"));
        }
        let mut open = self.open.lock().await;
        if let Some(mapping) = open.get(&port) {
            return Endpoint::at(mapping.address);
        }
        let (listener, address) = listen().await.map_err(|source| MachineError::transport("expose a port", source))?;
        let task = tokio::spawn(serve(listener, port, self.link.clone()));
        open.insert(port, Mapping { address, listener: task });
        Endpoint::at(address)
    }
}

impl Mappings {
    pub(crate) fn new(link: Arc<Link>, declared: Vec<u16>) -> Self {
        Self { link, declared, open: Mutex::new(HashMap::new()) }
    }

    /// Ends every mapping. When this returns, no client can connect any more.
    pub(crate) async fn close(&self) {
        for (_, mut mapping) in self.open.lock().await.drain() {
            mapping.listener.abort();
            let _ended_or_aborted = (&mut mapping.listener).await;
        }
    }
}

async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Accepts connections until the machine ends. The connections end with the machine.
async fn serve(listener: TcpListener, port: u16, link: Arc<Link>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = link.over() => return,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(forward(stream, port, link.clone()));
                }
                // For instance, the host is short of descriptors; the next attempt may succeed.
                Err(error) => {
                    tracing::warn!(%error, port, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
}

/// Forwards one connection. If no program listens inside, the client's connection is closed.
async fn forward(stream: TcpStream, port: u16, link: Arc<Link>) {
    if let Err(error) = copy(stream, port, &link).await {
        tracing::debug!(%error, port, "a forwarded connection ended early");
    }
}

async fn copy(stream: TcpStream, port: u16, link: &Arc<Link>) -> Result<()> {
    let channel = Channel::open(link, Shape::Connection, WINDOW, Open::Connect(port)).await?;
    match channel.answer(ACTION, Duration::from_secs(60)).await? {
        Incoming::Started => {}
        _ => return Ok(()),
    }
    // Small messages are sent at once; a socket that refuses this option still works.
    let _delayed = stream.set_nodelay(true);
    let (from, to) = stream.into_split();
    let inwards = pin!(inwards(&channel, from));
    let mut outwards = pin!(outwards(&channel, to));
    tokio::select! {
        outcome = &mut outwards => return outcome,
        outcome = inwards => outcome?,
    }
    // The client has sent everything; the machine may still answer.
    outwards.await
}

/// Copies from the client to the machine until the client has sent everything.
async fn inwards(channel: &Channel, mut from: OwnedReadHalf) -> Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        channel.writable().await;
        buffer.reserve(CHUNK);
        let count = from.read_buf(&mut buffer).await.map_err(|source| MachineError::transport(ACTION, source))?;
        if count == 0 {
            channel.request(&Request::End);
            return Ok(());
        }
        let mut piece: Bytes = buffer.split().freeze();
        while !piece.is_empty() {
            channel.writable().await;
            channel.send(&mut piece);
        }
    }
}

/// Copies from the machine to the client until the machine has sent everything.
async fn outwards(channel: &Channel, mut to: OwnedWriteHalf) -> Result<()> {
    loop {
        match channel.next().await {
            Ok(Incoming::Data(bytes)) => {
                to.write_all(&bytes).await.map_err(|source| MachineError::transport(ACTION, source))?;
                channel.taken(bytes.len());
            }
            // The machine has sent everything; the client may continue to send.
            Ok(Incoming::Exit(..)) => {
                let _client_gone = to.shutdown().await;
            }
            Ok(_) => return Ok(()),
            Err(end) => return Err(end.error(ACTION)),
        }
    }
}
