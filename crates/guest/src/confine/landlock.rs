//! Landlock: a second layer under the mounts. Paths without a grant are at most readable, even if a mount is left
//! writable by mistake.

use std::{
    ffi::CString,
    os::fd::{AsFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags};
use sandbar_guest::landlock_versions::{self, RENAMES, SCOPES};

use crate::{
    machine::failure::{Setup, Step, refuse},
    sys::security,
};

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const SCOPE_ABSTRACT_UNIX_AND_SIGNAL: u64 = 0b11;

/// Rights on everything below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// Read and execute.
    Read,
    /// Read and write existing devices and terminals.
    Device,
    /// Everything except creating devices.
    Write,
}

/// Root of a grant.
#[derive(Debug)]
enum GrantTarget {
    /// The file at this path when the ruleset is created.
    At(CString),
    /// This open file, wherever it is.
    Open(OwnedFd),
}

/// How important Landlock is for a machine; decides what happens on kernels with an older version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Landlock is the only barrier to the host: without [`SCOPES`] commands could signal its processes.
    OnlyWall,
    /// Mounts, namespaces and permissions suffice without it. Version 1, which refuses renames between directories, is
    /// not used.
    SecondWall,
    /// In a container whose commands own the guest's files, only Landlock protects them. Every version is used.
    KeepsGuestFiles,
}

/// Whether this kernel's Landlock blocks the host's abstract sockets.
pub(crate) fn scopes_sockets() -> bool {
    security::landlock_abi().is_ok_and(|abi| abi >= SCOPES)
}

/// The Landlock rules of a machine.
#[derive(Debug)]
pub(crate) struct Rules {
    grants: Vec<(GrantTarget, Grant)>,
    role: Role,
}

impl Rules {
    /// Empty rules.
    pub(crate) fn new(role: Role) -> Self {
        Self { grants: Vec::new(), role }
    }

    /// Grants rights on everything below a path; a path that does not exist when the ruleset is created is skipped.
    pub(crate) fn allow(&mut self, path: &[u8], grant: Grant) {
        if let Ok(path) = CString::new(path) {
            self.grants.push((GrantTarget::At(path), grant));
        }
    }

    /// Grants rights on everything below an open file.
    pub(crate) fn allow_held(&mut self, place: OwnedFd, grant: Grant) {
        self.grants.push((GrantTarget::Open(place), grant));
    }

    /// Applies the rules to this process and all its descendants; returns the name of the layer.
    pub(crate) fn enter(&self) -> Setup<String> {
        let (ruleset, abi) = self.ruleset()?;
        if self.role == Role::SecondWall && abi < RENAMES {
            return Ok(format!("no landlock (version {abi} refuses to rename between directories)"));
        }
        security::landlock_enter(ruleset.as_fd()).step("enter Landlock")?;
        Ok(landlock_versions::layer(abi))
    }

    /// Creates the kernel's ruleset; returns it with the kernel's Landlock version.
    pub(crate) fn ruleset(&self) -> Setup<(OwnedFd, u32)> {
        const FIX: &str = "use Linux 5.13 or newer and boot with `landlock` among the `lsm=` modules";
        let abi = security::landlock_abi().needs("ask for Landlock", "Landlock", FIX)?;
        if self.role == Role::OnlyWall && abi < SCOPES {
            let missing =
                format!("Landlock version {SCOPES}, without which signals reach the host (this kernel has {abi})");
            return Err(refuse("enter Landlock", &missing, "use Linux 6.12 or newer, or ask for --isolation full"));
        }
        let all = rights(abi);
        let scoped = if abi >= SCOPES { SCOPE_ABSTRACT_UNIX_AND_SIGNAL } else { 0 };
        let ruleset = security::landlock_ruleset(all, scoped, abi).step("make a Landlock ruleset")?;
        for (place, grant) in &self.grants {
            let opened;
            let (held, name) = match place {
                GrantTarget::Open(held) => (held, "what was shown".into()),
                GrantTarget::At(path) => {
                    let Some(found) = open(path) else { continue };
                    opened = found;
                    (&opened, path.to_string_lossy())
                }
            };
            let is_dir = rustix::fs::fstat(held).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR);
            let file_only = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
            let wanted = match grant {
                Grant::Read => EXECUTE | READ_FILE | READ_DIR,
                Grant::Device => READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV,
                Grant::Write => all & !(MAKE_CHAR | MAKE_BLOCK),
            };
            let wanted = wanted & all & if is_dir { u64::MAX } else { file_only };
            security::landlock_allow(ruleset.as_fd(), held.as_fd(), wanted)
                .step(&format!("allow {name} in Landlock"))?;
        }
        Ok((ruleset, abi))
    }
}

/// All file access rights of this version.
fn rights(abi: u32) -> u64 {
    let count = match abi {
        0 | 1 => 13,
        2 => 14,
        3 | 4 => 15,
        _ => 16,
    };
    (1 << count) - 1
}

fn open(path: &CString) -> Option<OwnedFd> {
    rustix::fs::open(path.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
