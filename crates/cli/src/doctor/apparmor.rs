//! `doctor --fix`: an AppArmor profile that lets this program use user namespaces.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sandbar::doctor::Report;
use serde::Serialize;

use crate::{
    args::DoctorArgs,
    failure::Failure,
    render::{Render, inert, inert_line},
    streams::consent::{self, Consent, UNASKED},
};

/// The shipped profile, for a program at [`SHIPPED_FOR`].
const PROFILE: &str = include_str!("../../apparmor/sandbar");
const SHIPPED_FOR: &str = "/usr/local/bin/sandbar";

const SWITCH: &str = "kernel.apparmor_restrict_unprivileged_userns";
const PROFILES: &str = "/etc/apparmor.d";
const LOADERS: [&str; 2] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"];

/// Maximum number of characters of a loader's error message.
const EXPLANATION: usize = 2000;

/// AppArmor restrictions of this program. Its JSON keys are stable; new versions only add keys.
#[derive(Debug, Serialize)]
pub(super) struct AppArmorFindings {
    /// Whether user namespaces of programs without a profile have no capabilities.
    restricts: bool,
    /// Profile of this process.
    profile: Option<String>,
}

impl AppArmorFindings {
    pub(super) fn examine(host: &Report) -> Self {
        let restricts = host.settings.iter().any(|setting| setting.name == SWITCH && setting.fix.is_some());
        let label = fs::read_to_string("/proc/self/attr/apparmor/current").ok();
        let label = label.map(|label| label.trim_end_matches(['\n', '\0']).to_owned());
        Self { restricts, profile: label.filter(|label| !label.is_empty() && label != "unconfined") }
    }

    /// Line of the report; `None` without restrictions.
    pub(super) fn line(&self) -> Option<String> {
        let what = "gives programs without a profile user namespaces without capabilities";
        match (self.restricts, &self.profile) {
            (false, _) => None,
            (true, Some(profile)) => Some(inert_line(&format!("{what}; sandbar has the profile {profile}"))),
            (true, None) => Some(format!("{what}; sandbar has no profile")),
        }
    }
}

/// Result of `--fix`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    NothingToFix,
    NeedsRoot,
    NeedsConsent,
    NotWanted,
    Installed,
}

impl Outcome {
    fn code(self) -> u8 {
        match self {
            Self::NothingToFix | Self::Installed => 0,
            Self::NeedsRoot => 1,
            Self::NeedsConsent | Self::NotWanted => UNASKED,
        }
    }
}

/// A profile for one program, and its destination.
struct Profile {
    program: PathBuf,
    text: String,
    file: PathBuf,
}

/// Shows the profile, and installs it after asking.
pub(super) fn fix(args: &DoctorArgs, host: &Report, render: &Render) -> Result<u8, Failure> {
    let found = AppArmorFindings::examine(host);
    if !found.restricts || found.profile.is_some() {
        return tell(args, Outcome::NothingToFix, None, render);
    }
    let profile = Profile::for_this_program()?;
    if !args.json {
        render.result(profile.describe().as_bytes())?;
    }
    if !rustix::process::geteuid().is_root() {
        return tell(args, Outcome::NeedsRoot, Some(&profile), render);
    }
    let consent = match (args.yes, args.json) {
        (true, _) => Consent::Given,
        (false, true) => Consent::Missing,
        (false, false) => consent::ask("install it?"),
    };
    let outcome = match consent {
        Consent::Given => {
            profile.install()?;
            Outcome::Installed
        }
        Consent::Missing => Outcome::NeedsConsent,
        Consent::Refused => Outcome::NotWanted,
    };
    tell(args, outcome, Some(&profile), render)
}

