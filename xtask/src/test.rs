//! `cargo xtask test`: every check in the order of its cost, then all tests, whose own summary is the last thing printed.

use std::{process::Command, time::Instant};

use clap::Args;

use crate::{
    examples,
    program::{self, Failure, Result},
    setup, tidy,
};

#[derive(Args)]
pub(crate) struct Options {
    /// Do not install or start anything first
    #[arg(long)]
    no_setup: bool,
    /// Only formatting, clippy, tidy and the unit tests
    #[arg(long)]
    quick: bool,
}

enum Work {
    Ours(fn() -> Result),
    Program(Command),
}

struct Stage {
    name: &'static str,
    work: Work,
}

pub(crate) fn run(options: &Options) -> Result {
    let mut stages = Vec::new();
    if !options.no_setup && !options.quick {
        stages.push(ours("setup", || setup::run(&setup::Options::default())));
    }
    stages.push(cargo("fmt", &["fmt", "--all", "--check"]));
    stages.push(cargo("fmt of fuzz", &["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]));
    stages.push(clippy());
    stages.push(ours("tidy", tidy::run));
    if !options.quick {
        stages.push(docs());
        stages.push(cargo("doc tests", &["test", "--quiet", "--workspace", "--all-features", "--doc"]));
        stages.push(ours("examples", examples::run));
    }
    for stage in stages {
        stage.run()?;
    }
    if !options.quick && !program::succeeds(Command::new("docker").args(["image", "inspect", "sandbar-test:bookworm"]))
    {
        println!(
            "== LEFT OUT: the Docker suites, because no engine with the test images answers (a failure where CI=true)"
        );
    }
    println!("== tests");
    // The runner has the last word, on failure too.
    program::run(&mut tests(options)).map_err(Failure::silent)
}

impl Stage {
    fn run(self) -> Result {
        println!("== {}", self.name);
        let start = Instant::now();
        let result = match self.work {
            Work::Ours(work) => work(),
            Work::Program(mut command) => program::run(&mut command),
        };
        let seconds = start.elapsed().as_secs_f32();
        let outcome = if result.is_ok() { "ok" } else { "FAILED" };
        println!("== {} {outcome} in {seconds:.1} s", self.name);
        result
    }
}

fn ours(name: &'static str, work: fn() -> Result) -> Stage {
    Stage { name, work: Work::Ours(work) }
}

fn cargo(name: &'static str, arguments: &[&str]) -> Stage {
    let mut command = program::cargo();
    command.args(arguments);
    Stage { name, work: Work::Program(command) }
}

fn clippy() -> Stage {
    cargo(
        "clippy",
        &["clippy", "--quiet", "--workspace", "--all-targets", "--all-features", "--", "--deny", "warnings"],
    )
}

fn docs() -> Stage {
    let mut command = program::cargo();
    command.args(["doc", "--quiet", "--no-deps", "--workspace", "--all-features"]).env("RUSTDOCFLAGS", "-D warnings");
    Stage { name: "docs", work: Work::Program(command) }
}

/// All tests in one invocation: one runner, one summary. nextest where it is installed, cargo's own otherwise.
fn tests(options: &Options) -> Command {
    let nextest = program::succeeds(program::cargo().args(["nextest", "--version"]));
    let runner: &[&str] = if nextest { &["nextest", "run"] } else { &["test", "--no-fail-fast"] };
    // `--tests` keeps cargo's own runner from running the doc tests a second time.
    let which: &[&str] = if options.quick { &["--lib", "--bins"] } else { &["--tests"] };
    let mut command = program::cargo();
    command.args(runner).args(["--workspace", "--all-features"]).args(which);
    command
}
