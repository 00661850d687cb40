//! `cargo xtask fuzz`: every target of `fuzz/fuzz_targets`, each for a while, on the nightly compiler. It begins with the kept
//! corpora, which a test of the gate replays on the stable one.

use std::fs;

use clap::Args;

use crate::program::{self, Failure, Result};

#[derive(Args)]
pub(crate) struct Options {
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The targets to run; all of them when none is named
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result {
    let known = targets()?;
    let chosen = choose(&known, &options.targets)?;
    require_nightly()?;
    require_cargo_fuzz()?;
    for target in chosen {
        println!("fuzz: {target} for {} s", options.seconds);
        let mut command = nightly(&["fuzz", "run", target]);
        // The first folder takes what is found; the kept corpus is only read.
        let found = program::root().join("fuzz/found").join(target);
        fs::create_dir_all(&found).map_err(|error| Failure::new(format!("{}: {error}", found.display())))?;
        command.arg(&found).arg(program::root().join("fuzz/corpus").join(target)).arg("--");
        // A decoder must stay within its bounds: a kilobyte of input has no business allocating gigabytes.
        command.arg(format!("-max_total_time={}", options.seconds)).args([
            "-rss_limit_mb=1024",
            "-timeout=10",
            "-verbosity=0",
            "-print_final_stats=1",
        ]);
        program::run(&mut command)?;
    }
    Ok(())
}

/// The targets by name, from the files that hold them.
fn targets() -> Result<Vec<String>> {
    let folder = program::root().join("fuzz/fuzz_targets");
    let files = fs::read_dir(&folder).map_err(|error| Failure::new(format!("fuzz/fuzz_targets: {error}")))?;
    let mut names: Vec<String> = files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

fn choose<'a>(known: &'a [String], wanted: &'a [String]) -> Result<&'a [String]> {
    if let Some(unknown) = wanted.iter().find(|name| !known.contains(name)) {
        return Err(Failure::new(format!("there is no fuzz target {unknown}; there are: {}", known.join(" "))));
    }
    Ok(if wanted.is_empty() { known } else { wanted })
}

/// Through rustup, because the cargo that started us is one toolchain's own and does not know `+nightly`.
fn nightly(arguments: &[&str]) -> std::process::Command {
    let mut command = program::at_root("rustup");
    command.args(["run", "nightly", "cargo"]).args(arguments);
    command
}

fn require_nightly() -> Result {
    if program::succeeds(&mut nightly(&["--version"])) {
        return Ok(());
    }
    Err(Failure::new("fuzzing needs the nightly compiler: rustup toolchain install nightly --profile minimal"))
}

fn require_cargo_fuzz() -> Result {
    if program::succeeds(&mut nightly(&["fuzz", "--version"])) {
        return Ok(());
    }
    println!("fuzz: installing cargo-fuzz");
    program::run(program::cargo().args(["install", "--locked", "--quiet", "cargo-fuzz"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn naming_no_target_means_all_of_them() {
        let known = names(&["event", "request"]);
        assert_eq!(choose(&known, &[]).expect("all"), known);
        assert_eq!(choose(&known, &names(&["event"])).expect("one"), names(&["event"]));
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_list_of_known_ones() {
        let failure = choose(&names(&["event", "request"]), &names(&["evnet"])).expect_err("a typing error");
        assert!(failure.message.ends_with("there are: event request"), "{}", failure.message);
    }
}
