//! AppArmor's restriction of user namespaces, and the profile that lifts it for this program alone: `doctor --fix`.

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
    consent::{self, Consent, UNASKED},
    failure::Failure,
    render::{Render, inert, inert_line},
};

/// The profile as it is shipped, for a program at [`SHIPPED_FOR`].
const PROFILE: &str = include_str!("../../apparmor/sandbar");
const SHIPPED_FOR: &str = "/usr/local/bin/sandbar";

const SWITCH: &str = "kernel.apparmor_restrict_unprivileged_userns";
const PROFILES: &str = "/etc/apparmor.d";
const LOADERS: [&str; 2] = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"];

/// How much of what a loader says is repeated.
const EXPLANATION: usize = 2000;

/// What AppArmor means for this program. Keys are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct AppArmorFindings {
    /// Whether it leaves the user namespaces of programs without a profile powerless.
    restricts: bool,
    /// The profile that this process runs under.
    profile: Option<String>,
}

impl AppArmorFindings {
    pub(super) fn examine(host: &Report) -> Self {
        let restricts = host.settings.iter().any(|setting| setting.name == SWITCH && setting.fix.is_some());
        let label = fs::read_to_string("/proc/self/attr/apparmor/current").ok();
        let label = label.map(|label| label.trim_end_matches(['\n', '\0']).to_owned());
        Self { restricts, profile: label.filter(|label| !label.is_empty() && label != "unconfined") }
    }

    /// For people; nothing where it restricts nothing.
    pub(super) fn line(&self) -> Option<String> {
        let what = "leaves user namespaces without powers to programs that have no profile";
        match (self.restricts, &self.profile) {
            (false, _) => None,
            (true, Some(profile)) => Some(inert_line(&format!("{what}; this one has {profile}"))),
            (true, None) => Some(format!("{what}; this one has none")),
        }
    }
}

/// What `--fix` came to.
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

/// A profile for one program, and where it goes.
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
            "nothing that --fix can change: AppArmor restricts no user namespaces here, or this program has a profile",
        ),
        Outcome::NeedsRoot => {
            render.note(&format!("only root can install it: sudo {program} doctor --fix"));
        }
        Outcome::NeedsConsent => render.note("nothing was changed; add --yes to install it"),
        Outcome::NotWanted => render.note("nothing was changed"),
        Outcome::Installed => {
            render.note(&format!("installed and loaded; see what it changed with: {program} doctor"));
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
            "{SWITCH} = 1: AppArmor leaves the user namespaces of programs that have no profile without powers.\n\
             This profile gives them back to {}, and to no other program:\n\n{}\n\
             It goes to {}, and apparmor_parser --replace loads it.\n",
            self.program.display(),
            lines.collect::<String>(),
            self.file.display(),
        );
        if let Some(place) = changeable(&self.program) {
            text.push_str(&format!(
                "Caution: {} does not belong to root alone. A program that can change it can use the profile too;\n\
                 install sandbar in a place of root's, such as {SHIPPED_FOR}, and run --fix there.\n",
                place.display()
            ));
        }
        if fs::read(&self.file).is_ok_and(|there| there != self.text.as_bytes()) {
            text.push_str(&format!("It replaces another {}.\n", self.file.display()));
        }
        inert(&text)
    }

    /// Puts it in place and loads it; one that cannot be loaded is taken away again.
    fn install(&self) -> Result<(), Failure> {
        let Some(loader) = LOADERS.iter().find(|loader| Path::new(loader).exists()) else {
            let failure = Failure::new("cannot load the profile: apparmor_parser is missing; nothing was changed");
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
        Err(Failure::new(format!("{loader} refuses the profile, and nothing was changed: {why}")))
    }
}

/// Writes a file that is there as a whole or not at all. The loader's directory takes names with a dot in front for no
/// profiles.
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

/// The profile for a program at this path. In one, some characters stand for others.
fn text_for(program: &Path) -> Result<String, Failure> {
    let refused = |why: &str| {
        let what = format!("cannot write a profile for {}: its path {why}", inert_line(&program.display().to_string()));
        Failure::new(what).next(format!("install sandbar as {SHIPPED_FOR}"))
    };
    let path = program.to_str().ok_or_else(|| refused("is not UTF-8"))?;
    let special = |c: char| c.is_control() || "\"\\*?[]{}^@,#".contains(c);
    if path.ends_with(" (deleted)") || path.contains(special) {
        return Err(refused("has characters that mean something else in a profile"));
    }
    Ok(PROFILE.replace(&format!("\"{SHIPPED_FOR}\""), &format!("\"{path}\"")))
}

/// The first part of a path that a user other than root can change.
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
    fn a_profile_names_the_program_and_nothing_that_stands_for_more() {
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
