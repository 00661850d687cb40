//! The promises a session keeps on every client, each one a function that fails when one of them is broken.
//!
//! Whoever writes a client runs `sandbar_machine::conformance!` for its machines and, from a crate that sees both,
//! [`session_conformance!`](crate::session_conformance) for the sessions on them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is test support: a promise is broken by a panic that says what happened"
)]

mod files;
mod life;
mod users;
mod work;

use std::{sync::Arc, time::Duration};

use sandbar_machine::SandboxClient;

use crate::{Manifest, SandboxSession, SessionOptions};

/// How long a promise may take. Only a broken one takes so long.
const LIMIT: Duration = Duration::from_secs(120);

/// Checks the promise of this name.
///
/// # Panics
/// If it is broken, takes too long, or there is none.
pub async fn keep(name: &str, client: Arc<dyn SandboxClient>) {
    let run = run(name, client).expect("a promise of that name");
    assert!(tokio::time::timeout(LIMIT, run).await.is_ok(), "{name}: not done after {LIMIT:?}");
}

/// An image of one transparent dot.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

async fn open(client: &Arc<dyn SandboxClient>, manifest: Manifest) -> SandboxSession {
    SandboxSession::open(client.clone(), SessionOptions::new(manifest)).await.expect("a session")
}

/// Makes, from one list, the way to a promise by its name and the macro with a test for each.
macro_rules! list {
    ($d:tt $($module:ident { $($name:ident)* })*) => {
        fn run(name: &str, client: Arc<dyn SandboxClient>) -> Option<futures::future::BoxFuture<'static, ()>> {
            match name {
                $($(stringify!($name) => Some(Box::pin($module::$name(client))),)*)*
                _ => None,
            }
        }

        /// One test for each promise of a session, against the client that the expression makes (anew in each test).
        #[macro_export]
        macro_rules! session_conformance {
            ($d client:expr) => {
                mod session_conformance {
                    #[allow(unused_imports, reason = "the client may be named by its whole path")]
                    use super::*;

                    $($(
                        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $name() {
                            $d crate::conformance::keep(stringify!($name), std::sync::Arc::new($d client)).await;
                        }
                    )*)*
                }
            };
        }
    };
}

list! { $
    life {
        a_session_starts_with_what_its_manifest_says
        declared_variables_are_there
        a_secret_reaches_commands_and_nothing_that_is_saved
        a_session_that_cannot_start_leaves_nothing
        starting_twice_is_fine
        a_closed_session_refuses_everything
        deleting_twice_is_fine
        hooks_run_once_before_the_end
        a_session_survives_being_saved_and_found_again
        a_detached_session_is_there_after_everyone_let_go
        an_undeclared_port_is_refused
        every_operation_is_audited
    }
    files {
        files_come_back_as_they_were_written
        paths_stay_inside
        links_that_lead_out_are_refused
        a_patch_changes_all_or_nothing
        a_patch_never_goes_through_a_link
        an_archive_is_judged_before_it_is_unpacked
        a_workspace_survives_leaving_and_coming_back
        what_is_ephemeral_stays_out_and_comes_again
        a_host_directory_arrives_whole
    }
    work {
        a_command_says_how_it_ended
        a_command_that_takes_too_long_is_killed
        output_is_bounded
        a_background_child_does_not_hold_up_the_result
        a_process_goes_on_between_looks
        a_terminal_can_be_typed_into
        commands_go_on_in_a_session_that_is_found_again
    }
    users {
        two_users_share_a_session
        one_users_file_is_closed_to_every_tool_of_another
        entries_have_their_group_and_permissions
    }
}
