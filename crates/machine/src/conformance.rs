//! The promises every client keeps, each one a function that fails when a client breaks it.
//!
//! A client's whole test file is one line:
//!
//! ```
//! # use sandbar_machine::MemoryClient;
//! sandbar_machine::conformance!(MemoryClient::new());
//! ```
//!
//! which makes one test for each promise. A runner of its own can walk [`promises`] instead. A promise names what it
//! [needs](Need); on a machine that lacks a facet, or from a client that refuses the specification as
//! [`Unsupported`](crate::MachineError::Unsupported), its [`Verdict`] says what is lacking, and the other promises are
//! checked all the same. Machines need `sh` and the coreutils; ports also `python3`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "this is test support: a promise is broken by a panic that says what happened"
)]

mod archives;
mod detached;
mod ends;
mod files;
mod kept;
mod lifetime;
mod limits;
mod links;
mod needs;
mod ordinary;
mod ports;
mod processes;
mod rig;
mod shared;
mod streams;
mod terminals;
mod trees;
mod users;

use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{Mutex, Notify},
    time::timeout,
};

pub use self::needs::Need;
pub use self::ordinary::{STRANGER, as_ordinary_user, as_ordinary_user_with, as_stranger};
use crate::{Demand, Machine, MachineError, MachineHandle, MachineSpec, Network, Recorder, Result, SandboxClient};

/// How long a promise may take. Only a broken one takes so long; inside, single waits have limits of their own.
const LIMIT: Duration = Duration::from_secs(400);

/// What a promise is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Commands, their streams and their ends.
    Processes,
    /// Files, trees and archives.
    Files,
    /// Commands on terminals.
    Terminals,
    /// Ports reachable from the host.
    Ports,
    /// Machines coming, going and staying apart.
    Lifetime,
}

/// How a promise turned out; a broken one panics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is kept.
    Kept,
    /// There is nothing to check it on; this is what is missing.
    Lacking(String),
}

/// One promise.
#[derive(Clone, Copy)]
pub struct Promise {
    /// The promise in words, with underscores.
    pub name: &'static str,
    /// What it is about.
    pub group: Group,
    /// What it takes to check it, beside files.
    pub needs: &'static [Need],
    /// Panics if the client breaks it. Prefer [`Promise::check`], which also limits its time and cleans up.
    pub run: for<'a> fn(&'a dyn SandboxClient) -> BoxFuture<'a, ()>,
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("name", &self.name).field("group", &self.group).finish_non_exhaustive()
    }
}

impl Promise {
    /// Checks the promise, then deletes every machine that was made for it.
    ///
    /// # Panics
    /// If it is broken, or takes longer than three minutes.
    pub async fn check(&self, client: &dyn SandboxClient) -> Verdict {
        let watched = Watched {
            inner: client,
            needs: self.needs,
            made: Mutex::default(),
            lack: Mutex::default(),
            is_lacking: Notify::new(),
        };
        let outcome = {
            let run = AssertUnwindSafe(timeout(LIMIT, (self.run)(&watched))).catch_unwind();
            tokio::select! {
                outcome = run => outcome,
                () = watched.is_lacking.notified() => Ok(Ok(())),
            }
        };
        for handle in watched.made.into_inner() {
            let _second_delete = timeout(LIMIT, client.delete(&handle)).await;
        }
        match outcome {
            Ok(Ok(())) => watched.lack.into_inner().map_or(Verdict::Kept, Verdict::Lacking),
            Ok(Err(_elapsed)) => panic!("{}: not done after {LIMIT:?}", self.name),
            Err(broken) => {
                let text = broken.downcast_ref::<String>().map(String::as_str);
                let said = text.or(broken.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
                panic!("{}: {said}", self.name)
            }
        }
    }
}

/// Remembers what it made, and ends a promise for which something is lacking.
#[derive(Debug)]
struct Watched<'a> {
    inner: &'a dyn SandboxClient,
    needs: &'static [Need],
    made: Mutex<Vec<MachineHandle>>,
    lack: Mutex<Option<String>>,
    is_lacking: Notify,
}

