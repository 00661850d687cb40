//! The environment of a run: it finds or creates a session when an agent begins to work, equips the agent with its
//! capabilities, and ends, retains or returns the sessions when the run leaves.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::BytesMut;
use sandbar_agent::{
    BoxError, Kit, RunEnvironment,
    environment::{Ending, Entering, EnvironmentSession, KnownSecrets},
};
use sandbar_machine::{Lifetime, MachineError, takes_an_account};
use sandbar_sandbox::{Exec, Manifest, SandboxError, SandboxSession, SessionState, WorkspacePath};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::{
    AgentSession, CapabilityKit, SandboxRunConfig, Snapshot,
    choice::{Offers, Source, choose},
    live_additions,
    prompt::Prompt,
    sandbox_agent::Needs,
    secrets,
};

/// Bytes of a snapshot that are read at a time.
const CHUNK: usize = 256 << 10;

/// Environment that gives the agents of a run sessions on machines.
#[derive(Debug)]
pub(crate) struct SandboxEnvironment {
    config: SandboxRunConfig,
}

impl SandboxEnvironment {
    pub(crate) fn new(config: SandboxRunConfig) -> Self {
        Self { config }
    }
}

#[async_trait]
impl RunEnvironment for SandboxEnvironment {
    async fn open(&self, _run: &str, saved: Option<Value>) -> Result<Box<dyn EnvironmentSession>, BoxError> {
        let saved = match saved {
            None => Saved::default(),
            Some(saved) => serde_json::from_value(saved).map_err(|error| {
                SandboxError::sandbox_config_invalid("the sandbox in the saved run", error.to_string())
            })?,
        };
        if saved.version > Saved::VERSION {
            let why = format!("is of form {}, and only {} is known", saved.version, Saved::VERSION);
            return Err(SandboxError::sandbox_config_invalid("the sandbox in the saved run", why).into());
        }
        let config = self.config.clone();
        Ok(Box::new(SandboxEnvironmentSession { config, saved, own: BTreeMap::new(), unfinished: None, current: None }))
    }

    fn secrets(&self) -> Option<Arc<dyn KnownSecrets>> {
        secrets::of(&self.config)
    }
}

/// Sessions of a run, in the saved form of the run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    #[serde(default)]
    version: u32,
    /// Sessions by the key of their agent.
    #[serde(default)]
    sessions: BTreeMap<String, SavedSession>,
}

impl Saved {
    const VERSION: u32 = 1;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedSession {
    /// The session was alive when the run was left.
    #[serde(rename = "left")]
    Live(Box<SessionState>),
    /// The session was removed when the run failed.
    Removed,
}

impl SavedSession {
    fn live(&self) -> Option<&SessionState> {
        match self {
            Self::Live(state) => Some(state),
            Self::Removed => None,
        }
    }
}

/// The sessions of one run.
struct SandboxEnvironmentSession {
    config: SandboxRunConfig,
    saved: Saved,
    /// Sessions that this run created or resumed, by the key of their agent. This run must end them.
    own: BTreeMap<String, SandboxSession>,
    /// Session whose workspace is still being filled from a snapshot.
    unfinished: Option<SandboxSession>,
    /// Session of the agent that works now.
    current: Option<SandboxSession>,
}

#[async_trait]
impl EnvironmentSession for SandboxEnvironmentSession {
    async fn enter(&mut self, entering: Entering<'_>) -> Result<Kit, BoxError> {
        let Some(needs) = entering.agent.needs::<Needs>() else {
            self.current = None;
            return Ok(Kit::default());
        };
        needs.capabilities.check()?;
        let cwd = self.config.directory()?;
        let session = match self.own.get(entering.key) {
            Some(session) => session.clone(),
            None => self.begin(entering.key, needs).await?,
        };
        self.current = Some(session.clone());
        let session = match &needs.run_as {
            Some(user) => session.user(user),
            None => session,
        };
        check_cwd(&session, cwd.as_ref()).await?;
        let agent_session = AgentSession::new(session, Arc::clone(entering.model)).cwd(cwd);
        let mut kits = Vec::new();
        for capability in needs.capabilities.iter() {
            kits.push(capability.equip(&agent_session).await?);
        }
        Ok(kit(needs, &agent_session, kits))
    }

    fn share(&self) -> Option<Arc<dyn RunEnvironment>> {
        let session = self.current.clone()?;
        let config = SandboxRunConfig { session: Some(session), ..self.config.clone() };
        Some(config.environment())
    }

