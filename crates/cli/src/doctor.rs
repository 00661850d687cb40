//! `sandbar doctor`: which isolation and limits this host supports, their cost, and how to enable what is missing.

mod apparmor;

use std::{
    collections::BTreeMap,
    fmt::Write,
    time::{Duration, Instant},
};

use sandbar::{
    Command, Cpus, Limits, Machine, MachineError, MachineSpec, Output, SandboxClient,
    client::{UnixLocal, registry::Diagnosis},
    doctor::{CgroupState, CgroupVersion, LandlockReport, LevelReport, Report, probe},
    machine::{Demand, Enforcement, LimitReport},
};
use sandbar_runs::apparmor::AppArmorFindings;
use serde::Serialize;

use crate::{
    args::DoctorArgs,
    failure::Failure,
    machine::client,
    render::{Render, Style, inert, inert_line},
};

/// Number of machines and commands that the measurement starts.
const MACHINES: usize = 10;
const COMMANDS: usize = 100;

/// The report. Its JSON keys are stable; new versions only add keys.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    user: u32,
    /// Default isolation of `sandbar exec`.
    demanded: Demand,
    /// Isolation that `sandbar exec` reaches; `null` if it refuses to run.
    reached: Option<Demand>,
    /// Enforcement of each limit at that level.
    limits: LimitReport,
    cost: Option<Cost>,
    fixes: Vec<String>,
    apparmor: AppArmorFindings,
    /// Diagnoses of the other providers.
    providers: BTreeMap<&'static str, Diagnosis>,
    #[serde(flatten)]
    host: Report,
}

/// Cost of the level that `exec` reaches, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Cost {
    create_p50_us: u64,
    create_p95_us: u64,
    exec_p50_us: u64,
    exec_p95_us: u64,
}

pub(crate) async fn run(args: &DoctorArgs, render: &Render) -> Result<u8, Failure> {
    if args.fix {
        return apparmor::fix(args, &probe(&UnixLocal::new()).await, render);
    }
    let findings = examine(&UnixLocal::new()).await?;
    let text = if args.json {
        let json = serde_json::to_string_pretty(&findings);
        json.map_err(|error| Failure::new("cannot write the report").because(error))? + "\n"
    } else {
        describe(&findings, render)
    };
    let healthy = findings.reached == Some(findings.demanded);
    let code = render.result(text.as_bytes())?;
    Ok(if code == 0 && !healthy { 1 } else { code })
}

async fn examine(client: &UnixLocal) -> Result<Findings, Failure> {
    let providers = providers().await;
    let host = probe(client).await;
    let demanded = Demand::default();
    let reached = host.levels.iter().find(|level| level.level == demanded && level.works).map(|level| level.level);
    let (limits, cost) = match reached {
        Some(_) => measure(client).await.map(|(limits, cost)| (limits, Some(cost)))?,
        None => (LimitReport::NONE, None),
    };
    let fixes = fixes(&host);
    let user = rustix::process::getuid().as_raw();
    let (version, apparmor) = (env!("CARGO_PKG_VERSION"), AppArmorFindings::examine(&host));
    Ok(Findings { version, user, demanded, reached, limits, cost, fixes, apparmor, providers, host })
}

/// Diagnoses every provider that this user has configured.
async fn providers() -> BTreeMap<&'static str, Diagnosis> {
    let registry = client::registry();
    let mut found = BTreeMap::new();
    for provider in registry.providers().filter(|provider| provider.is_set_up()) {
        if let Some(diagnosis) = provider.diagnose().await {
            found.insert(provider.name(), diagnosis);
        }
    }
    found
}

/// Lines that describe a provider.
fn describe_provider(diagnosis: &Diagnosis, render: &Render) -> Vec<String> {
    if diagnosis.reached {
        return diagnosis.lines.iter().map(|line| inert_line(line)).collect();
    }
    let none = render.paint(Style::Faint, "none");
    let address = match diagnosis.address.as_str() {
        "" => String::new(),
        address => format!(" at {address}"),
    };
    let reason = diagnosis.reason.as_deref().unwrap_or("no reason was given");
    let fix = diagnosis.fix.as_ref().map(|fix| format!("; {fix}")).unwrap_or_default();
    vec![format!("{none}{}", inert_line(&format!("{address}: {reason}{fix}")))]
}

