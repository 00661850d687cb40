//! Sessions keep every promise on the local client: as the current user, as an ordinary user, and with the POSIX fallbacks
//! instead of the guest's facets.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use sandbar_clients::UnixLocal;
use sandbar_machine::{BareClient, conformance::as_ordinary_user};

mod native {
    use super::*;
    sandbar_sandbox::session_conformance!(UnixLocal::new(), complete);
}

mod fallbacks {
    use super::*;
    sandbar_sandbox::session_conformance!(BareClient::new(UnixLocal::new()));
}

#[test]
fn an_ordinary_user_has_every_promise_kept() {
    as_ordinary_user(&["native::"]);
}