fn tell(args: &DoctorArgs, outcome: Outcome, profile: Option<&Profile>, render: &Render) -> Result<u8, Failure> {
    if args.json {
        let document = serde_json::json!({
            "status": outcome,
            "program": profile.map(|profile| profile.program.display().to_string()),
            "file": profile.map(|profile| profile.file.display().to_string()),
            "profile": profile.map(|profile| &profile.text),
        });
        return Ok(render.result(format!("{document}\n").as_bytes())?.max(outcome.code()));
    }
    let program = profile.map(|profile| profile.program.display().to_string()).unwrap_or_default();
    match outcome {
        Outcome::NothingToFix => render.note(
            "nothing to fix; AppArmor does not restrict user namespaces on this host, or sandbar already has a profile",
        ),
        Outcome::NeedsRoot => {
            render.note(&format!("only root can install the profile; run sudo {program} doctor --fix"));
        }
        Outcome::NeedsConsent => render.note("nothing was changed; add --yes to install the profile"),
        Outcome::NotWanted => render.note("nothing was changed"),
        Outcome::Installed => {
            render.note(&format!("the profile is installed and loaded; run {program} doctor to see the effect"));
        }
    }
    Ok(outcome.code())
}

impl Profile {
    fn for_this_program() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::new("cannot find the path of this program").because(error);
        let program = fs::canonicalize("/proc/self/exe").map_err(failed)?;
        let text = text_for(&program)?;
        Ok(Self { program, text, file: Path::new(PROFILES).join("sandbar") })
    }

    fn describe(&self) -> String {
        let lines = self.text.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") });
        let mut text = format!(
            "{SWITCH} = 1: AppArmor gives programs without a profile user namespaces without capabilities.\n\
             This profile lifts the restriction for {} only:\n\n{}\n\
             It is written to {}, and loaded by apparmor_parser --replace.\n",
            self.program.display(),
            lines.collect::<String>(),
            self.file.display(),
        );
        if let Some(place) = changeable(&self.program) {
            text.push_str(&format!(
                "Caution: users other than root can change {}. A program that replaces sandbar can use the profile too;\n\
                 install sandbar in a directory of root, such as {SHIPPED_FOR}, and run --fix there.\n",
                place.display()
            ));
        }
        if fs::read(&self.file).is_ok_and(|there| there != self.text.as_bytes()) {
            text.push_str(&format!("It replaces an existing {}.\n", self.file.display()));
        }
        inert(&text)
    }

    /// Installs and loads the profile; if it cannot be loaded, the previous state is restored.
    fn install(&self) -> Result<(), Failure> {
        let Some(loader) = LOADERS.iter().find(|loader| Path::new(loader).exists()) else {
            let failure = Failure::new("cannot load the profile; apparmor_parser is missing; nothing was changed");
            return Err(failure.next("install the package `apparmor`"));
        };
        let failed = |error: io::Error| Failure::new(format!("cannot write {}", self.file.display())).because(error);
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
        Err(Failure::new(format!("{loader} refuses the profile, and nothing was changed; {why}")))
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

/// The profile for a program at this path, which must not contain characters with a meaning in profiles.
fn text_for(program: &Path) -> Result<String, Failure> {
    let refused = |why: &str| {
        let what = format!("cannot write a profile for {}: its path {why}", inert_line(&program.display().to_string()));
        Failure::new(what).next(format!("install sandbar as {SHIPPED_FOR}"))
    };
    let path = program.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    let special = |c: char| c.is_control() || "\"\\*?[]{}^@,#".contains(c);
    if path.ends_with(" (deleted)") || path.contains(special) {
        return Err(refused("has characters with a special meaning in a profile"));
    }
    Ok(PROFILE.replace(&format!("\"{SHIPPED_FOR}\""), &format!("\"{path}\"")))
}

/// First part of a path that a user other than root can change.
fn changeable(program: &Path) -> Option<&Path> {
    program.ancestors().find(|place| {
        fs::metadata(place).is_ok_and(|meta| {
            let (is_sticky, is_open) = (meta.mode() & 0o1000 != 0, meta.mode() & 0o022 != 0);
            meta.uid() != 0 || is_open && !is_sticky
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_names_only_the_program() {
        let text = text_for(Path::new("/opt/my tools/sandbar")).expect("a profile");
        assert!(text.contains("profile sandbar \"/opt/my tools/sandbar\" flags=(unconfined) {\n  userns,\n"), "{text}");
        assert!(!text.contains(&format!("\"{SHIPPED_FOR}\"")), "{text}");
        for path in
            ["/home/*/sandbar", "/opt/{a,b}/sandbar", "/opt/a\"b", "/opt/a\nb", "/tmp/sandbar (deleted)", "/@{x}"]
        {
            assert!(text_for(Path::new(path)).is_err(), "{path}");
        }
    }
}
