//! The Debian package: an `ar` archive of two tarballs.

use std::path::Path;

use super::{PAPERS, Parts, VERSION, finish, read, tree::Tree, write};
use crate::program::{self, Failure, Result};

/// Hosts whose AppArmor knows profiles for user namespaces take powers from programs without one; others cannot read it.
const INSTALLED: &str = r#"#!/bin/sh
set -e
if [ "$1" = configure ] && [ -e /etc/apparmor.d/abi/4.0 ] && [ ! -e /etc/apparmor.d/sandbar ]; then
  install -m 644 /usr/share/sandbar/apparmor/sandbar /etc/apparmor.d/sandbar
  if command -v apparmor_parser >/dev/null 2>&1 && [ -e /sys/kernel/security/apparmor ]; then
    apparmor_parser --replace /etc/apparmor.d/sandbar || echo "sandbar: AppArmor refused its profile; see sandbar doctor" >&2
  fi
fi
"#;

/// A profile that was changed stays.
const REMOVED: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && cmp -s /usr/share/sandbar/apparmor/sandbar /etc/apparmor.d/sandbar; then
  if command -v apparmor_parser >/dev/null 2>&1 && [ -e /sys/kernel/security/apparmor ]; then
    apparmor_parser --remove /etc/apparmor.d/sandbar || true
  fi
  rm -f /etc/apparmor.d/sandbar
fi
"#;

pub(super) fn pack(parts: &Parts, target: &str, out: &Path, date: &str) -> Result {
    let architecture = architecture(target)?;
    let data = data(parts, out)?;
    let mut control = Tree::new(out, "control")?;
    let about = about(architecture, data.bytes(), &parts.program);
    control.file("control", about.as_bytes())?;
    control.program("postinst", INSTALLED.as_bytes())?;
    control.program("prerm", REMOVED.as_bytes())?;
    let name = format!("sandbar_{VERSION}_{architecture}.deb");
    let mut members = vec![("debian-binary", b"2.0\n".to_vec())];
    for (member, tree) in [("control.tar.gz", &control), ("data.tar.gz", &data)] {
        let archive = out.join(format!(".{member}-{}", std::process::id()));
        tree.pack(".", date, &archive)?;
        members.push((member, read(&archive)?));
        let _left_for_the_next_run = std::fs::remove_file(archive);
    }
    write(&out.join(&name), &ar(&members, date))?;
    finish(out, &name)
}

/// Debian's name of a system.
fn architecture(target: &str) -> Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => Err(Failure::new(format!("Debian's name of {target} is unknown; add it to xtask/src/release/deb.rs"))),
    }
}

fn data(parts: &Parts, out: &Path) -> Result<Tree> {
    let mut tree = Tree::new(out, "data")?;
    tree.program("usr/bin/sandbar", &parts.program)?;
    for (page, text) in &parts.pages {
        tree.compressed(&format!("usr/share/man/man1/{page}"), text.as_bytes())?;
    }
    for (script, text) in &parts.completions {
        let path = match *script {
            "sandbar.bash" => "usr/share/bash-completion/completions/sandbar".to_owned(),
            "_sandbar" => "usr/share/zsh/vendor-completions/_sandbar".to_owned(),
            other => format!("usr/share/fish/vendor_completions.d/{other}"),
        };
        tree.file(&path, text)?;
    }
    let profile = parts.profile.replace("/usr/local/bin/sandbar", "/usr/bin/sandbar");
    tree.file("usr/share/sandbar/apparmor/sandbar", profile.as_bytes())?;
    for paper in PAPERS {
        tree.file(&format!("usr/share/doc/sandbar/{paper}"), &read(&program::root().join(paper))?)?;
    }
    tree.file("usr/share/doc/sandbar/copyright", COPYRIGHT.as_bytes())?;
    for page in pages_of_the_book()? {
        tree.file(&format!("usr/share/doc/sandbar/{page}"), &read(&program::root().join(&page))?)?;
    }
    Ok(tree)
}

const COPYRIGHT: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: sandbar
Source: https://github.com/sandbar-rs/sandbar

Files: *
Copyright: the sandbar contributors
License: MIT or Apache-2.0
 The texts are beside this file, in LICENSE-MIT and LICENSE-APACHE.
";

/// The pages that the table of contents names, which link to each other.
fn pages_of_the_book() -> Result<Vec<String>> {
    let contents = read(&program::root().join("docs/SUMMARY.md"))?;
    let contents = String::from_utf8_lossy(&contents).into_owned();
    let links = contents.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    Ok(links.map(|(page, _)| format!("docs/{page}")).collect())
}

fn about(architecture: &str, bytes: u64, program: &[u8]) -> String {
    let (major, minor) = newest_libc(program).unwrap_or((2, 17));
    format!(
        "Package: sandbar\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: the sandbar contributors <sandbar-rs@users.noreply.github.com>\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= {major}.{minor}), libgcc-s1\n\
         Suggests: git, uidmap\n\
         Section: utils\n\
         Priority: optional\n\
         Homepage: https://github.com/sandbar-rs/sandbar\n\
         Description: isolated machines for AI agents, without root and without a daemon\n \
         Runs AI agents, and any program that is not trusted, on an isolated machine: its own namespaces,\n \
         seccomp, Landlock and limits. Changes are shown as a diff before they are applied.\n",
        bytes.div_ceil(1024)
    )
}

/// The newest version of the C library whose symbols a program asks for.
fn newest_libc(program: &[u8]) -> Option<(u32, u32)> {
    const MARK: &[u8] = b"GLIBC_";
    let places = program.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK);
    let versions = places.filter_map(|(at, _)| {
        let text = program.get(at + MARK.len()..)?.iter().take(8).map(|byte| char::from(*byte));
        let text: String = text.take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        let (major, minor) = text.split_once('.')?;
        Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
    });
    versions.max()
}

/// The archive of a package: a line of fixed width before each member, and members at even places.
fn ar(members: &[(&str, Vec<u8>)], date: &str) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        archive.extend(format!("{name:<16}{date:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, "100644", bytes.len()).bytes());
        archive.extend(bytes);
        if !bytes.len().is_multiple_of(2) {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_an_archive_begin_at_even_places() {
        let archive = ar(&[("debian-binary", b"2.0".to_vec()), ("b", b"xy".to_vec())], "7");
        let text = String::from_utf8(archive).expect("text");
        let line = "debian-binary   7           0     0     100644  3         `\n";
        assert_eq!(line.len(), 60);
        assert!(text.starts_with(&format!("!<arch>\n{line}2.0\nb               7 ")), "{text}");
        assert!(text.ends_with("`\nxy"), "{text}");
    }

    #[test]
    fn a_program_needs_the_newest_library_that_it_names() {
        assert_eq!(newest_libc(b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GLIBC_PRIVATE\0"), Some((2, 34)));
        assert_eq!(newest_libc(b"static"), None);
    }

    #[test]
    fn systems_have_debian_names() {
        assert_eq!(architecture("x86_64-unknown-linux-gnu").expect("known"), "amd64");
        assert_eq!(architecture("aarch64-unknown-linux-gnu").expect("known"), "arm64");
        assert!(architecture("riscv64gc-unknown-linux-gnu").is_err());
    }

    #[test]
    fn the_book_has_pages() {
        let pages = pages_of_the_book().expect("readable");
        assert!(pages.contains(&"docs/command-line.md".to_owned()), "{pages:?}");
    }
}
