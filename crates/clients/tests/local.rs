//! The local client keeps every promise of the suite.
#![cfg(target_os = "linux")]

use sandbar_clients::UnixLocal;

sandbar_machine::conformance!(UnixLocal::new());