/// Fixes for the levels that do not work. If a level has no known fix, the fixes of kernel settings are a guess.
fn fixes(host: &Report) -> Vec<String> {
    let broken: Vec<_> = host.levels.iter().filter(|level| !level.works).collect();
    let mut fixes: Vec<String> = Vec::new();
    for fix in broken.iter().filter_map(|level| level.fix.as_ref()) {
        if !fixes.contains(fix) {
            fixes.push(fix.clone());
        }
    }
    if fixes.is_empty() && !broken.is_empty() {
        fixes.extend(host.settings.iter().filter_map(|setting| setting.fix.clone()));
    }
    fixes
}

async fn measure(client: &UnixLocal) -> sandbar::machine::Result<(LimitReport, Cost)> {
    let mut creates = Vec::with_capacity(MACHINES);
    let mut execs = Vec::with_capacity(COMMANDS);
    for _ in 0..MACHINES {
        let begun = Instant::now();
        let machine = client.create(MachineSpec::default()).await?;
        creates.push(begun.elapsed());
        let timed = time_commands(machine.as_ref(), COMMANDS / MACHINES, &mut execs).await;
        machine.stop().await?;
        timed?;
    }
    let cost = Cost {
        create_p50_us: percentile(&mut creates, 50),
        create_p95_us: percentile(&mut creates, 95),
        exec_p50_us: percentile(&mut execs, 50),
        exec_p95_us: percentile(&mut execs, 95),
    };
    Ok((limits(client).await?, cost))
}

/// Enforcement of all limits, measured on a machine that sets all of them; limits that are not set are not enforced.
async fn limits(client: &UnixLocal) -> sandbar::machine::Result<LimitReport> {
    let all = Limits::default().memory(1 << 30).cpus(Cpus::thousandths(1000).ok()).disk(1 << 30);
    let machine = client.create(MachineSpec::default().limits(all)).await?;
    let held = machine.features().limits;
    machine.stop().await?;
    Ok(held)
}

async fn time_commands(machine: &dyn Machine, count: usize, times: &mut Vec<Duration>) -> sandbar::machine::Result<()> {
    for _ in 0..count {
        let begun = Instant::now();
        let mut process = machine.spawn(Command::new(["true"])).await?;
        loop {
            match process.output.recv().await {
                Some(Ok(Output::Exit(_))) => break,
                Some(Ok(Output::Stdout(_) | Output::Stderr(_) | Output::Omitted(_))) => {}
                Some(Err(error)) => return Err(error),
                None => return Err(MachineError::Gone),
            }
        }
        times.push(begun.elapsed());
    }
    Ok(())
}

