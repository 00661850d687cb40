//! The same as a user without privileges: whole runs of every capability, sessions that are kept, and nothing left.

use sandbar_machine::conformance::as_ordinary_user;

/// What is tried again.
const AGAIN: [&str; 8] = [
    "shell::a_command_that_goes_on_is_typed_to_polled_and_interrupted",
    "shell::a_patch_typed_into_a_command_line_is_applied_by_the_engine",
    "files::patches_come_as_free_text_to_a_responses_model",
    "files::a_picture_is_shown_and_what_is_none_is_explained_in_words",
    "capabilities::a_capability_of_ones_own_shapes_equips_and_has_the_last_word_once",
    "coming_back::a_run_comes_back_to_its_live_session_with_its_files_and_processes",
    "composition::agents_as_tools_have_a_machine_of_their_own_another_or_their_callers",
    "leaving::a_run_that_is_dropped_in_the_middle_of_a_command_leaves_nothing_even_if_machines_are_detached",
];

#[test]
fn an_ordinary_user_has_the_same_runs() {
    let words: Vec<&str> = ["--exact", "--test-threads", "2"].into_iter().chain(AGAIN).collect();
    if let Some(said) = as_ordinary_user(&words) {
        assert!(said.contains(&format!(" {} passed", AGAIN.len())), "not everything was tried: {said}");
    }
}
