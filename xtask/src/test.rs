//! `cargo xtask test`: every check in the order of its cost, then the tests, whose own summary is the last thing printed.
//!
//! What is compiled is compiled twice and no more: once as metadata, which clippy and rustdoc share, and once as programs,
//! which doc tests, examples and tests share. Every step therefore asks for the same packages with the same features.

mod runner;
mod scratch;
pub(crate) mod sizes;
mod times;

use std::process::Command;

use clap::Args;

use self::{scratch::Scratch, sizes::Sizes, times::Times};
use crate::{
    api, examples,
    program::{self, Result},
    setup, tidy,
};

/// What every step that compiles asks for.
const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

#[derive(Args)]
pub(crate) struct Options {
    /// Do not install or start anything first
    #[arg(long)]
    no_setup: bool,
    /// Only formatting, clippy, tidy and the unit tests
    #[arg(long)]
    quick: bool,
    /// The slow suites too: packages, compiler messages, long storms and sweeps
    #[arg(long, conflicts_with = "quick")]
    all: bool,
}

impl Options {
    pub(crate) fn tier(&self) -> Tier {
        match (self.quick, self.all) {
            (true, _) => Tier::Quick,
            (false, true) => Tier::All,
            (false, false) => Tier::Gate,
        }
    }
}

/// How much is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Unit tests.
    Quick,
    /// What has to pass before a change lands.
    Gate,
    /// Slow suites too: tests that are marked `#[ignore]`.
    All,
}

pub(crate) fn run(options: &Options) -> Result {
    let tier = options.tier();
    let mut times = Times::default();
    if !options.no_setup && tier != Tier::Quick {
        times.stage("setup", || setup::run(&setup::Options::default()))?;
    }
    times.stage("fmt", || {
        program::run(&mut cargo(&["fmt", "--all", "--check"]))?;
        program::run(&mut cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
    })?;
    times.stage("tidy", tidy::run)?;
    times.stage("deny", deny)?;
    times.stage("clippy", || program::run(&mut clippy()))?;
    if tier != Tier::Quick {
        times.stage("docs", || program::run(&mut docs()))?;
        times.stage("api", api::compare)?;
        let sizes = Sizes::before_the_build();
        let build = times.stage("build", || program::run(&mut build()))?;
        times.note(sizes.report(build));
        times.stage("doc tests", || program::run(program::without_proxies(&mut doc_tests())))?;
        times.stage("examples", examples::run)?;
        report_missing_engine();
    }
    let scratch = Scratch::new()?;
    times.stage_with_summary("tests", |times| runner::run(tier, &scratch, times))
}

/// `cargo deny` takes minutes to install, so the gate does without: a test of ours reads the same file.
fn deny() -> Result {
    if !program::succeeds(&mut cargo(&["deny", "--version"])) {
        println!("== LEFT OUT: cargo deny, which is not installed; the tests of xtask/tests/dependencies.rs stand in");
        return Ok(());
    }
    program::run(cargo(&["deny", "--all-features", "check"]).args(["bans", "licenses", "sources"]))
}

fn report_missing_engine() {
    if !program::succeeds(Command::new("docker").args(["image", "inspect", "sandbar-test:bookworm"])) {
        println!(
            "== LEFT OUT: the Docker suites, because no engine with the test images answers (a failure where CI=true)"
        );
    }
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = program::cargo();
    command.args(arguments);
    command
}

fn clippy() -> Command {
    let mut command = cargo(&["clippy", "--quiet", "--all-targets"]);
    command.args(EVERYTHING).args(["--", "--deny", "warnings"]);
    command
}

pub(crate) fn docs() -> Command {
    let mut command = cargo(&["doc", "--quiet", "--no-deps"]);
    command.args(EVERYTHING).env("RUSTDOCFLAGS", "-D warnings");
    command
}

fn doc_tests() -> Command {
    let mut command = cargo(&["test", "--quiet", "--doc"]);
    command.args(EVERYTHING);
    command
}

/// Tests, programs and examples in one go, so that both processors have something to do until the end.
fn build() -> Command {
    let mut command = cargo(&["build", "--quiet", "--lib", "--bins", "--tests", "--examples"]);
    command.args(EVERYTHING);
    command
}
