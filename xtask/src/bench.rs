//! `cargo xtask bench NAME`: one benchmark of whichever crate has it, built for release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::program::{self, Failure, Result};

#[derive(Args)]
pub(crate) struct Options {
    /// What to measure: `local` (machines on this host), `start` (how soon one answers), `docker` (machines in containers), `workspace` (manifests, files and patches), `harness` (the loop) or
    /// `agent` (the loop on machines)
    name: String,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,
    /// Fewer rounds: good enough to see that everything runs
    #[arg(long)]
    quick: bool,
    /// Only the rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result {
    let mut command = program::cargo();
    command.args(["bench", "--quiet", "--all-features", "--package", &package(&options.name)?, "--bench"]);
    command.arg(&options.name).arg("--");
    for (wanted, flag) in [(options.json, "--json"), (options.quick, "--quick")] {
        if wanted {
            command.arg(flag);
        }
    }
    if let Some(name) = &options.only {
        command.args(["--only", name]);
    }
    program::run(&mut command)
}

/// The package that has a benchmark of this name.
fn package(name: &str) -> Result<String> {
    let mut known = Vec::new();
    for folder in folders(&program::root().join("crates")) {
        let package = stem(&folder);
        for file in folders(&folder.join("benches")).iter().filter(|file| file.is_file()) {
            if stem(file) == name {
                return Ok(if package == "sandbar" { package } else { format!("sandbar-{package}") });
            }
            known.push(stem(file));
        }
    }
    Err(Failure::new(format!("there is no benchmark {name:?}; there are {}", known.join(", "))))
}

/// What is in a directory; nothing is in one that cannot be read.
fn folders(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
