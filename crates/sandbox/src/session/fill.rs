//! Fills a workspace: completely, or the session does not start; and again when a caller asks for it.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use sandbar_machine::{MachineError, Target};
use serde_json::json;
use tracing::Instrument;

use super::{
    Phase, SandboxSession,
    teardown::{EndMode, end},
    within,
};
use crate::{
    Entry, Manifest, Materialised, Op, Result, SandboxError, WorkspacePath,
    audit::Span,
    manifest::{check_sources, roots, wanted},
    materialise::Materialiser,
};

/// Which entries become files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All entries.
    All,
    /// Only entries that are not saved with the workspace.
    EphemeralOnly,
}

impl SandboxSession {
    /// Fills the workspace. Starting a started session does nothing. A session that cannot start, or whose start is
    /// dropped, is deleted: there are no half-started sessions.
    ///
    /// # Errors
    /// The first error; `session_closed` if the session was closed meanwhile.
    pub async fn start(&self) -> Result<Materialised> {
        let _one_at_a_time = self.shared.transition.lock().await;
        self.shared.live()?;
        if self.shared.phase() == Phase::Started {
            return Ok(Materialised::default());
        }
        let mut guard = StartGuard(Some(self.clone()));
        let root = self.shared.paths.root().to_string();
        let span = self.shared.begin(Op::Start, json!({"workspace_root": root}));
        let mut closing = self.shared.closing.subscribe();
        let started = tokio::select! {
            started = fill(self, &span) => started,
            _closing = closing.wait_for(|closing| *closing) => Err(SandboxError::session_closed(self.id())),
        };
        span.finish(&started, json!({}));
        guard.0 = None;
        match started {
            Ok(arrived) => {
                self.shared.set_phase(Phase::Started);
                Ok(arrived)
            }
            Err(error) => {
                // The caller gets the first error; deleting fails only if the machine is already gone.
                let _the_first_error_counts = end(self, EndMode::Delete).await;
                Err(error)
            }
        }
    }

    /// Creates the manifest's entries again.
    ///
    /// # Errors
    /// The first error; entries that were created before it stay.
    pub async fn apply_manifest(&self, scope: Scope) -> Result<Materialised> {
        self.shared.live()?;
        materialise(self, scope, None).await
    }

    /// Adds entries to a running session and creates them. Only entries can be added, and no mounts: everything else
    /// was fixed when the machine was created.
    ///
    /// # Errors
    /// `sandbox_config_invalid` if the addition contains more than entries, the faults of the entries, or the first
    /// error while they are created.
    pub async fn add_entries(&self, addition: Manifest) -> Result<Materialised> {
        let _one_at_a_time = self.shared.transition.lock().await;
        self.shared.live()?;
        let refuse =
            |what: &str| Err(SandboxError::sandbox_config_invalid(what, "cannot be added to a running session"));
        if !addition.environment.is_empty() || !addition.users.is_empty() || !addition.groups.is_empty() {
            return refuse("environment, users and groups");
        }
        if !addition.extra_path_grants.is_empty() || !addition.mounts()?.is_empty() {
            return refuse("mounts and grants");
        }
        addition.check()?;
        check_sources(&addition)?;
        let merged = self.manifest().as_ref().clone().merge(addition.clone());
        merged.check()?;
        if wanted(&merged)? != wanted(&self.manifest())? {
            return refuse("groups that entries bring");
        }
        let arrived = make(self, &addition, addition.flatten(), None).await?;
        *self.shared.manifest.write() = Arc::new(merged);
        Ok(arrived)
    }
}

async fn fill(session: &SandboxSession, span: &Span) -> Result<Materialised> {
    let root = Target::from(session.shared.paths.root());
    let made = within(session.shared.limits.operation, Op::Start, "the root", session.shared.machine.make_dir(&root));
    made.await?.map_err(|cause| no_root(session, cause))?;
    check_accounts(session).await?;
    materialise(session, Scope::All, Some(span)).await
}

fn no_root(session: &SandboxSession, cause: MachineError) -> SandboxError {
    let workspace = session.machine().features().workspace.clone();
    let reason = format!("cannot create the manifest's root; the workspace of this machine is {workspace}");
    SandboxError::workspace_start_error(session.shared.paths.root().to_string(), reason).because(cause)
}

/// Checks that every user of the manifest exists: the machine was asked to create them.
async fn check_accounts(session: &SandboxSession) -> Result<()> {
    let accounts = wanted(&session.manifest())?;
    let Some(first) = accounts.more_than_one() else { return Ok(()) };
    if !session.machine().features().users {
        let reason = "this machine has one user only; remove users and groups from the manifest and its entries";
        return Err(SandboxError::account_unavailable(first, reason));
    }
    let members = accounts.groups.iter().flat_map(|group| &group.members);
    let users: BTreeSet<&String> = accounts.users.iter().chain(members).collect();
    for user in users {
        let look = Target::from(session.shared.paths.root()).user(user);
        let known =
            within(session.shared.limits.operation, Op::Start, "an account", session.shared.machine.stat(&look));
        known
            .await?
            .map_err(|cause| SandboxError::account_unavailable(user, "the machine has no such user").because(cause))?;
    }
    Ok(())
}

async fn materialise(session: &SandboxSession, scope: Scope, parent: Option<&Span>) -> Result<Materialised> {
    let manifest = session.manifest();
    let mut entries = manifest.flatten();
    if scope == Scope::EphemeralOnly {
        let ephemeral: HashSet<WorkspacePath> = manifest.ephemeral_paths().into_iter().collect();
        entries.retain(|(path, _)| path.and_above().any(|above| ephemeral.contains(&above)));
    }
    make(session, &manifest, entries, parent).await
}

async fn make(
    session: &SandboxSession,
    manifest: &Manifest,
    entries: Vec<(WorkspacePath, &Entry)>,
    parent: Option<&Span>,
) -> Result<Materialised> {
    let work = Materialiser {
        machine: &*session.shared.machine,
        fetch: &session.shared.fetch,
        root: session.shared.paths.root(),
        user: session.user.as_deref(),
        roots: roots(manifest)?,
        secrets: &session.shared.secrets,
        public_only: !manifest.may_use_private_addresses(),
        proxies: &session.shared.proxies,
        limits: &session.shared.limits,
        progress: session.shared.progress.clone(),
    };
    let data = json!({"entries": entries.len()});
    let span = match parent {
        Some(parent) => parent.child(Op::Materialize, data),
        None => session.shared.begin(Op::Materialize, data),
    };
    let arrived = within(session.shared.limits.transfer, Op::Materialize, "the manifest", work.run(entries));
    let arrived = arrived.instrument(span.traced().clone()).await.and_then(|arrived| arrived);
    let data = arrived
        .as_ref()
        .map_or(json!({}), |arrived| json!({"files": arrived.receipts.len(), "left_out": arrived.left_out.len()}));
    span.finish(&arrived, data);
    arrived
}

/// Guards a start in progress: if it is dropped with its session, it deletes the machine in the background.
struct StartGuard(Option<SandboxSession>);

impl Drop for StartGuard {
    fn drop(&mut self) {
        let (Some(session), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else { return };
        session.shared.set_phase(Phase::Closed);
        runtime.spawn(async move {
            let (client, handle) = (&session.shared.client, session.shared.machine.handle());
            if let Err(error) = client.delete(&handle).await {
                tracing::warn!(%error, "cannot remove the machine of a cancelled start");
            }
        });
    }
}