fn percentile(times: &mut [Duration], percent: usize) -> u64 {
    times.sort_unstable();
    let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(at).map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// The report as text, in lines of `name  value`.
fn describe(findings: &Findings, render: &Render) -> String {
    let mut lines: Vec<(&str, String)> = Vec::new();
    let user = if findings.user == 0 { "root".to_owned() } else { format!("user {}", findings.user) };
    lines.push(("sandbar", format!("{} on {}, as {user}", findings.version, findings.host.kernel)));
    lines.push(("exec", verdict(findings, render)));
    if let Some(cost) = findings.cost {
        let create = format!("{} to make a sandbox (p95 {})", millis(cost.create_p50_us), millis(cost.create_p95_us));
        let exec = format!("{} to run a command in it (p95 {})", millis(cost.exec_p50_us), millis(cost.exec_p95_us));
        lines.push(("cost", format!("{create}, {exec}")));
    }
    for (at, level) in findings.host.levels.iter().enumerate() {
        lines.push((if at == 0 { "levels" } else { "" }, describe_level(level, render)));
    }
    for (at, line) in describe_landlock(&findings.host.landlock).into_iter().enumerate() {
        lines.push((if at == 0 { "landlock" } else { "" }, line));
    }
    let limits = findings.reached.map(|_| by_strength(&findings.limits)).unwrap_or_default();
    for (at, (strength, names)) in limits.into_iter().enumerate() {
        let (word, style) = match strength {
            Enforcement::Hard => ("hard", Style::Good),
            Enforcement::Soft => ("soft", Style::Doubtful),
            Enforcement::Unavailable => ("unavailable", Style::Faint),
        };
        let word = render.paint(style, &format!("{word:<12}"));
        lines.push((if at == 0 { "limits" } else { "" }, format!("{word}{}", names.join(", "))));
    }
    for (at, setting) in findings.host.settings.iter().enumerate() {
        lines.push((
            if at == 0 { "settings" } else { "" },
            inert_line(&format!("{} = {}", setting.name, setting.value)),
        ));
    }
    lines.extend(apparmor::line(&findings.apparmor).map(|line| ("apparmor", line)));
    lines.push(("cgroups", cgroups(&findings.host.cgroups)));
    for (name, diagnosis) in &findings.providers {
        for (at, line) in describe_provider(diagnosis, render).into_iter().enumerate() {
            lines.push((if at == 0 { name } else { "" }, line));
        }
    }
    for (at, fix) in findings.fixes.iter().enumerate() {
        lines.push((if at == 0 { "to fix" } else { "" }, inert(fix)));
    }
    lines.into_iter().fold(String::new(), |mut text, (name, value)| {
        let _memory_is_enough = writeln!(text, "{} {value}", render.paint(Style::Strong, &format!("{name:<9}")));
        text
    })
}

fn verdict(findings: &Findings, render: &Render) -> String {
    let demanded = findings.demanded;
    if findings.reached.is_some() {
        return render.paint(Style::Good, &format!("reaches {demanded} isolation"));
    }
    let refused = render.paint(Style::Bad, &format!("refuses to run: {demanded} isolation cannot be reached"));
    match findings.host.best().filter(|level| *level != Demand::None) {
        Some(level) => format!("{refused}; `--isolation {level}` is weaker, and would work"),
        None => refused,
    }
}

fn describe_level(report: &LevelReport, render: &Render) -> String {
    let name = format!("{:<9}", report.level.name());
    if report.works {
        let layers = if report.layers.is_empty() { "no walls at all".to_owned() } else { report.layers.join(", ") };
        return format!("{name} {}  {layers}", render.paint(Style::Good, "works  "));
    }
    let missing = inert(report.missing.as_deref().unwrap_or("no reason was given"));
    format!("{name} {}  {missing}", render.paint(Style::Bad, "missing"))
}

/// Landlock version, and what it lacks compared with a newer one.
fn describe_landlock(report: &LandlockReport) -> Vec<String> {
    let version = report.version.map_or("none".to_owned(), |version| format!("version {version}"));
    if report.landlock == "works" {
        return vec![version];
    }
    let meanings = [("full", &report.full), ("containers", &report.containers), ("landlock", &report.landlock)];
    let meanings = meanings.map(|(what, meaning)| format!("{what}: {meaning}"));
    [version + ", which means for"].into_iter().chain(meanings).collect()
}

/// Names of the limits by enforcement, strongest first; empty groups are left out.
fn by_strength(limits: &LimitReport) -> Vec<(Enforcement, Vec<&'static str>)> {
    let all = [
        ("processes", limits.pids),
        ("open files", limits.open_files),
        ("core dumps", limits.core),
        ("/tmp size", limits.tmp),
        ("time", limits.time),
        ("memory", limits.memory),
        ("cpu", limits.cpu),
        ("disk", limits.disk),
    ];
    let named = |wanted| all.iter().filter(|(_, strength)| *strength == wanted).map(|(name, _)| *name).collect();
    [Enforcement::Hard, Enforcement::Soft, Enforcement::Unavailable]
        .into_iter()
        .map(|strength| (strength, named(strength)))
        .filter(|(_, names): &(_, Vec<&str>)| !names.is_empty())
        .collect()
}

/// The control groups of the host in one line.
fn cgroups(found: &CgroupState) -> String {
    let version = match found.version {
        CgroupVersion::V2 => "v2",
        CgroupVersion::V1 => "v1",
        CgroupVersion::Hybrid => "v1 and v2 (hybrid)",
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

fn millis(micros: u64) -> String {
    format!("{}.{:02} ms", micros / 1000, micros % 1000 / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let mut times: Vec<Duration> = (1..=100).rev().map(Duration::from_micros).collect();
        assert_eq!((percentile(&mut times, 50), percentile(&mut times, 95)), (51, 96));
        assert_eq!(percentile(&mut [], 50), 0);
        assert_eq!(percentile(&mut [Duration::from_micros(7)], 95), 7);
        assert_eq!((millis(1234), millis(56)), ("1.23 ms".to_owned(), "0.05 ms".to_owned()));
    }

    #[test]
    fn limits_are_grouped_by_enforcement() {
        let mut limits = LimitReport::NONE;
        (limits.pids, limits.memory) = (Enforcement::Hard, Enforcement::Soft);
        let groups = by_strength(&limits);
        assert_eq!(groups[0], (Enforcement::Hard, vec!["processes"]));
        assert_eq!(groups[1], (Enforcement::Soft, vec!["memory"]));
        assert_eq!(groups[2].1.len(), 6);
    }
}
