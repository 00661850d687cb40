//! `cargo xtask release`: the program as it is handed out, in a tarball and in a Debian package, with its manual pages and
//! completions. It needs neither root nor Debian: `tar`, `gzip` and `sha256sum` are everywhere.

mod deb;
mod man;
mod tree;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::Args;

use self::tree::Tree;
use crate::{
    program::{self, Failure, Result},
    test::sizes::megabytes,
};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Documents at the top of the repository that everything that is handed out contains.
const PAPERS: [&str; 5] = ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"];
const PROFILE: &str = "crates/cli/apparmor/sandbar";

#[derive(Args)]
pub(crate) struct Options {
    /// System to build for, for instance aarch64-unknown-linux-gnu; this one by default
    #[arg(long)]
    target: Option<String>,
    /// Pack this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Where the archives go
    #[arg(long, value_name = "DIR", default_value = "dist")]
    out: PathBuf,
}

/// What is packed, besides the documents of the repository.
struct Parts {
    program: Vec<u8>,
    /// File names and contents.
    pages: Vec<(String, String)>,
    completions: Vec<(&'static str, Vec<u8>)>,
    profile: String,
}

pub(crate) fn run(options: &Options) -> Result {
    let host = host()?;
    let target = options.target.as_deref().unwrap_or(&host);
    require_library(target)?;
    let built = match &options.program {
        Some(program) => program.clone(),
        None => build(target, &host)?,
    };
    // Manual pages and completions come from a program that runs here.
    let runnable = if target == host { built.clone() } else { build_for_here()? };
    let parts = Parts {
        program: read(&built)?,
        pages: man::pages(&runnable)?,
        completions: completions(&runnable)?,
        profile: String::from_utf8_lossy(&read(&program::root().join(PROFILE))?).into_owned(),
    };
    println!("program {}", megabytes(parts.program.len() as u64));
    let out = program::root().join(&options.out);
    fs::create_dir_all(&out).map_err(|error| Failure::new(format!("{}: {error}", out.display())))?;
    let date = commit_date();
    pack_tarball(&parts, target, &out, &date)?;
    deb::pack(&parts, target, &out, &date)
}

/// The system this compiler runs on.
fn host() -> Result<String> {
    let about = output(program::at_root("rustc").arg("-vV"))?;
    let host = about.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc does not name its host"))
}

fn require_library(target: &str) -> Result {
    let library = output(program::at_root("rustc").args(["--print", "target-libdir", "--target", target]))?;
    if Path::new(library.trim()).is_dir() {
        return Ok(());
    }
    Err(Failure::new(format!(
        "cannot build for {target}; its standard library is not installed; run `rustup target add {target}` and install a linker for \
         it, or run this on such a machine, as .github/workflows/release.yml does"
    )))
}

fn build(target: &str, host: &str) -> Result<PathBuf> {
    let mut command = program::cargo();
    command.args(["build", "--profile", "dist", "--locked", "--package", "sandbar-cli"]);
    let folder = program::target();
    if target == host {
        program::run(&mut command)?;
        return Ok(folder.join("dist/sandbar"));
    }
    program::run(command.args(["--target", target]))?;
    Ok(folder.join(target).join("dist/sandbar"))
}

fn build_for_here() -> Result<PathBuf> {
    program::run(program::cargo().args(["build", "--quiet", "--locked", "--package", "sandbar-cli"]))?;
    Ok(program::target().join("debug/sandbar"))
}

fn completions(program: &Path) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let shells = [("bash", "sandbar.bash"), ("zsh", "_sandbar"), ("fish", "sandbar.fish")];
    let script = |(shell, name)| Ok((name, output(Command::new(program).args(["completions", shell]))?.into_bytes()));
    shells.into_iter().map(script).collect()
}

fn pack_tarball(parts: &Parts, target: &str, out: &Path, date: &str) -> Result {
    let name = format!("sandbar-{VERSION}-{target}");
    let mut tree = Tree::new(out, &name)?;
    tree.program(&format!("{name}/sandbar"), &parts.program)?;
    for paper in PAPERS {
        tree.file(&format!("{name}/{paper}"), &read(&program::root().join(paper))?)?;
    }
    for (page, text) in &parts.pages {
        tree.file(&format!("{name}/man/{page}"), text.as_bytes())?;
    }
    for (script, text) in &parts.completions {
        tree.file(&format!("{name}/completions/{script}"), text)?;
    }
    tree.file(&format!("{name}/apparmor/sandbar"), parts.profile.as_bytes())?;
    tree.pack(&name, date, &out.join(format!("{name}.tar.gz")))?;
    finish(out, &format!("{name}.tar.gz"))
}

/// Writes the digest beside an archive, and says how large it is.
fn finish(out: &Path, name: &str) -> Result {
    let digest = output(program::at_root("sha256sum").arg(name).current_dir(out))?;
    write(&out.join(format!("{name}.sha256")), digest.as_bytes())?;
    println!("{} {}", out.join(name).display(), megabytes(read(&out.join(name))?.len() as u64));
    Ok(())
}

/// The time of the last commit in seconds: the same sources give the same archives.
fn commit_date() -> String {
    let date = output(program::at_root("git").args(["log", "-1", "--format=%ct"])).unwrap_or_default();
    let date = date.trim();
    if date.is_empty() { "0".to_owned() } else { date.to_owned() }
}

fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Failure::new(format!("cannot start {name}: {error}")))?;
    program::judge(output.status, &name)?;
    String::from_utf8(output.stdout).map_err(|_| Failure::new(format!("{name} printed something else than text")))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
}

fn write(path: &Path, bytes: &[u8]) -> Result {
    fs::write(path, bytes).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}
