//! Sessions keep every promise on machines at E2B.

use std::sync::OnceLock;

use sandbar_clients::E2b;
use sandbar_fakes::e2b::Server;

use crate::bench;

/// A client of a server that lives as long as this process; its machines end with it.
fn client() -> E2b {
    static SERVER: OnceLock<Server> = OnceLock::new();
    bench::client(SERVER.get_or_init(|| Server::start().expect("a server")))
}

sandbar_sandbox::session_conformance!(client());
