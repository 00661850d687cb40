//! An MCP server that gives any client an isolated machine: one sandbox with a shell, patches, images and files.
//!
//! A [`Server`] serves one session to one client, over any pair of streams. It has no terminal and takes no arguments; the
//! caller creates the session, and removes it at the end.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use sandbar::{Manifest, SandboxSession, SessionOptions, client::UnixLocal};
//! use sandbar_mcp::{Connection, Server};
//!
//! # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
//! let options = SessionOptions::new(Manifest::new());
//! let session = SandboxSession::open(Arc::new(UnixLocal::new()), options).await?;
//! let connection = Connection::new(tokio::io::empty(), tokio::io::sink());
//! Server::new(session.clone()).serve(connection).await?;
//! session.delete().await?;
//! # Ok(())
//! # }
//! ```

mod calls;
mod files;
mod instructions;
mod lines;
mod server;
mod tools;
mod transport;
mod window;

pub use self::{
    instructions::WorkspaceAccess,
    server::{ServeError, Server},
    transport::Connection,
};
