//! `cargo xtask conformance`: writes `docs/conformance.md` anew from what the suites find.

use std::{fs, path::Path, process::Command};

use crate::program::{self, Failure, Result};

pub(crate) fn run() -> Result {
    let record = program::target().join("conformance");
    if record.exists() {
        fs::remove_dir_all(&record)
            .map_err(|error| Failure::new(format!("cannot remove {}: {error}", record.display())))?;
    }
    program::run(&mut suite("e2b", &record, &["promises::", "sessions::"]))?;
    program::run(&mut suite("conformance", &record, &[]))
}

/// Runs these tests of a program, which record what they find.
fn suite(program: &str, record: &Path, tests: &[&str]) -> Command {
    let mut command = program::cargo();
    command.args(["test", "--quiet", "--workspace", "--all-features", "--test", program, "--"]).args(tests);
    program::without_proxies(command.env("SANDBAR_CONFORMANCE_RECORD", record));
    command
}