    async fn leave(mut self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError> {
        let mut saved = std::mem::take(&mut self.saved);
        let mut result = Ok(());
        if let Some(session) = self.unfinished.clone() {
            result = result.and(session.delete().await);
            self.unfinished = None;
        }
        if ending == Ending::Paused {
            for (key, session) in std::mem::take(&mut self.own) {
                saved.sessions.insert(key, SavedSession::Live(Box::new(session.state())));
                self.config.retained.put(session);
            }
            return to_value(saved);
        }
        let not_resumed = saved.sessions.iter_mut().filter(|(key, _)| !self.own.contains_key(*key));
        for (_, saved_session) in not_resumed {
            let Some(state) = saved_session.live() else { continue };
            if let Some(session) = self.config.retained.take(&state.session_id) {
                result = result.and(session.delete().await);
                *saved_session = SavedSession::Removed;
            } else if ending == Ending::Finished {
                // No later run resumes this session, and no value of this process holds it. Its machine may be detached.
                result = result.and(self.forget(state).await);
            }
        }
        // A session stays in `own` until it is removed: if this future is dropped in the middle, `drop` removes the rest.
        while let Some((key, session)) = self.own.first_key_value().map(|(key, own)| (key.clone(), own.clone())) {
            result = result.and(session.delete().await);
            self.own.remove(&key);
            saved.sessions.insert(key, SavedSession::Removed);
        }
        result?;
        if ending == Ending::Failed { to_value(saved) } else { Ok(None) }
    }
}

/// Saved form of the sessions; `None` if the run used no session except the caller's.
fn to_value(mut saved: Saved) -> Result<Option<Value>, BoxError> {
    if saved.sessions.is_empty() {
        return Ok(None);
    }
    saved.version = Saved::VERSION;
    Ok(Some(serde_json::to_value(saved)?))
}

impl SandboxEnvironmentSession {
    /// Finds or creates the session that an agent works in, in the order that [`choose`] documents.
    async fn begin(&mut self, key: &str, needs: &Needs) -> Result<SandboxSession, SandboxError> {
        let offers = Offers {
            live: self.config.session.clone(),
            saved: self.saved.sessions.get(key).cloned(),
            given: self.config.session_state.clone().map(|state| SavedSession::Live(Box::new(state))),
            per_run: self.config.manifest.clone(),
            default: needs.manifest.clone(),
        };
        let session = match choose(offers) {
            Source::Live(session) => {
                session.start().await?;
                add_to_live(&session, needs).await?;
                register_before_stop(&session, needs);
                return Ok(session);
            }
            Source::RunState(SavedSession::Removed) => {
                let why = "its session was removed when the run failed; begin a new run";
                return Err(SandboxError::sandbox_config_invalid("the sandbox in the saved run", why));
            }
            Source::RunState(SavedSession::Live(state)) | Source::SessionState(SavedSession::Live(state)) => {
                match self.config.retained.take(&state.session_id) {
                    // The capabilities registered their hooks when this process created the session.
                    Some(session) => return self.resume(key, session).await,
                    None => self.find(*state, needs).await?,
                }
            }
            Source::SessionState(SavedSession::Removed) | Source::Empty => self.make(Manifest::new(), needs).await?,
            Source::PerRun(manifest) | Source::Default(manifest) => self.make(manifest, needs).await?,
        };
        register_before_stop(&session, needs);
        self.own.insert(key.to_owned(), session.clone());
        Ok(session)
    }

    /// Resumes a retained session. Its machine may be gone, also because the runtime that created it ended.
    async fn resume(&mut self, key: &str, session: SandboxSession) -> Result<SandboxSession, SandboxError> {
        self.own.insert(key.to_owned(), session.clone());
        if session.running().await? {
            return Ok(session);
        }
        self.own.remove(key);
        Err(lost(session.id()))
    }

    fn client(&self) -> Result<Arc<dyn sandbar_machine::SandboxClient>, SandboxError> {
        self.config.client.clone().ok_or_else(|| {
            let why = "there is neither a client to make machines with nor a live session; give the run one of them";
            SandboxError::sandbox_config_invalid("the sandbox of the run", why)
        })
    }

    async fn find(&self, state: SessionState, needs: &Needs) -> Result<SandboxSession, SandboxError> {
        let trusted = self.config.manifest.clone().or_else(|| needs.manifest.clone()).unwrap_or_default();
        let options = self.config.session_options(trusted);
        let id = state.session_id.clone();
        let found = SandboxSession::attach(self.client()?, state, options).await?;
        let session = found.ok_or_else(|| lost(&id))?;
        session.start().await?;
        Ok(session)
    }

    /// Removes the machine of a session that no agent of this run resumed.
    async fn forget(&self, state: &SessionState) -> Result<(), SandboxError> {
        match &self.config.client {
            Some(client) if client.id() == state.machine.client => match client.delete(&state.machine).await {
                Ok(()) | Err(MachineError::Gone) => Ok(()),
                Err(cause) => Err(SandboxError::workspace_stop_error(&state.session_id, cause.code()).because(cause)),
            },
            _ => Ok(()),
        }
    }

