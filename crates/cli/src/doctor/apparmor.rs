//! `doctor --fix`: shows an AppArmor profile that lets this program use user namespaces, and installs it after asking.

use sandbar::doctor::Report;
use sandbar_runs::apparmor::{AppArmorFindings, AppArmorProfile, SWITCH};
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

/// Line of the report; `None` without restrictions.
pub(super) fn line(found: &AppArmorFindings) -> Option<String> {
    let what = "gives programs without a profile user namespaces without capabilities";
    match (found.restricts, &found.profile) {
        (false, _) => None,
        (true, Some(profile)) => Some(inert_line(&format!("{what}; sandbar has the profile {profile}"))),
        (true, None) => Some(format!("{what}; sandbar has no profile")),
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

/// Shows the profile, and installs it after asking.
pub(super) fn fix(args: &DoctorArgs, host: &Report, render: &Render) -> Result<u8, Failure> {
    if !AppArmorFindings::examine(host).needs_profile() {
        return tell(args, Outcome::NothingToFix, None, render);
    }
    let profile = AppArmorProfile::for_this_program(PROFILE, SHIPPED_FOR)?;
    if !args.json {
        render.result(describe(&profile).as_bytes())?;
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

fn tell(
    args: &DoctorArgs,
    outcome: Outcome,
    profile: Option<&AppArmorProfile>,
    render: &Render,
) -> Result<u8, Failure> {
    if args.json {
        let document = serde_json::json!({
            "status": outcome,
            "program": profile.map(|profile| profile.program().display().to_string()),
            "file": profile.map(|profile| profile.file().display().to_string()),
            "profile": profile.map(|profile| profile.text()),
        });
        return Ok(render.result(format!("{document}\n").as_bytes())?.max(outcome.code()));
    }
    let program = profile.map(|profile| profile.program().display().to_string()).unwrap_or_default();
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

fn describe(profile: &AppArmorProfile) -> String {
    let lines = profile.text().lines().map(|line| if line.is_empty() { "\n".into() } else { format!("    {line}\n") });
    let mut text = format!(
        "{SWITCH} = 1: AppArmor gives programs without a profile user namespaces without capabilities.\n\
             This profile lifts the restriction for {} only:\n\n{}\n\
             It is written to {}, and loaded by apparmor_parser --replace.\n",
        profile.program().display(),
        lines.collect::<String>(),
        profile.file().display(),
    );
    if let Some(place) = profile.changeable() {
        text.push_str(&format!(
            "Caution: users other than root can change {}. A program that replaces sandbar can use the profile too;\n\
                 install sandbar in a directory of root, such as {SHIPPED_FOR}, and run --fix there.\n",
            place.display()
        ));
    }
    if profile.replaces_another() {
        text.push_str(&format!("It replaces an existing {}.\n", profile.file().display()));
    }
    inert(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_names_only_the_program() {
        let text = AppArmorProfile::new("/opt/my tools/sandbar".into(), PROFILE, SHIPPED_FOR).expect("a profile");
        let text = text.text();
        assert!(text.contains("profile sandbar \"/opt/my tools/sandbar\" flags=(unconfined) {\n  userns,\n"), "{text}");
        assert!(!text.contains(&format!("\"{SHIPPED_FOR}\"")), "{text}");
        for path in
            ["/home/*/sandbar", "/opt/{a,b}/sandbar", "/opt/a\"b", "/opt/a\nb", "/tmp/sandbar (deleted)", "/@{x}"]
        {
            assert!(AppArmorProfile::new(path.into(), PROFILE, SHIPPED_FOR).is_err(), "{path}");
        }
    }
}
