//! The most important tests again, as a user without privileges.

use sandbar_machine::conformance::as_ordinary_user;

/// Names of the tests that run again.
const REPEATED: [&str; 8] = [
    "shell::a_running_command_gets_input_is_polled_and_interrupted",
    "shell::a_patch_in_a_command_line_is_applied_by_the_engine",
    "files::patches_come_as_free_text_to_a_responses_model",
    "files::an_image_is_shown_and_other_files_are_refused_with_a_reason",
    "capabilities::a_custom_capability_shapes_and_equips_and_its_stop_hook_runs_once",
    "resumed_runs::a_run_resumes_its_live_session_with_its_files_and_processes",
    "composition::an_agent_as_a_tool_has_its_own_machine_another_or_that_of_its_caller",
    "run_endings::a_run_that_is_dropped_during_a_command_leaves_nothing_even_if_machines_are_detached",
];

#[test]
fn the_tests_pass_as_an_unprivileged_user() {
    let arguments: Vec<&str> = ["--exact", "--test-threads", "2"].into_iter().chain(REPEATED).collect();
    if let Some(output) = as_ordinary_user(&arguments) {
        assert!(output.contains(&format!(" {} passed", REPEATED.len())), "some tests did not run: {output}");
    }
}
