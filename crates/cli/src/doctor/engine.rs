//! The part of the report about a container engine and the host's own control groups.

use std::{error::Error, time::Duration};

use sandbar::{
    MachineError,
    client::docker::{Engine, EngineReport, Unreachable},
    doctor::{CgroupState, CgroupVersion},
};
use serde::Serialize;

use crate::{
    failure::Failure,
    render::{Render, Style, inert_line},
};

/// How long an engine may take to say what it is.
const ANSWER: Duration = Duration::from_secs(10);

/// What is known of the engine that `docker:IMAGE` would use. Keys are only ever added.
#[derive(Debug, Serialize)]
pub(super) struct EngineFindings {
    /// Whether it answers.
    reached: bool,
    /// Why not.
    reason: Option<String>,
    /// What to do about it.
    fix: Option<String>,
    #[serde(flatten)]
    report: EngineReport,
}

/// Asks the engine that this user's variables name.
pub(super) async fn examine() -> EngineFindings {
    let engine = match Engine::from_env() {
        Ok(engine) => engine.patience(ANSWER),
        Err(error) => return absent("unknown".to_owned(), error),
    };
    match engine.describe().await {
        Ok(report) => EngineFindings { reached: true, reason: None, fix: None, report },
        Err(error) => absent(engine.to_string(), error),
    }
}

fn absent(address: String, error: MachineError) -> EngineFindings {
    let unreachable = error.source().and_then(|cause| cause.downcast_ref::<Unreachable>());
    let known = unreachable.map(|unreachable| (unreachable.reason.to_owned(), Some(unreachable.fix.clone())));
    let (reason, fix) =
        known.unwrap_or_else(|| (Failure::from(error).without_machine().without_next().to_string(), None));
    let report = EngineReport { address, ..EngineReport::default() };
    EngineFindings { reached: false, reason: Some(reason), fix, report }
}

impl EngineFindings {
    /// For people, a line each.
    pub(super) fn lines(&self, render: &Render) -> Vec<String> {
        let report = &self.report;
        if let Some(reason) = &self.reason {
            let none = render.paint(Style::Faint, "none");
            let fix = self.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
            return vec![format!(
                "{none} at {}: {}",
                inert_line(&report.address),
                inert_line(&format!("{reason}{fix}"))
            )];
        }
        let (whose, style) = if report.rootless { ("rootless", Style::Good) } else { ("as root", Style::Doubtful) };
        let mut lines = vec![format!(
            "Docker {} (API {}), {}, at {}",
            inert_line(&report.version),
            inert_line(&report.api_version),
            render.paint(style, whose),
            inert_line(&report.address)
        )];
        let fits = if report.platform_fits { "the guest runs in them" } else { "the guest does not run in them" };
        let style = if report.platform_fits { Style::Good } else { Style::Bad };
        lines.push(format!("images for {}: {}", inert_line(&report.platform), render.paint(style, fits)));
        let runtimes = report
            .runtimes
            .iter()
            .map(|name| if *name == report.default_runtime { format!("{name} (default)") } else { name.clone() });
        let runtimes: Vec<String> = runtimes.collect();
        let security = if report.security.is_empty() { "nothing".to_owned() } else { report.security.join(", ") };
        lines.push(inert_line(&format!("runtimes {}; confined by {security}", runtimes.join(", "))));
        let EngineReport { cgroup_version, cgroup_driver, storage, unlimited, .. } = report;
        let mut limits = format!("cgroup v{cgroup_version} by {cgroup_driver}, storage {storage}");
        if !unlimited.is_empty() {
            limits.push_str(&format!("; cannot limit {}", unlimited.join(", ")));
        }
        lines.push(inert_line(&limits));
        lines
    }
}

/// The host's control groups in a line.
pub(super) fn cgroups(found: &CgroupState) -> String {
    let version = match found.version {
        CgroupVersion::V2 => "v2",
        CgroupVersion::V1 => "v1",
        CgroupVersion::Hybrid => "v1 with v2 beside it",
        CgroupVersion::None => return "none to be seen".to_owned(),
    };
    let list = |usable: bool, word: &str| {
        let names = found.controllers.iter().filter(|one| one.usable == usable).map(|one| one.name.as_str());
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| format!("; {word} {}", names.join(", ")))
    };
    let parts = [list(true, "this user can limit"), list(false, "not for this user:")];
    parts.into_iter().flatten().fold(version.to_owned(), |line, part| line + &part)
}
