//! `sandbar session read` and `write`: one file of a session as a stream.

use std::{io, os::fd::AsFd};

use futures::{StreamExt, stream};
use sandbar::{MachineError, machine::ByteStream};
use sandbar_runs::transfer;
use tokio::sync::mpsc;

use super::Sessions;
use crate::{args::values::SessionPath, failure::Failure, render, streams::relay};

pub(super) async fn read(file: &SessionPath, sessions: &Sessions) -> Result<u8, Failure> {
    let session = sessions.attach(&file.session).await?;
    let mut content = session.read_stream(&file.path).await?;
    while let Some(piece) = content.next().await {
        let piece = piece.map_err(|cause| sandbar::SandboxError::reading(file.path.to_string_lossy(), cause))?;
        // A slow reader of standard output must not block the connection to the machine.
        let written = tokio::task::spawn_blocking(move || relay::write_all(io::stdout().as_fd(), &piece)).await;
        match written.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(render::CLOSED),
            Err(error) => return Err(Failure::new("cannot write standard output").because(error)),
        }
    }
    Ok(0)
}

pub(super) async fn write(file: &SessionPath, sessions: &Sessions) -> Result<u8, Failure> {
    let session = sessions.attach(&file.session).await?;
    transfer::write_stream(&session, &file.path, input()?, "standard input").await?;
    Ok(0)
}

/// Standard input as a stream that ends with an error if reading fails, so that a part is never taken for the whole.
fn input() -> Result<ByteStream, Failure> {
    let (to, mut pieces) = mpsc::channel(4);
    relay::pieces(io::stdin(), to).map_err(|error| Failure::new("cannot read standard input").because(error))?;
    let pieces = stream::poll_fn(move |task| pieces.poll_recv(task));
    Ok(Box::pin(pieces.map(|piece| piece.map_err(|error| MachineError::transport("read standard input", error)))))
}
