//! The same tests, unchanged, on machines of other providers: Docker containers and the fake of E2B.

use std::{collections::BTreeMap, env, process::Command, thread};

use super::rig::SANDBOX;

const DEBIAN: &str = "sandbar-test:bookworm";

/// Modules whose tests are about machines of this host.
const LOCAL: [&str; 2] = ["unprivileged::", "other_providers::"];

/// Tests that measure their process and therefore run in a separate one.
const ALONE: [&str; 1] = ["bad_input::output_without_end_costs_neither_memory_nor_time"];

/// Refusal at E2B of a specification that declares users.
const USERS: &str = "a client whose machines have several users";
/// Refusal at E2B of a specification that mounts directories of the host.
const DIRECTORIES: &str = "show directories of the host";

/// Tests that cannot pass at E2B, each with the refusal that it gets there.
const NOT_AT_E2B: [(&str, &str); 7] = [
    ("bad_input::the_model_reads_about_a_full_disk_and_no_partial_patch_is_left", DIRECTORIES),
    ("composition::a_coordinator_and_a_reviewer_share_a_session_as_separate_users", USERS),
    ("directory::the_working_directory_must_be_accessible_to_the_agents_user", USERS),
    ("directory::a_missing_user_is_created", USERS),
    ("directory::an_undeclared_user_cannot_be_added_to_a_running_session", USERS),
    ("directory::an_agent_acts_as_its_user_in_every_tool", USERS),
    ("prompts::a_prompt_with_mounted_storage", DIRECTORIES),
];

/// A command that runs this test program.
fn program() -> Command {
    Command::new(env::current_exe().expect("this program"))
}

/// Names of all tests that are not about machines of this host.
fn tests() -> Vec<String> {
    let listed = program().args(["--list", "--format", "terse"]).output().expect("this program runs");
    let listed = String::from_utf8(listed.stdout).expect("names");
    let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
    names.filter(|name| !LOCAL.iter().any(|local| name.starts_with(local))).map(str::to_owned).collect()
}

/// Outcome of a run of some tests.
struct Outcome {
    passed: bool,
    printed: String,
}

impl Outcome {
    /// Runs these tests on machines of this provider.
    fn of(sandbox: &str, names: &[&str]) -> Self {
        let run = program().args(["--exact", "--test-threads", "2"]).args(names).env(SANDBOX, sandbox).output();
        let output = run.expect("this program runs");
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Self { passed: output.status.success(), printed: out + &err }
    }

    fn counts(&self, passed: usize, failed: usize) -> bool {
        self.printed.contains(&format!(" {passed} passed; {failed} failed; 0 ignored;"))
    }

    /// What each failed test printed.
    fn failures(&self) -> BTreeMap<&str, &str> {
        let sections = self.printed.split("\n---- ").skip(1);
        sections.filter_map(|section| section.split_once(" stdout ----\n")).collect()
    }
}

/// Checks that every test passes on machines of this provider, except the exceptions, which fail with the named refusal.
fn the_tests_pass(sandbox: &str, exceptions: &[(&str, &str)]) {
    let tests = tests();
    for name in exceptions.iter().map(|(name, _)| name).chain(&ALONE) {
        assert!(tests.iter().any(|test| test == name), "there is no test {name}");
    }
    let is_exception = |test: &&str| exceptions.iter().any(|(name, _)| name == test);
    let kept = tests.iter().map(String::as_str).filter(|test| !is_exception(test));
    let (alone, kept): (Vec<&str>, Vec<&str>) = kept.partition(|test| ALONE.contains(test));
    thread::scope(|scope| {
        for name in alone {
            scope.spawn(move || pass(sandbox, &[name]));
        }
        pass(sandbox, &kept);
    });
    if !exceptions.is_empty() {
        are_refused(sandbox, exceptions);
    }
}

fn pass(sandbox: &str, names: &[&str]) {
    let outcome = Outcome::of(sandbox, names);
    assert!(outcome.passed && outcome.counts(names.len(), 0), "{}", outcome.printed);
}

fn are_refused(sandbox: &str, exceptions: &[(&str, &str)]) {
    let names: Vec<&str> = exceptions.iter().map(|(name, _)| *name).collect();
    let outcome = Outcome::of(sandbox, &names);
    assert!(outcome.counts(0, names.len()), "an exception passes now: {}", outcome.printed);
    let failures = outcome.failures();
    for (name, refusal) in exceptions {
        let printed = failures.get(name).unwrap_or_else(|| panic!("{name} printed nothing: {}", outcome.printed));
        assert!(printed.contains(refusal), "{name} does not fail because of {refusal:?}: {printed}");
    }
}

#[test]
fn the_tests_pass_in_containers() {
    let found = Command::new("docker").args(["image", "inspect", DEBIAN]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        assert_ne!(env::var("CI").as_deref(), Ok("true"), "no engine with the test images: run `cargo xtask setup`");
        println!("LEFT OUT: no Docker engine with the image {DEBIAN}; `cargo xtask setup` puts both in place");
        return;
    }
    the_tests_pass(&format!("docker:{DEBIAN}"), &[]);
}

#[test]
fn the_tests_pass_on_machines_of_e2b() {
    the_tests_pass("e2b", &NOT_AT_E2B);
}
