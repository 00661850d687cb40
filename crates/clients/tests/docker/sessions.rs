//! Sessions keep every promise on machines in containers.

use crate::bench::{DEBIAN, client, has_engine};

sandbar_sandbox::session_conformance!(
    {
        if !has_engine().await {
            return;
        }
        client(DEBIAN)
    },
    complete
);
