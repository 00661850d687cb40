//! The promises that a session keeps on every client. Each promise is a function that fails when it is broken.
//!
//! The author of a client runs `sandbar_machine::conformance!` for its machines and, from a crate that depends on both,
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

pub use sandbar_machine::conformance::Verdict;
use sandbar_machine::{MachineError, SandboxClient, conformance::Need};

use crate::{Manifest, SandboxSession, SessionOptions};

/// Timeout of one promise. Only a broken promise takes so long.
const LIMIT: Duration = Duration::from_secs(120);

/// One promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The promise as a sentence, with underscores.
    pub name: &'static str,
    /// The group of the promise: `life`, `files`, `work` or `users`.
    pub group: &'static str,
}

/// Checks the promise with this name.
///
/// # Panics
/// If the promise is broken, takes too long, or does not exist.
pub async fn keep(name: &str, client: Arc<dyn SandboxClient>) -> Verdict {
    let run = run(name, client).expect("a promise of that name");
    let verdict = tokio::time::timeout(LIMIT, run).await;
    verdict.unwrap_or_else(|_elapsed| panic!("{name}: not done after {LIMIT:?}"))
}

/// The return type of a promise's function: `()` if every machine can be checked, else a [`Verdict`].
trait IntoVerdict {
    fn into_verdict(self) -> Verdict;
}

impl IntoVerdict for () {
    fn into_verdict(self) -> Verdict {
        Verdict::Kept
    }
}

impl IntoVerdict for Verdict {
    fn into_verdict(self) -> Verdict {
        self
    }
}

fn lacking(need: Need) -> Verdict {
    Verdict::Lacking(need.name().to_owned())
}

/// An image of one transparent pixel.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\nIDATx\x9cc\0\x01\0\0\x05\0\x01\r\n-\xb4\0\0\0\0IEND\xaeB`\x82";

/// A session that outlives its client; a verdict if the machines of this client cannot.
async fn detached(client: &Arc<dyn SandboxClient>, options: SessionOptions) -> Result<SandboxSession, Verdict> {
    let error = match SandboxSession::open(client.clone(), options).await {
        Ok(session) => return Ok(session),
        Err(error) => error,
    };
    let mut cause = Some(&error as &dyn std::error::Error);
    while let Some(error) = cause {
        if let Some(MachineError::Unsupported(what)) = error.downcast_ref::<MachineError>() {
            return Err(Verdict::Lacking(format!("the client cannot {what}")));
        }
        cause = error.source();
    }
    panic!("a session: {error}")
}

async fn open(client: &Arc<dyn SandboxClient>, manifest: Manifest) -> SandboxSession {
    SandboxSession::open(client.clone(), SessionOptions::new(manifest)).await.expect("a session")
}

/// Defines from one list: [`promises`], the lookup of a promise by its name, and the macro with a test for each.
macro_rules! list {
    ($d:tt $($module:ident { $($name:ident)* })*) => {
        /// Every promise, in the order of the groups.
        #[must_use]
        pub fn promises() -> Vec<Promise> {
            vec![$($(Promise { name: stringify!($name), group: stringify!($module) }),*),*]
        }

        fn run(name: &str, client: Arc<dyn SandboxClient>) -> Option<futures::future::BoxFuture<'static, Verdict>> {
            match name {
                $($(stringify!($name) => Some(Box::pin(async { $module::$name(client).await.into_verdict() })),)*)*
                _ => None,
            }
        }

        /// One test for each promise of a session, against a client that each test creates with the expression. A
        /// promise whose verdict is `Lacking` passes, unless the client is declared `complete`; a function of name and
        /// verdict can decide otherwise.
        #[macro_export]
        macro_rules! session_conformance {
            ($d client:expr) => {
                $d crate::session_conformance!($d client, |_name, _verdict| {});
            };
            ($d client:expr, complete) => {
                $d crate::session_conformance!($d client, |name, verdict| {
                    assert_eq!(verdict, $d crate::conformance::Verdict::Kept, "{name}");
                });
            };
            ($d client:expr, $d judge:expr) => {
                mod session_conformance {
                    #[allow(unused_imports, reason = "the client may be named by its whole path")]
                    use super::*;

                    $($(
                        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $name() {
                            let judge: fn(&str, $d crate::conformance::Verdict) = $d judge;
                            let name = stringify!($name);
                            judge(name, $d crate::conformance::keep(name, std::sync::Arc::new($d client)).await);
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
        a_detached_session_survives_its_last_client
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
