//! Fakes of hosted sandbox services that speak the real wire protocol and run real processes, each in a local machine.
//!
//! The official SDKs of the service test the fake (`tests/`), and the fake tests our own client. The fake agrees with those
//! SDKs; this does not prove that it agrees with the live service.
//!
//! ```no_run
//! use sandbar_fakes::{Fault, On, e2b::Server};
//!
//! let server = Server::start()?;
//! server.fault(On::post("/sandboxes"), Fault::RetryAfter(429, 1), 1);
//! // … run a client with `server.env()` …
//! assert_eq!(server.requests()[0].path, "/sandboxes");
//! # Ok::<(), sandbar_fakes::FakeError>(())
//! ```

mod body;
pub mod e2b;
mod error;
mod fault;
mod listener;
mod log;

pub use error::FakeError;
pub use fault::{Fault, On};
pub use log::Request;