    async fn make(&mut self, mut manifest: Manifest, needs: &Needs) -> Result<SandboxSession, SandboxError> {
        shape(&mut manifest, needs)?;
        let session = SandboxSession::open(self.client()?, self.config.session_options(manifest)).await?;
        if let Some(Snapshot::Archive(path)) = &self.config.snapshot {
            self.unfinished = Some(session.clone());
            restore(&session, path).await?;
            self.unfinished = None;
        }
        Ok(session)
    }
}

fn lost(session_id: &str) -> SandboxError {
    let why = "its machine is gone. A session outlives its run only while the `SandboxRunConfig` that the run had lives, and \
               the runtime it ran in, or if its machine is detached";
    SandboxError::sandbox_config_invalid(format!("the saved session {session_id}"), why)
}

/// Fills the workspace of a session from a snapshot.
async fn restore(session: &SandboxSession, path: &std::path::Path) -> Result<(), SandboxError> {
    let failed = |error: std::io::Error| {
        SandboxError::sandbox_config_invalid(format!("the snapshot {}", path.display()), error.to_string())
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let chunks = futures::stream::try_unfold(file, |mut file| async move {
        let mut chunk = BytesMut::with_capacity(CHUNK);
        let read =
            file.read_buf(&mut chunk).await.map_err(|error| MachineError::transport("read a snapshot", error))?;
        Ok((read > 0).then(|| (chunk.freeze(), file)))
    });
    session.hydrate_workspace(Box::pin(chunks)).await
}

fn shape(manifest: &mut Manifest, needs: &Needs) -> Result<(), SandboxError> {
    for capability in needs.capabilities.iter() {
        capability.shape(manifest)?;
    }
    if let Some(user) = needs.run_as.as_ref().filter(|user| takes_an_account(user)) {
        let mut alone = Manifest::new();
        alone.add_user(user);
        alone.check().map_err(|error| {
            SandboxError::sandbox_config_invalid(format!("the user {user:?}"), "is not a valid user name")
                .because(error)
        })?;
        manifest.add_user(user);
    }
    Ok(())
}

/// Adds the entries that an agent's capabilities declare to a running session.
async fn add_to_live(session: &SandboxSession, needs: &Needs) -> Result<(), SandboxError> {
    let live = session.manifest();
    let mut wanted = (*live).clone();
    shape(&mut wanted, needs)?;
    wanted.check()?;
    match live_additions::additions(&live, &wanted)? {
        Some(addition) => session.add_entries(addition).await.map(drop),
        None => Ok(()),
    }
}

/// Registers [`Capability::before_stop`](crate::Capability::before_stop) of each capability with the session.
fn register_before_stop(session: &SandboxSession, needs: &Needs) {
    for capability in needs.capabilities.iter() {
        let hook = Arc::clone(capability);
        session.hooks().before_stop_of(capability, |session| async move { hook.before_stop(&session).await });
    }
}

/// Checks that the directory where relative paths begin exists, and that the agent can work in it.
async fn check_cwd(session: &SandboxSession, cwd: Option<&WorkspacePath>) -> Result<(), SandboxError> {
    let Some(cwd) = cwd else { return Ok(()) };
    let result = session.exec(Exec::new(["true"]).cwd(cwd.as_str())).await.and_then(|result| result.check());
    result.map(drop).map_err(|error| {
        let why = "is no directory of the workspace that the agent can work in";
        SandboxError::sandbox_config_invalid(format!("the directory {:?}", cwd.as_str()), why).because(error)
    })
}

/// Merges the kits of the capabilities into the kit of the agent.
fn kit(needs: &Needs, agent_session: &AgentSession, parts: Vec<CapabilityKit>) -> Kit {
    let mut kit = Kit::default();
    let mut instructions = Vec::new();
    for part in parts {
        kit.tools.extend(part.tools);
        kit.settings = kit.settings.overlaid(&part.settings);
        kit.input_transforms.extend(part.input_transforms);
        instructions.extend(part.instructions);
    }
    let (base, agent_session) = (needs.base.clone(), agent_session.clone());
    kit.instructions = Some(Arc::new(move |own| {
        let (base, agent_session, instructions) = (base.clone(), agent_session.clone(), instructions.clone());
        Box::pin(async move {
            let mut capabilities = Vec::new();
            for make in &instructions {
                capabilities.extend(make().await?);
            }
            let session = agent_session.session();
            let (mut manifest, root) = (session.manifest(), session.paths().root());
            // The root of the workspace on the machine can differ from the root in the manifest.
            if manifest.root != *root {
                Arc::make_mut(&mut manifest).root = root.clone();
            }
            Ok(Prompt { base: &base, own, capabilities, manifest: &manifest, cwd: agent_session.directory() }.compose())
        })
    }));
    kit
}

/// Cleans up if the future of the run was dropped: machines that are bound to their owner end by themselves, all others are
/// removed.
impl Drop for SandboxEnvironmentSession {
    fn drop(&mut self) {
        let own = std::mem::take(&mut self.own).into_values();
        let own: Vec<SandboxSession> = own.chain(self.unfinished.take()).collect();
        if own.is_empty() || self.config.options.machine.lifetime == Lifetime::WithOwner {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            for session in own {
                if let Err(error) = session.delete().await {
                    tracing::warn!(%error, "cannot remove the session of a run that was dropped");
                }
            }
        });
    }
}
