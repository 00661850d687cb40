//! `cargo xtask mutants`: small changes to the cores without I/O, one at a time, each of which a test must notice.
//!
//! What no test can notice is in `.cargo/mutants.toml`, with the reason.

use std::fs;

use clap::Args;

use crate::program::{self, Failure, Result};

#[derive(Args)]
pub(crate) struct Options {
    /// The cores to change; all of them when none is named
    #[arg(long = "core", value_name = "NAME")]
    cores: Vec<String>,
    /// Only this file of a core
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// Only a part of all changes, for instance 0/4 for the first quarter
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
}

/// Exit codes of `cargo mutants`: some changes were not noticed; some made the tests run until their deadline, which is noticed too.
const MISSED: u8 = 2;
const ENDLESS: u8 = 3;

/// Code that decides and does nothing else, and the tests that judge it.
struct Core {
    name: &'static str,
    package: &'static str,
    files: &'static [&'static str],
    /// Arguments of `cargo test`: suites that start machines would take hours.
    tests: &'static [&'static str],
}

const CORES: [Core; 5] = [
    Core {
        name: "run",
        package: "sandbar-agent",
        files: &["crates/agent/src/run.rs", "crates/agent/src/run/**"],
        tests: &["--lib", "--test", "transcripts", "--test", "edges", "--test", "spending"],
    },
    Core {
        name: "patch",
        package: "sandbar-sandbox",
        files: &["crates/sandbox/src/patch.rs", "crates/sandbox/src/patch/**"],
        tests: &["--lib", "--test", "patch"],
    },
    Core {
        name: "paths",
        package: "sandbar-sandbox",
        files: &["crates/sandbox/src/paths.rs"],
        tests: &["--lib", "--test", "paths"],
    },
    Core {
        name: "archive",
        package: "sandbar-sandbox",
        files: &["crates/sandbox/src/archive.rs", "crates/sandbox/src/archive/**"],
        tests: &["--lib", "--test", "archive"],
    },
    Core {
        name: "protocol",
        package: "sandbar-guest",
        files: &["crates/guest/src/protocol.rs", "crates/guest/src/protocol/**"],
        tests: &["--lib"],
    },
];

pub(crate) fn run(options: &Options) -> Result {
    let cores = choose(&options.cores)?;
    if !program::succeeds(program::cargo().args(["mutants", "--version"])) {
        return Err(Failure::new("cargo-mutants is not installed: cargo install --locked cargo-mutants"));
    }
    let mut survived = 0;
    for core in cores {
        println!("mutants: {}", core.name);
        survived += survivors(core, options)?;
    }
    if survived == 0 {
        return Ok(());
    }
    Err(Failure::new(format!(
        "{survived} changes were not noticed; write tests that notice them, or list them in .cargo/mutants.toml with a reason"
    )))
}

/// The number of changes of a core that no test noticed.
fn survivors(core: &Core, options: &Options) -> Result<usize> {
    let output = program::target().join("mutants").join(core.name);
    fs::create_dir_all(&output).map_err(|error| Failure::new(format!("{}: {error}", output.display())))?;
    let mut command = program::cargo();
    // One after the other: each needs all processors to build.
    command.args(["mutants", "--jobs", "1", "--package", core.package]);
    command.arg("--output").arg(&output);
    let files = options.file.as_deref().map_or_else(|| core.files.to_vec(), |file| vec![file]);
    command.args(files.iter().flat_map(|file| ["--file", file]));
    command.args(options.shard.iter().flat_map(|shard| ["--shard", shard]));
    match program::run(command.arg("--").args(core.tests)) {
        Err(failure) if ![MISSED, ENDLESS].contains(&failure.code) => return Err(failure),
        _ => {}
    }
    let missed = output.join("mutants.out/missed.txt");
    let missed = fs::read_to_string(&missed).map_err(|error| Failure::new(format!("{}: {error}", missed.display())))?;
    Ok(missed.lines().count())
}

fn choose(wanted: &[String]) -> Result<Vec<&'static Core>> {
    let names = CORES.map(|core| core.name);
    if let Some(unknown) = wanted.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Failure::new(format!("there is no core {unknown}; there are: {}", names.join(" "))));
    }
    let is_wanted = |core: &&Core| wanted.is_empty() || wanted.iter().any(|name| name == core.name);
    Ok(CORES.iter().filter(is_wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_every_core_exist() {
        for core in &CORES {
            for file in core.files {
                assert!(program::root().join(file.trim_end_matches("/**")).exists(), "{}: {file}", core.name);
            }
        }
    }

    #[test]
    fn cores_are_chosen_by_name() {
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            choose(&wanted).map(|cores| cores.iter().map(|core| core.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["paths"]).expect("known"), ["paths"]);
        assert_eq!(names(&[]).expect("all").len(), CORES.len());
        let failure = names(&["pahts"]).expect_err("a typing error");
        assert!(failure.message.ends_with("there are: run patch paths archive protocol"), "{}", failure.message);
    }
}
