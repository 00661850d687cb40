//! What `cargo xtask release` packs: it is unpacked as an installation would do it, and the program in it runs.

#![allow(clippy::expect_used, reason = "a test")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

/// The program that the gate builds beside this one. Packing it tests everything but the compiler's own settings.
fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("sandbar");
    assert!(program.exists(), "{} is missing; run `cargo build` first", program.display());
    program
}

fn succeed(command: &mut Command) -> String {
    let run = command.output().expect("the program starts");
    assert!(run.status.success(), "{command:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8(run.stdout).expect("text")
}

fn pack(out: &Path) -> Vec<PathBuf> {
    let mut release = Command::new(env!("CARGO_BIN_EXE_xtask"));
    succeed(release.arg("release").arg("--program").arg(program()).arg("--out").arg(out));
    let mut files: Vec<PathBuf> =
        fs::read_dir(out).expect("a directory").map(|file| file.expect("one").path()).collect();
    files.sort();
    files
}

fn only<'a>(files: &'a [PathBuf], end: &str) -> &'a Path {
    let mut found = files.iter().filter(|file| file.to_string_lossy().ends_with(end));
    let first = found.next().unwrap_or_else(|| panic!("no {end} in {files:?}"));
    assert!(found.next().is_none(), "several {end} in {files:?}");
    first
}

#[test]
#[ignore = "slow: it compresses the program; `cargo xtask test --all`"]
fn what_is_handed_out_unpacks_and_runs() {
    let out = tempfile::tempdir().expect("a directory");
    let files = pack(out.path());
    assert_eq!(files.len(), 4, "{files:?}");
    for end in [".tar.gz.sha256", ".deb.sha256"] {
        succeed(Command::new("sha256sum").arg("--check").arg(only(&files, end)).current_dir(out.path()));
    }
    let version = format!("sandbar {}\n", env!("CARGO_PKG_VERSION"));

    let unpacked = out.path().join("tarball");
    fs::create_dir(&unpacked).expect("a directory");
    succeed(Command::new("tar").arg("-xzf").arg(only(&files, ".tar.gz")).arg("-C").arg(&unpacked));
    let top = fs::read_dir(&unpacked).expect("a directory").next().expect("one").expect("one").path();
    assert_eq!(succeed(Command::new(top.join("sandbar")).arg("--version")), version);
    for name in ["README.md", "LICENSE-MIT", "man/sandbar.1", "man/sandbar-session-exec.1", "completions/_sandbar"] {
        assert!(top.join(name).is_file(), "{name}");
    }

    let installed = out.path().join("package");
    succeed(Command::new("dpkg-deb").arg("--extract").arg(only(&files, ".deb")).arg(&installed));
    assert_eq!(succeed(Command::new(installed.join("usr/bin/sandbar")).arg("--version")), version);
    check_package(&installed);
    let control = out.path().join("control");
    succeed(Command::new("dpkg-deb").arg("--control").arg(only(&files, ".deb")).arg(&control));
    let about = fs::read_to_string(control.join("control")).expect("text");
    assert!(about.contains(&format!("\nVersion: {}\n", env!("CARGO_PKG_VERSION"))), "{about}");
    for script in ["postinst", "prerm"] {
        succeed(Command::new("sh").arg("-n").arg(control.join(script)));
    }
}

fn check_package(installed: &Path) {
    let modes = [("usr/bin/sandbar", 0o755), ("usr/share/man/man1/sandbar.1.gz", 0o644), ("usr/share/doc", 0o755)];
    for (name, mode) in modes {
        let found = fs::metadata(installed.join(name)).expect(name).permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    let names = [
        "usr/share/bash-completion/completions/sandbar",
        "usr/share/zsh/vendor-completions/_sandbar",
        "usr/share/fish/vendor_completions.d/sandbar.fish",
        "usr/share/doc/sandbar/copyright",
        "usr/share/doc/sandbar/LICENSE-APACHE",
        "usr/share/doc/sandbar/docs/command-line.md",
    ];
    for name in names {
        assert!(installed.join(name).is_file(), "{name}");
    }
    let profile = fs::read_to_string(installed.join("usr/share/sandbar/apparmor/sandbar")).expect("a profile");
    assert!(profile.contains("profile sandbar \"/usr/bin/sandbar\""), "{profile}");
    let page = succeed(Command::new("gzip").arg("-dc").arg(installed.join("usr/share/man/man1/sandbar-exec.1.gz")));
    assert!(page.contains("\\-\\-workspace") && page.contains(".SH EXIT CODES"), "{page}");
}

#[test]
fn a_system_without_its_library_is_refused_with_the_next_step() {
    let out = tempfile::tempdir().expect("a directory");
    let mut release = Command::new(env!("CARGO_BIN_EXE_xtask"));
    release.args(["release", "--target", "riscv32gc-unknown-linux-gnu", "--out"]).arg(out.path());
    let run = release.output().expect("it starts");
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{said}");
    assert!(said.contains("rustup target add riscv32gc-unknown-linux-gnu"), "{said}");
}
