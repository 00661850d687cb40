//! The local client keeps every promise of the suite: as whoever runs the tests, as an ordinary user, and with the POSIX
//! fallbacks in place of the guest's own ways.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test")]

use sandbar_clients::UnixLocal;
use sandbar_machine::{BareClient, conformance::as_ordinary_user};

mod native {
    use super::*;
    sandbar_machine::conformance!(UnixLocal::new());
}

mod fallbacks {
    use super::*;
    sandbar_machine::conformance!(BareClient::new(UnixLocal::new()));
}

#[test]
fn an_ordinary_user_has_every_promise_kept() {
    as_ordinary_user(&["native::"]);
}

#[test]
fn an_ordinary_user_has_every_promise_kept_by_fallbacks() {
    as_ordinary_user(&["fallbacks::"]);
}
