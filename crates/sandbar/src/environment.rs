//! Where the planes meet: a run's time on machines. Sessions are chosen or made when an agent begins to work, equipped by its
//! capabilities, and ended, kept or handed back when the run leaves.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use bytes::BytesMut;
use sandbar_agent::{
    BoxError, Environment, Kit,
    environment::{Ending, Entering, KnownSecrets, Stay},
};
use sandbar_machine::{Lifetime, MachineError, takes_an_account};
use sandbar_sandbox::{Exec, Manifest, SandboxError, SandboxSession, SessionState, WorkspacePath};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use crate::{
    Gear, SandboxRunConfig, Snapshot, Workplace,
    choice::{Offers, Source, choose},
    joining,
    prompt::Prompt,
    sandbox_agent::Needs,
    secrets,
};

/// How much of a snapshot is read at a time.
const PIECE: usize = 256 << 10;

/// Machines for the agents of runs.
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
impl Environment for SandboxEnvironment {
    async fn open(&self, _run: &str, saved: Option<Value>) -> Result<Box<dyn Stay>, BoxError> {
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
        Ok(Box::new(SandboxStay { config, saved, own: BTreeMap::new(), unfinished: None, at: None }))
    }

    fn secrets(&self) -> Option<Arc<dyn KnownSecrets>> {
        secrets::of(&self.config)
    }
}

/// What a run that was left says about its sessions.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Saved {
    #[serde(default)]
    version: u32,
    /// By the agent's key.
    #[serde(default)]
    sessions: BTreeMap<String, SavedSession>,
}

impl Saved {
    const VERSION: u32 = 1;
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum SavedSession {
    /// It was alive when the run was left.
    Left(Box<SessionState>),
    /// It was removed when the run failed.
    Removed,
}

impl SavedSession {
    fn left(&self) -> Option<&SessionState> {
        match self {
            Self::Left(state) => Some(state),
            Self::Removed => None,
        }
    }
}

/// One run's time on machines.
struct SandboxStay {
    config: SandboxRunConfig,
    saved: Saved,
    /// The sessions this run made or came back to, by the agent's key: it has to end them.
    own: BTreeMap<String, SandboxSession>,
    /// One whose workspace is not whole yet.
    unfinished: Option<SandboxSession>,
    /// The session of the agent that works now.
    at: Option<SandboxSession>,
}

#[async_trait]
impl Stay for SandboxStay {
    async fn enter(&mut self, entering: Entering<'_>) -> Result<Kit, BoxError> {
        let Some(needs) = entering.agent.needs::<Needs>() else {
            self.at = None;
            return Ok(Kit::default());
        };
        needs.capabilities.check()?;
        let cwd = self.config.directory()?;
        let session = match self.own.get(entering.key) {
            Some(session) => session.clone(),
            None => self.begin(entering.key, needs).await?,
        };
        self.at = Some(session.clone());
        let acting = match &needs.run_as {
            Some(user) => session.user(user),
            None => session,
        };
        look_at(&acting, cwd.as_ref()).await?;
        let place = Workplace::new(acting, Arc::clone(entering.model)).cwd(cwd);
        let mut gears = Vec::new();
        for capability in needs.capabilities.iter() {
            gears.push(capability.equip(&place).await?);
        }
        Ok(kit(needs, &place, gears))
    }

    fn share(&self) -> Option<Arc<dyn Environment>> {
        let session = self.at.clone()?;
        let config = SandboxRunConfig { session: Some(session), ..self.config.clone() };
        Some(config.environment())
    }

    async fn leave(mut self: Box<Self>, ending: Ending) -> Result<Option<Value>, BoxError> {
        let mut saved = std::mem::take(&mut self.saved);
        let mut first = Ok(());
        if let Some(session) = self.unfinished.clone() {
            first = first.and(session.delete().await);
            self.unfinished = None;
        }
        if ending == Ending::Paused {
            for (key, session) in std::mem::take(&mut self.own) {
                saved.sessions.insert(key, SavedSession::Left(Box::new(session.state())));
                self.config.kept.put(session);
            }
            return to_come_back(saved);
        }
        let waiting = saved.sessions.iter_mut().filter(|(key, _)| !self.own.contains_key(*key));
        for (_, waiting) in waiting {
            let Some(state) = waiting.left() else { continue };
            if let Some(session) = self.config.kept.take(&state.session_id) {
                first = first.and(session.delete().await);
                *waiting = SavedSession::Removed;
            } else if ending == Ending::Finished {
                // Nobody will come back to it, and nobody here has it: it may live by itself.
                first = first.and(self.forget(state).await);
            }
        }
        // Each stays here until it is gone: whoever is dropped in the middle still knows what is left.
        while let Some((key, session)) = self.own.first_key_value().map(|(key, own)| (key.clone(), own.clone())) {
            first = first.and(session.delete().await);
            self.own.remove(&key);
            saved.sessions.insert(key, SavedSession::Removed);
        }
        first?;
        if ending == Ending::Failed { to_come_back(saved) } else { Ok(None) }
    }
}

/// What has to be saved; nothing if the caller's own session was all there was.
fn to_come_back(mut saved: Saved) -> Result<Option<Value>, BoxError> {
    if saved.sessions.is_empty() {
        return Ok(None);
    }
    saved.version = Saved::VERSION;
    Ok(Some(serde_json::to_value(saved)?))
}

impl SandboxStay {
    /// The session that an agent works in, from wherever the documented order says.
    async fn begin(&mut self, key: &str, needs: &Needs) -> Result<SandboxSession, SandboxError> {
        let offers = Offers {
            live: self.config.session.clone(),
            saved: self.saved.sessions.get(key).cloned(),
            given: self.config.session_state.clone().map(|state| SavedSession::Left(Box::new(state))),
            per_run: self.config.manifest.clone(),
            default: needs.manifest.clone(),
        };
        let session = match choose(offers) {
            Source::Live(session) => {
                session.start().await?;
                join(&session, needs).await?;
                before_stop(&session, needs);
                return Ok(session);
            }
            Source::RunState(SavedSession::Removed) => {
                let why = "its session was removed when the run failed; begin a new run";
                return Err(SandboxError::sandbox_config_invalid("the sandbox in the saved run", why));
            }
            Source::RunState(SavedSession::Left(state)) | Source::SessionState(SavedSession::Left(state)) => {
                match self.config.kept.take(&state.session_id) {
                    // Its capabilities have registered already.
                    Some(session) => return self.take_up(key, session).await,
                    None => self.find(*state, needs).await?,
                }
            }
            Source::SessionState(SavedSession::Removed) | Source::Empty => self.make(Manifest::new(), needs).await?,
            Source::PerRun(manifest) | Source::Default(manifest) => self.make(manifest, needs).await?,
        };
        before_stop(&session, needs);
        self.own.insert(key.to_owned(), session.clone());
        Ok(session)
    }

