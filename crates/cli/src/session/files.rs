//! `sandbar session read` and `write`: one file of a session as a stream.

use std::{io, os::fd::AsFd};

use futures::{StreamExt, stream};
use sandbar::{ByteStream, MachineError};
use tokio::sync::mpsc;

use super::{
    Home,
    blame::{self, Reading},
};
use crate::{failure::Failure, relay, render, values::Inside};

pub(super) async fn read(file: &Inside, home: &Home) -> Result<u8, Failure> {
    let session = home.attach(&file.session).await?;
    let mut content = session.read_stream(&file.path).await?;
    while let Some(piece) = content.next().await {
        let piece = piece.map_err(|cause| sandbar::SandboxError::reading(file.path.to_string_lossy(), cause))?;
        // A reader may take its time; the connection to the machine must not wait for it.
        let written = tokio::task::spawn_blocking(move || relay::write_all(io::stdout().as_fd(), &piece)).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(render::CLOSED),
            Err(error) => return Err(Failure::new("cannot write standard output").because(error)),
        }
    }
    Ok(0)
}

pub(super) async fn write(file: &Inside, home: &Home) -> Result<u8, Failure> {
    let session = home.attach(&file.session).await?;
    let reading = Reading::default();
    let written = session.write_stream(&file.path, reading.watch(input(io::stdin())?)).await;
    match reading.failed() {
        Some(error) => Err(blame::host("cannot read standard input", error)),
        None => Ok(written.map(|_| 0)?),
    }
}

/// Something of ours as a stream that ends with an error when reading does, so that half of it is never taken for all.
pub(super) fn input(from: impl AsFd + Send + 'static) -> Result<ByteStream, Failure> {
    let (to, mut pieces) = mpsc::channel(4);
    relay::pieces(from, to).map_err(|error| Failure::new("cannot begin to read").because(error))?;
    let pieces = stream::poll_fn(move |task| pieces.poll_recv(task));
    Ok(Box::pin(
        pieces.map(|piece| piece.map_err(|error| MachineError::transport("read what is to be written", error))),
    ))
}
