//! Permission for a program to use user namespaces where AppArmor restricts them: what is in force, and a profile.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sandbar::doctor::Report;
use serde::Serialize;

use crate::{Error, ErrorKind, Result};

/// Name of the kernel setting that restricts user namespaces.
pub const SWITCH: &str = "kernel.apparmor_restrict_unprivileged_userns";

const PROFILES: &str = "/etc/apparmor.d";
const LOADERS: [&str; 2] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"];

/// Maximum number of characters of a loader's error message.
const EXPLANATION: usize = 2000;

/// AppArmor restrictions of this program. Its JSON keys are stable; new versions only add keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AppArmorFindings {
    /// Whether user namespaces of programs without a profile have no capabilities.
    pub restricts: bool,
    /// Profile of this process.
    pub profile: Option<String>,
}

impl AppArmorFindings {
    /// Examines this process on a host with this report.
    pub fn examine(host: &Report) -> Self {
        let restricts = host.settings.iter().any(|setting| setting.name == SWITCH && setting.fix.is_some());
        let label = fs::read_to_string("/proc/self/attr/apparmor/current").ok();
        let label = label.map(|label| label.trim_end_matches(['\n', '\0']).to_owned());
        Self { restricts, profile: label.filter(|label| !label.is_empty() && label != "unconfined") }
    }

    /// Whether this process needs a profile and has none.
    pub fn needs_profile(&self) -> bool {
        self.restricts && self.profile.is_none()
    }
}

/// A profile for one program.
#[derive(Clone, Debug)]
pub struct AppArmorProfile {
    program: PathBuf,
    text: String,
    file: PathBuf,
}

impl AppArmorProfile {
    /// A profile for this process's own program, from a template that names `shipped_for`.
    pub fn for_this_program(template: &str, shipped_for: &str) -> Result<Self> {
        let failed = |error: io::Error| Error::io("cannot find the path of this program", error);
        Self::new(fs::canonicalize("/proc/self/exe").map_err(failed)?, template, shipped_for)
    }

    /// A profile for a program, whose path must not contain characters with a meaning in profiles.
    pub fn new(program: PathBuf, template: &str, shipped_for: &str) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("cannot write a profile for {}: its path {why}", program.display());
            Error::new(ErrorKind::Io, message).with_advice(format!("install sandbar as {shipped_for}"))
        };
        let path = program.to_str().ok_or_else(|| refused("is not UTF-8"))?;
        let special = |c: char| c.is_control() || "\"\\*?[]{}^@,#".contains(c);
        if path.ends_with(" (deleted)") || path.contains(special) {
            return Err(refused("has characters with a special meaning in a profile"));
        }
        let text = template.replace(&format!("\"{shipped_for}\""), &format!("\"{path}\""));
        Ok(Self { program, text, file: Path::new(PROFILES).join("sandbar") })
    }

    /// The program that the profile is for.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The text of the profile.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The file that [`install`](Self::install) writes.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether the file exists with another text.
    pub fn replaces_another(&self) -> bool {
        fs::read(&self.file).is_ok_and(|there| there != self.text.as_bytes())
    }

    /// First part of the program's path that a user other than root can change.
    pub fn changeable(&self) -> Option<&Path> {
        self.program.ancestors().find(|place| {
            fs::metadata(place).is_ok_and(|meta| {
                let (is_sticky, is_open) = (meta.mode() & 0o1000 != 0, meta.mode() & 0o022 != 0);
                meta.uid() != 0 || is_open && !is_sticky
            })
        })
    }

    /// Installs and loads the profile; if it cannot be loaded, the previous state is restored.
    pub fn install(&self) -> Result<()> {
        let Some(loader) = LOADERS.iter().find(|loader| Path::new(loader).exists()) else {
            let message = "cannot load the profile; apparmor_parser is missing; nothing was changed";
            return Err(Error::new(ErrorKind::Io, message).with_advice("install the package `apparmor`"));
        };
        let failed = |error: io::Error| Error::io(format!("cannot write {}", self.file.display()), error);
        let before = match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.map_err(failed)?),
        };
        replace(&self.file, self.text.as_bytes()).map_err(failed)?;
        let mut load = Command::new(loader);
        load.arg("--replace").arg(&self.file).env_clear().stdin(Stdio::null()).stdout(Stdio::null());
        let why = match load.output() {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().chars().take(EXPLANATION).collect(),
            Err(error) => error.to_string(),
        };
        match before {
            Some(before) => replace(&self.file, &before).map_err(failed)?,
            None => fs::remove_file(&self.file).map_err(failed)?,
        }
        let message = format!("{loader} refuses the profile, and nothing was changed; {why}");
        Err(Error::new(ErrorKind::Io, message))
    }
}

/// Writes a file atomically. The loader ignores files whose names begin with a dot.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let staged = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&staged).and_then(|mut new| {
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&staged, file)
    });
    if written.is_err() {
        let _not_made = fs::remove_file(&staged);
    }
    written
}