impl Watched<'_> {
    async fn judged(&self, port: Option<u16>, made: Result<Arc<dyn Machine>>) -> Result<Arc<dyn Machine>> {
        if let Ok(machine) = &made {
            self.made.lock().await.push(machine.handle());
        }
        let lack = match &made {
            Ok(machine) => {
                let mut lack = None;
                for need in self.needs {
                    if lack.is_none() && !need.is_met_by(&**machine, port).await {
                        lack = Some(need.name().to_owned());
                    }
                }
                lack
            }
            Err(MachineError::Unsupported(what)) => Some(format!("the client cannot {what}")),
            Err(MachineError::Users { .. }) if self.needs.contains(&Need::Users) => Some(Need::Users.name().to_owned()),
            Err(_) => None,
        };
        let Some(lack) = lack else { return made };
        *self.lack.lock().await = Some(lack);
        self.is_lacking.notify_one();
        // The promise goes no further: `check` drops it here.
        std::future::pending().await
    }
}

#[async_trait]
impl SandboxClient for Watched<'_> {
    fn id(&self) -> &'static str {
        self.inner.id()
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        self.create_recorded(spec, &|_handle| Ok(())).await
    }

    async fn create_recorded(&self, spec: MachineSpec, record: &Recorder<'_>) -> Result<Arc<dyn Machine>> {
        let port = spec.ports.first().copied();
        let made = self.inner.create_recorded(spec.clone(), record).await;
        if let Err(MachineError::Isolation { .. } | MachineError::Unsupported(_)) = made {
            for weaker in weaker(&spec) {
                if let Ok(machine) = self.inner.create_recorded(weaker, record).await {
                    return self.judged(port, Ok(machine)).await;
                }
            }
        }
        self.judged(port, made).await
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        self.inner.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        self.inner.delete(handle).await
    }
}

/// The same specification for clients that offer less isolation than it demands, or have another network. What a promise
/// needs of either is a [`Need`], which such a machine then lacks.
fn weaker(spec: &MachineSpec) -> Vec<MachineSpec> {
    let spec = spec.clone().isolation(Demand::None);
    match spec.network {
        Network::Off => {
            [Network::Off, Network::Open, Network::Host].map(|network| spec.clone().network(network)).into()
        }
        _ => vec![spec],
    }
}

/// Checks the promise of this name.
///
/// # Panics
/// If it is broken or there is none.
pub async fn keep(name: &str, client: &dyn SandboxClient) -> Verdict {
    let promise = promises().into_iter().find(|promise| promise.name == name);
    promise.expect("a promise of that name").check(client).await
}

macro_rules! needs {
    ([$($need:ident)*]) => { &[$(Need::$need),*] };
}

/// Makes, from one list, the functions, [`promises`] and the macro with a test for each.
macro_rules! list {
    ($d:tt $($group:ident, $needs:tt, $module:ident { $($name:ident)* })*) => {
        $(pub use self::$module::{$($name),*};)*

        /// Every promise, in the order of the groups.
        #[must_use]
        pub fn promises() -> Vec<Promise> {
            vec![$($(Promise {
                name: stringify!($name),
                group: Group::$group,
                needs: needs!($needs),
                run: |client| Box::pin($module::$name(client)),
            }),*),*]
        }

        /// One test for each promise, against the client that the expression makes (anew in each test). A promise for which
        /// something is lacking passes, unless the client is said to be `complete`.
        #[macro_export]
        macro_rules! conformance {
            ($d client:expr) => {
                $d crate::conformance!($d client, |_verdict| {});
            };
            ($d client:expr, complete) => {
                $d crate::conformance!($d client, |verdict| assert_eq!(verdict, $d crate::conformance::Verdict::Kept));
            };
            ($d client:expr, $d judge:expr) => {
                mod conformance {
                    #[allow(unused_imports, reason = "the client may be named by its whole path")]
                    use super::*;

                    $($(
                        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                        async fn $name() {
                            let judge: fn($d crate::conformance::Verdict) = $d judge;
                            judge($d crate::conformance::keep(stringify!($name), &$d client).await);
                        }
                    )*)*
                }
            };
        }
    };
}