    /// Comes back to a session that was kept. Its machine may have died, or the runtime that it was made in.
    async fn take_up(&mut self, key: &str, session: SandboxSession) -> Result<SandboxSession, SandboxError> {
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
        let options = self.config.options(trusted);
        let id = state.session_id.clone();
        let found = SandboxSession::attach(self.client()?, state, options).await?;
        let session = found.ok_or_else(|| lost(&id))?;
        session.start().await?;
        Ok(session)
    }

    /// Removes the machine of a session that no agent of this run has come back to.
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
        let session = SandboxSession::open(self.client()?, self.config.options(manifest)).await?;
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

/// Puts a saved workspace in place.
async fn restore(session: &SandboxSession, path: &std::path::Path) -> Result<(), SandboxError> {
    let failed = |error: std::io::Error| {
        SandboxError::sandbox_config_invalid(format!("the snapshot {}", path.display()), error.to_string())
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let pieces = futures::stream::try_unfold(file, |mut file| async move {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read =
            file.read_buf(&mut piece).await.map_err(|error| MachineError::transport("read a snapshot", error))?;
        Ok((read > 0).then(|| (piece.freeze(), file)))
    });
    session.hydrate_workspace(Box::pin(pieces)).await
}

fn shape(manifest: &mut Manifest, needs: &Needs) -> Result<(), SandboxError> {
    for capability in needs.capabilities.iter() {
        capability.shape(manifest)?;
    }
    if let Some(user) = needs.run_as.as_ref().filter(|user| takes_an_account(user)) {
        let mut alone = Manifest::new();
        alone.add_user(user);
        alone.check().map_err(|error| {
            SandboxError::sandbox_config_invalid(format!("the user {user:?}"), "can be nobody's name").because(error)
        })?;
        manifest.add_user(user);
    }
    Ok(())
}

/// Adds what an agent's capabilities want to a session that runs already.
async fn join(session: &SandboxSession, needs: &Needs) -> Result<(), SandboxError> {
    let live = session.manifest();
    let mut wanted = (*live).clone();
    shape(&mut wanted, needs)?;
    wanted.check()?;
    match joining::additions(&live, &wanted)? {
        Some(addition) => session.add_entries(addition).await.map(drop),
        None => Ok(()),
    }
}

/// Lets capabilities do their last things before the session ends, whoever ends it.
fn before_stop(session: &SandboxSession, needs: &Needs) {
    for capability in needs.capabilities.iter() {
        let last = Arc::clone(capability);
        session.register_pre_stop_hook_of(capability, |session| async move { last.before_stop(&session).await });
    }
}

/// The directory where paths begin must be there, and the agent must be able to work in it.
async fn look_at(session: &SandboxSession, cwd: Option<&WorkspacePath>) -> Result<(), SandboxError> {
    let Some(cwd) = cwd else { return Ok(()) };
    let looked = session.exec(Exec::new(["true"]).cwd(cwd.as_str())).await.and_then(|looked| looked.check());
    looked.map(drop).map_err(|error| {
        let why = "is no directory of the workspace that the agent can work in";
        SandboxError::sandbox_config_invalid(format!("the directory {:?}", cwd.as_str()), why).because(error)
    })
}

fn kit(needs: &Needs, place: &Workplace, gears: Vec<Gear>) -> Kit {
    let mut kit = Kit::default();
    let mut words = Vec::new();
    for gear in gears {
        kit.tools.extend(gear.tools);
        kit.settings = kit.settings.overlaid(&gear.settings);
        kit.lenses.extend(gear.lenses);
        words.extend(gear.words);
    }
    let (base, place) = (needs.base.clone(), place.clone());
    kit.instructions = Some(Arc::new(move |own| {
        let (base, place, words) = (base.clone(), place.clone(), words.clone());
        Box::pin(async move {
            let mut capabilities = Vec::new();
            for make in &words {
                capabilities.extend(make().await?);
            }
            let manifest = place.session().manifest();
            Ok(Prompt { base: &base, own, capabilities, manifest: &manifest, cwd: place.directory() }.compose())
        })
    }));
    kit
}

/// A run that nobody waits for any more. Machines that die with their owner do so now; others are removed.
impl Drop for SandboxStay {
    fn drop(&mut self) {
        let own = std::mem::take(&mut self.own).into_values();
        let own: Vec<SandboxSession> = own.chain(self.unfinished.take()).collect();
        if own.is_empty() || self.config.machine.lifetime == Lifetime::WithOwner {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            for session in own {
                if let Err(error) = session.delete().await {
                    tracing::warn!(%error, "the session of a run that was given up could not be removed");
                }
            }
        });
    }
}
