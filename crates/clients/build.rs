//! Builds the guest program statically, with its own target directory, for `src/guest_binary.rs` to carry.

use std::{
    env,
    error::Error,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAM: &str = "sandbar-guest";

/// Small and quick to start: there may be a thousand of them.
const PROFILE: [&str; 8] = [
    "profile.release.panic=\"abort\"",
    "profile.release.lto=\"fat\"",
    "profile.release.codegen-units=1",
    "profile.release.strip=true",
    "profile.release.debug=false",
    "profile.release.opt-level=2",
    "profile.release.package.\"*\".opt-level=2",
    "profile.release.overflow-checks=true",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Err(error) = embed() {
        println!("cargo::error=cannot build the guest program: {error}");
    }
}

fn embed() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(variable("OUT_DIR")?);
    if variable("CARGO_CFG_TARGET_OS")? != "linux" {
        fs::write(out.join(PROGRAM), [])?;
        return Ok(());
    }
    let crate_dir = PathBuf::from(variable("DEP_SANDBAR_GUEST_DIR")?);
    for watched in ["src", "Cargo.toml", "build.rs"] {
        println!("cargo::rerun-if-changed={}", crate_dir.join(watched).display());
    }
    let manifest = manifest(&crate_dir, &out)?;
    let built = build(&manifest, &out)?;
    let program = fs::read(&built)?;
    if !is_static(&program) {
        return Err(format!("{} is not a static ELF program", built.display()).into());
    }
    fs::write(out.join(PROGRAM), program)?;
    Ok(())
}

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    env::var(name).map_err(|error| format!("{name}: {error}").into())
}

/// The manifest to build: in place inside the workspace; from a registry, a copy that is its own workspace.
fn manifest(crate_dir: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    if !crate_dir.join("Cargo.toml.orig").exists() {
        return Ok(crate_dir.join("Cargo.toml"));
    }
    let copy = out.join("guest-src");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    copy_tree(&crate_dir.join("src"), &copy.join("src"))?;
    fs::copy(crate_dir.join("build.rs"), copy.join("build.rs"))?;
    let mut manifest = fs::read_to_string(crate_dir.join("Cargo.toml"))?;
    manifest.push_str("\n[workspace]\n");
    fs::write(copy.join("Cargo.toml"), manifest)?;
    Ok(copy.join("Cargo.toml"))
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        } else {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Offline first: what this crate was built from is already here.
fn build(manifest: &Path, out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let target = variable("TARGET")?;
    let target_dir = out.join("guest-target");
    let offline = cargo(manifest, &target, &target_dir)?.arg("--offline").output()?;
    if !offline.status.success() {
        let online = cargo(manifest, &target, &target_dir)?.output()?;
        if !online.status.success() {
            let said = String::from_utf8_lossy(&online.stderr);
            for line in said.lines() {
                println!("cargo::error={line}");
            }
            return Err(format!("cargo ended with {}", online.status).into());
        }
    }
    Ok(target_dir.join(target).join("release").join(PROGRAM))
}

fn cargo(manifest: &Path, target: &str, target_dir: &Path) -> Result<Command, Box<dyn Error>> {
    let mut command = Command::new(variable("CARGO")?);
    for (name, value) in env::vars_os() {
        if leaks(&name, &value) {
            command.env_remove(&name);
        }
    }
    command.args(["build", "--release", "--bin", PROGRAM, "--target", target, "--manifest-path"]);
    command.arg(manifest).arg("--target-dir").arg(target_dir);
    for setting in PROFILE {
        command.args(["--config", setting]);
    }
    command.env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=pie");
    Ok(command)
}

/// What the outer build set for itself and a nested one must not see.
fn leaks(name: &OsStr, value: &OsStr) -> bool {
    const NAMES: [&str; 8] = [
        "RUSTFLAGS",
        "RUSTDOCFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "CLIPPY_ARGS",
        "CLIPPY_CONF_DIR",
        "CARGO_TARGET_DIR",
        "CARGO_INCREMENTAL",
        "CARGO_PRIMARY_PACKAGE",
    ];
    const PREFIXES: [&str; 7] =
        ["CARGO_BUILD_", "CARGO_PROFILE_", "CARGO_FEATURE_", "CARGO_CFG_", "CARGO_PKG_", "CARGO_MANIFEST_", "DEP_"];
    let Some(name) = name.to_str() else { return false };
    let clippy = name == "RUSTC_WRAPPER" && value.to_string_lossy().contains("clippy");
    clippy || NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether this is an ELF program that asks for no loader. Only 64-bit little-endian ones are looked into.
fn is_static(program: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = program.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    };
    let asks_for_loader = || -> Option<bool> {
        let table = usize::try_from(number(32, 8)?).ok()?;
        let size = usize::try_from(number(54, 2)?).ok()?;
        let count = usize::try_from(number(56, 2)?).ok()?;
        Some((0..count).any(|index| number(table + index * size, 4) == Some(u64::from(INTERPRETER))))
    };
    let wide = program.get(4..6) == Some(&[2, 1]);
    program.starts_with(b"\x7fELF") && (!wide || asks_for_loader() == Some(false))
}