list! { $
    Processes, [Commands], processes {
        arguments_arrive_exactly_as_given
        a_command_without_a_program_is_refused
        nothing_of_the_harness_environment_reaches_a_command
        declared_variables_reach_every_command
        a_neutral_environment_is_set
        the_home_is_writable
        a_command_starts_in_the_workspace
        a_command_starts_where_it_is_told_to
        a_missing_working_directory_is_an_error
        exit_codes_arrive
        a_signal_is_128_and_its_number
        a_missing_program_exits_127
        what_cannot_be_executed_exits_126
        what_a_machine_lacks_is_refused_by_name
        a_command_runs_as_its_user_or_not_at_all
        a_hundred_commands_run_at_once
    }
    Processes, [Commands], streams {
        everything_printed_arrives_before_the_exit
        output_and_errors_stay_apart
        every_byte_passes_through_output
        sixteen_megabytes_arrive_exactly
        without_input_a_reader_sees_its_end_at_once
        an_unread_process_holds_up_nobody_else
        unread_output_is_not_hoarded
        joined_output_keeps_its_order
        the_exit_does_not_wait_for_background_children
        the_exit_comes_when_the_last_of_a_full_buffer_is_read
    }
    Processes, [Commands Stdin], streams {
        a_megabyte_of_input_comes_back
        a_reader_ends_when_its_input_is_closed
        a_kill_is_not_queued_behind_input
        closed_input_is_closed_whatever_else_goes_on
    }
    Processes, [Commands], trees {
        a_signal_can_be_handled
        a_signal_reaches_the_whole_tree
        a_kill_reaches_daemons
        a_kill_holds_up_nobody_else
        a_kill_spares_the_other_commands
        dropping_control_kills_the_tree
        a_daemon_outlives_its_command
        a_deadline_kills_the_tree
        a_command_within_its_deadline_is_left_alone
        the_deadline_of_a_machine_is_for_every_command
    }
    Processes, [Commands], users {
        a_machine_knows_its_users_or_is_not_made
    }
    Processes, [Commands Users], users {
        what_is_private_to_one_user_is_closed_to_another
        a_group_opens_to_its_members_only
        what_is_made_for_a_group_belongs_to_it
        one_users_processes_are_closed_to_another
    }
    Processes, [Commands], limits {
        work_within_its_limits_is_left_alone
    }
    Processes, [Commands Pids], limits {
        a_fork_bomb_is_contained
    }
    Processes, [Commands Disk], limits {
        a_disk_full_of_files_ends_the_command
        a_disk_full_of_nothing_ends_the_command
        a_disk_full_of_deleted_files_ends_the_command
        a_file_as_large_as_the_disk_ends_its_writer
        what_does_not_fit_on_disk_is_refused
    }
    Processes, [Commands Memory], limits {
        memory_used_up_ends_the_command
    }
    Files, [], files {
        what_is_written_is_read_back
        a_missing_file_is_not_found
        a_directory_cannot_be_read
        nothing_can_be_below_a_file
        missing_parents_are_made
        a_replaced_file_keeps_its_mode
        a_mode_is_given_on_request
        set_id_bits_are_never_granted
        a_failing_source_leaves_everything_as_it_was
        any_name_is_a_name
        a_listing_is_sorted_and_complete
        what_is_not_there_has_no_stat
        making_a_directory_twice_is_fine
        a_directory_is_not_made_over_a_file
        removing_is_complete_and_idempotent
        a_write_that_expects_something_else_does_nothing
        a_rename_replaces_a_file
        a_rename_never_loses_a_directory
        renaming_what_is_missing_is_not_found
        a_scan_is_a_complete_index
        a_scan_leaves_out_what_it_is_told_to
        a_scan_hashes_contents
    }
    Files, [], links {
        a_link_is_described_not_followed
        a_file_is_read_through_a_link
        a_link_is_never_written_through
        removing_a_link_spares_its_target
        a_link_is_renamed_as_a_link
        beneath_allows_links_that_stay_inside
        beneath_refuses_links_that_lead_out
        beneath_refuses_paths_elsewhere
        a_circle_of_links_is_an_error
    }
    Files, [], archives {
        a_tree_survives_packing_and_unpacking
        members_of_every_size_arrive_whole
        an_unpacking_that_waits_holds_nobody_up
        packing_leaves_out_what_it_is_told_to
        packing_what_is_missing_is_not_found
        unpacking_replaces_what_was_there
        an_archive_cannot_write_elsewhere
        an_archive_cannot_bring_devices
        an_archive_cannot_bring_set_id_bits
        a_torn_archive_is_refused
    }
    Files, [Commands], shared {
        commands_and_file_operations_see_the_same_files
        a_reader_sees_the_old_or_the_new_never_a_mixture
        reading_a_fifo_fails_promptly
        what_the_user_may_not_do_is_denied
        hostile_names_never_become_shell_text
    }
    Terminals, [Commands Terminals], terminals {
        a_terminal_is_a_terminal
        a_terminal_has_the_size_it_was_given
        a_terminal_can_be_resized
        control_c_interrupts
        closing_input_ends_a_terminal_reader
        closing_input_ends_a_terminal_reader_in_the_middle_of_a_line
        errors_on_a_terminal_arrive_as_output
        sixty_four_terminals_work_at_once
        killing_on_a_terminal_reaches_daemons
    }
    Terminals, [Commands Terminals Isolation], terminals {
        terminals_are_private_to_the_machine
    }
    Ports, [Commands Ports], ports {
        an_undeclared_port_is_refused
    }
    Ports, [Commands Ports Sockets], ports {
        a_declared_port_is_reachable
        either_side_of_a_connection_can_close_first
        a_port_nobody_listens_on_closes
        a_port_dies_with_its_machine
        a_port_is_reached_by_every_holder
    }
    Lifetime, [], lifetime {
        a_deleted_machine_is_gone_not_an_error
        deleting_twice_is_fine
        stopping_twice_is_fine
        after_a_stop_everything_fails_promptly
        a_live_machine_can_be_attached
        two_machines_do_not_share_files
    }
    Lifetime, [Isolation], lifetime {
        features_tell_the_truth
    }
    Lifetime, [Commands], ends {
        stopping_ends_every_process
        dropping_a_machine_ends_its_processes
        output_ends_when_the_machine_does
    }
    Lifetime, [Commands Isolation], ends {
        two_machines_do_not_share_processes
    }
    Lifetime, [], detached {
        a_detached_machine_outlives_its_maker
        a_detached_machine_can_have_several_holders
        a_detached_machine_is_recorded_before_it_stays
        a_stopped_detached_machine_is_gone_for_everyone
    }
    Lifetime, [Commands], detached {
        commands_end_with_their_holder_and_daemons_stay
        holders_run_commands_side_by_side
    }
    Lifetime, [Commands Kept Stdin Terminals], kept {
        a_kept_terminal_can_be_typed_into_again
    }
    Lifetime, [Commands Kept Stdin], kept {
        a_kept_command_outlives_its_holder_with_its_output
        what_does_not_fit_is_counted_exactly
        a_command_that_ended_alone_is_told_once
        a_held_command_is_not_adopted
        a_command_that_is_left_is_there_for_the_next
        input_waits_for_a_command_that_was_left
        dropping_control_kills_a_kept_command
        a_deadline_holds_without_a_holder
        commands_are_listed_and_signalled_by_number
        two_holders_adopt_side_by_side
        a_bound_machine_keeps_nothing
        a_lease_ends_an_idle_machine_and_no_other
    }
}
