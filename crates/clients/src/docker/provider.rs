//! The registry entry of the Docker client. Its engine is the one that `DOCKER_HOST` names.

use std::{error::Error as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use sandbar_machine::{MachineError, MachineHandle, Result, SandboxClient, Supports};
use serde_json::json;

use super::{Docker, DockerLeftover, Engine, EngineReport, Progress, client};
use crate::registry::{
    Argument, ClientContext, Diagnosis, Fate, Leftover, Leftovers, LeftoversFound, Provider, Scope, SessionRecords,
    Unreachable,
};

/// How long an engine may take to describe itself.
const ANSWER: Duration = Duration::from_secs(10);

/// Containers of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DockerProvider;

#[async_trait]
impl Provider for DockerProvider {
    fn name(&self) -> &'static str {
        client::ID
    }

    fn summary(&self) -> &'static str {
        "a container of this image"
    }

    fn argument(&self) -> Argument {
        Argument::Required { name: "IMAGE", example: "python:3.12-slim" }
    }

    fn supports(&self) -> &'static Supports {
        &client::SUPPORTS
    }

    fn client(&self, argument: Option<&str>, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        let Some(image) = argument else { return self.finder(context) };
        let mut client = Docker::image(image).engine(Engine::from_env()?);
        if let Some(sessions) = &context.sessions {
            client = client.register(sessions.id()?);
        }
        if let Some(listener) = context.progress.clone() {
            client = client.on_progress(move |progress| listener(&line(progress)));
        }
        Ok(Arc::new(client))
    }

    fn finder(&self, _context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        // Finding an existing container does not need an image.
        Ok(Arc::new(Docker::image("none").engine(Engine::from_env()?)))
    }

    async fn diagnose(&self) -> Option<Diagnosis> {
        let engine = match Engine::from_env() {
            Ok(engine) => engine.patience(ANSWER),
            Err(error) => return Some(absent("unknown".to_owned(), &error)),
        };
        Some(match engine.describe().await {
            Ok(report) => Diagnosis {
                address: report.address.clone(),
                reached: true,
                lines: lines(&report),
                details: json!(report),
                ..Diagnosis::default()
            },
            Err(error) => absent(engine.to_string(), &error),
        })
    }

    fn leftovers(&self) -> Option<&dyn Leftovers> {
        Some(self)
    }
}

/// The progress of an image, in one line.
fn line(Progress { layer, status, bytes }: &Progress) -> String {
    let percent = match bytes {
        Some((so_far, all)) if *all > 0 => format!(" {}%", so_far.saturating_mul(100) / all),
        _ => String::new(),
    };
    format!("image: {layer} {status}{percent}")
}

fn absent(address: String, error: &MachineError) -> Diagnosis {
    let details = json!(EngineReport { address: address.clone(), ..EngineReport::default() });
    let unreachable = error.source().and_then(|cause| cause.downcast_ref::<Unreachable>());
    let (reason, fix) = match unreachable {
        Some(unreachable) => (unreachable.reason.clone(), Some(unreachable.fix.clone())),
        None => (error.with_causes(), None),
    };
    Diagnosis { address, reason: Some(reason), fix, details, ..Diagnosis::default() }
}

fn lines(report: &EngineReport) -> Vec<String> {
    let EngineReport { version, api_version, address, platform, runtimes, default_runtime, .. } = report;
    let owner = if report.rootless { "rootless" } else { "as root" };
    let fits = if report.platform_fits { "the guest runs in them" } else { "the guest does not run in them" };
    let runtimes = runtimes.iter().map(|name| match name == default_runtime {
        true => format!("{name} (default)"),
        false => name.clone(),
    });
    let runtimes: Vec<String> = runtimes.collect();
    let security = if report.security.is_empty() { "nothing".to_owned() } else { report.security.join(", ") };
    let EngineReport { cgroup_version, cgroup_driver, storage, unlimited, .. } = report;
    let unlimited = match unlimited.is_empty() {
        true => String::new(),
        false => format!("; cannot limit {}", unlimited.join(", ")),
    };
    vec![
        format!("Docker {version} (API {api_version}), {owner}, at {address}"),
        format!("images for {platform}: {fits}"),
        format!("runtimes {}; confined by {security}", runtimes.join(", ")),
        format!("cgroup v{cgroup_version} by {cgroup_driver}, storage {storage}{unlimited}"),
    ]
}

#[async_trait]
impl Leftovers for DockerProvider {
    async fn find(&self, scope: Scope<'_>) -> Result<LeftoversFound> {
        let engine = Engine::from_env()?;
        let super::Leftovers { mut dead, mut kept } = engine.leftovers().await?;
        let mut found = LeftoversFound { address: Some(engine.to_string()), ..LeftoversFound::default() };
        if matches!(scope, Scope::Sessions(_)) {
            dead.clear();
        }
        match scope.sessions().map_or(Ok(Vec::new()), |sessions| unclaimed(&kept, sessions)) {
            Err(ClaimError::NoId(error)) => found.failures.push(error),
            Err(ClaimError::Records(why)) => {
                found.notes.push(format!("{why}; containers without a session were left as they are"));
            }
            Ok(names) => {
                let (lost, others) = kept.into_iter().partition::<Vec<_>, _>(|one| names.contains(&one.name));
                kept = others;
                dead.extend(lost.into_iter().map(|one| one.unclaimed("no session has it")));
            }
        }
        let kept = kept.into_iter().map(|one| one.leftover(Fate::Keep));
        found.things = kept.chain(dead.into_iter().map(|one| one.leftover(Fate::Remove))).collect();
        Ok(found)
    }

    async fn remove(&self, leftover: &Leftover) -> Result<()> {
        Engine::from_env()?.remove_leftover(&DockerLeftover::read(leftover)?).await
    }
}

/// Why the containers without a session cannot be determined.
enum ClaimError {
    /// The session list has lost its id.
    NoId(MachineError),
    /// The session records cannot be read.
    Records(String),
}

/// Names of detached containers that no session has: their creators were killed before they recorded them.
fn unclaimed(kept: &[DockerLeftover], sessions: &dyn SessionRecords) -> Result<Vec<String>, ClaimError> {
    if kept.iter().all(|one| one.claim.is_none()) {
        return Ok(Vec::new());
    }
    let list = sessions.list().id().map_err(ClaimError::NoId)?;
    let is_listed = |one: &&DockerLeftover| one.claim.as_ref().is_some_and(|claim| claim.register == list);
    let listed: Vec<&DockerLeftover> = kept.iter().filter(is_listed).collect();
    if listed.is_empty() {
        return Ok(Vec::new());
    }
    // Their creators are dead: a container that is in no record now will never be in one.
    let seal = |handle: &MachineHandle| handle.state.get("seal").and_then(|seal| seal.as_str()).map(ToOwned::to_owned);
    let known: Vec<String> = sessions.handles().map_err(ClaimError::Records)?.iter().filter_map(seal).collect();
    let is_known = |one: &&DockerLeftover| one.claim.as_ref().is_some_and(|claim| known.contains(&claim.seal));
    Ok(listed.into_iter().filter(|one| !is_known(one)).map(|one| one.name.clone()).collect())
}
