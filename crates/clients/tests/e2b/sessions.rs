//! Sessions keep every promise on machines at E2B that the service supports.

use std::sync::OnceLock;

use sandbar_clients::E2b;
use sandbar_fakes::e2b::Server;

use crate::{
    bench,
    page::{Finding, Suite, judge},
};

/// A client of a server that lives as long as this process; its machines end with the process.
fn client() -> E2b {
    static SERVER: OnceLock<Server> = OnceLock::new();
    bench::client(SERVER.get_or_init(|| Server::start().expect("a server")))
}

sandbar_sandbox::session_conformance!(client(), |name, verdict| {
    judge(Suite::Sessions, &[(name, Finding::new(name, Some(verdict)))]);
});
