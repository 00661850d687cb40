//! `sandbar session`: sandboxes that stay, found again by whatever process of the same user asks for them.

mod attach;
mod blame;
mod clients;
mod copy;
mod create;
mod end;
mod files;
mod list;
mod merge;
mod orphans;
mod ports;
mod processes;
mod removal;
mod run;
mod stage;

use std::{
    env,
    fs::{self, DirBuilder, File},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use sandbar::{SandboxClient, SandboxSession, SessionOptions, SessionState, SessionStore, client::UnixLocal};
use tokio::time::{Instant, sleep};

use self::clients::Clients;
pub(crate) use self::orphans::{Machines, Orphans};
use crate::{
    args::{SandboxArg, SessionTask},
    client,
    failure::Failure,
    git::Guard,
    render::Render,
};

/// How long those may take who look for machines without a session.
const SWEEP: Duration = Duration::from_secs(10);

pub(crate) async fn run(task: SessionTask, render: &Render) -> Result<u8, Failure> {
    let home = Home::open()?;
    match task {
        SessionTask::Create(args) => create::run(*args, &home, render).await,
        SessionTask::Ls(args) => match &args.place {
            None => list::sessions(&args, &home, render).await,
            Some(place) => list::files(&args, place, &home, render).await,
        },
        SessionTask::Exec(args) => run::exec(*args, &home, render).await,
        SessionTask::Attach(args) => attach::run(&args, &home, render).await,
        SessionTask::Ps(args) => processes::list(&args, &home, render).await,
        SessionTask::Kill(args) => processes::kill(&args, &home, render).await,
        SessionTask::Shell(args) => run::shell(args, &home, render).await,
        SessionTask::Read(args) => files::read(&args.file, &home).await,
        SessionTask::Write(args) => files::write(&args.file, &home).await,
        SessionTask::Cp(args) => copy::run(args, &home, render).await,
        SessionTask::Ports(args) => ports::run(&args, &home, render).await,
        SessionTask::Stop(args) => end::stop(&args, &home, render).await,
        SessionTask::Rm(args) => end::remove(&args, &home, render).await,
    }
}

/// Where this user's sessions and their machines are kept.
struct Home {
    directory: PathBuf,
    store: SessionStore,
    client: Arc<Clients>,
}

impl Home {
    fn open() -> Result<Self, Failure> {
        let directory = state_directory()?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| {
            let what = format!("cannot keep sessions in {}", directory.display());
            Failure::new(what).because(error).next("set XDG_STATE_HOME to a directory of your own")
        })?;
        let client = UnixLocal::new().state_dir(directory.join("machines"));
        let client = Arc::new(Clients::new(client));
        Ok(Self { store: SessionStore::open(directory.join("sessions"))?, client, directory })
    }

    /// Who makes the machine of a new session.
    fn maker(&self, sandbox: &SandboxArg, render: &Render) -> Result<Arc<dyn SandboxClient>, Failure> {
        match sandbox {
            SandboxArg::Local => Ok(self.client.clone()),
            SandboxArg::Docker(image) => Ok(Arc::new(client::containers(image, render)?.register(self.register()?))),
        }
    }

    /// What tells this list of sessions from all others there are and will be: one that was moved or copied is another.
    fn register(&self) -> Result<String, Failure> {
        let look = || {
            let (place, found) = (self.directory.canonicalize()?, self.directory.metadata()?);
            let drawn = self.drawn()?;
            Ok(format!("{drawn}:{}:{}:{}", found.dev(), found.ino(), place.display()))
        };
        look().map_err(|error: io::Error| {
            Failure::new(format!("cannot look at {}", self.directory.display())).because(error)
        })
    }

    /// A word that was drawn when the first session here was made for somebody else to keep.
    fn drawn(&self) -> io::Result<String> {
        let place = self.directory.join("register");
        if !place.try_exists()? {
            let drawn = uuid::Uuid::now_v7().simple().to_string();
            let made = self.directory.join(format!(".register.{drawn}"));
            let written = File::create_new(&made).and_then(|mut file| {
                file.write_all(drawn.as_bytes())?;
                file.sync_all()?;
                // Whoever is first has drawn it for all.
                match fs::hard_link(&made, &place) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => Ok(()),
                }
            });
            let _was_never_made = fs::remove_file(&made);
            written?;
        }
        let drawn = fs::read_to_string(&place)?;
        // A word that was lost must not be taken for another list's.
        if uuid::Uuid::try_parse(&drawn).is_err() {
            return Err(io::Error::other(format!("{} is damaged; remove it", place.display())));
        }
        Ok(drawn)
    }

    /// Says that a session is being made, until this is dropped.
    async fn making(&self) -> Result<Making, Failure> {
        let making = Making::open(&self.directory)?;
        let until = Instant::now() + SWEEP;
        // Held exclusively only for as long as it takes to read two directories.
        while let Err(error) = flock(&making.0, FlockOperation::NonBlockingLockShared) {
            if error != Errno::WOULDBLOCK || Instant::now() > until {
                return Err(Failure::new(format!("cannot lock {}", self.directory.display())).because(error));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Ok(making)
    }

    /// Where it is kept which repositories a session must not have changed.
    fn repositories(&self, id: &str) -> PathBuf {
        self.directory.join("repositories").join(format!("{id}.json"))
    }

    /// Says which repositories a session's commands made or changed that was not said before.
    fn tell_repositories(&self, id: &str, render: &Render) {
        let file = self.repositories(id);
        let told = Guard::load(&file).and_then(|guard| {
            let Some(mut guard) = guard else { return Ok(()) };
            let news = guard.news();
            news.iter().for_each(|finding| render.note(finding));
            if news.is_empty() { Ok(()) } else { guard.save(&file) }
        });
        if let Err(failure) = told {
            render.failure(&failure);
        }
    }

    /// Forgets a session.
    fn forget(&self, id: &str) -> Result<(), Failure> {
        match fs::remove_file(self.repositories(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::new(format!("cannot forget the session {id}")).because(error));
            }
            _ => {}
        }
        Ok(self.store.remove(id)?)
    }

    /// What is known of a session.
    fn find(&self, given: &str) -> Result<SessionState, Failure> {
        Ok(self.store.find(given)?)
    }

    /// What became of a session whose machine is gone.
    async fn closed(&self, id: &str, when: &str) -> Failure {
        // A removal takes the machine first, and the record right after it.
        for _ in 0..20 {
            if self.store.find(id).is_err_and(|error| error.code() == "session_not_found") {
                return Failure::new(format!("the session {id} was removed {when}")).code("session_closed");
            }
            sleep(Duration::from_millis(100)).await;
        }
        let failure = Failure::new(format!("the machine of session {id} ended {when}")).code("session_closed");
        failure.next(format!("`sandbar session rm {id}` forgets it"))
    }

    /// A session that runs.
    async fn attach(&self, given: &str) -> Result<SandboxSession, Failure> {
        let state = self.find(given)?;
        let how = match (state.unfinished, state.workspace_root_ready) {
            (true, _) => "was never finished; its maker was killed",
            (false, false) => "was stopped",
            (false, true) => "is gone; its machine ended",
        };
        match SandboxSession::attach(self.client.of(&state.machine)?, state, SessionOptions::default()).await? {
            Some(session) => Ok(session),
            None => {
                let what = format!("the session {given} {how}");
                Err(Failure::new(what).code("session_closed").next(format!("`sandbar session rm {given}` forgets it")))
            }
        }
    }
}

/// Held by those who make sessions: between a machine and its record there must be no doubt whose it is.
struct Making(File);

impl Making {
    fn open(directory: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::new(format!("cannot open {}", directory.display())).because(error);
        File::open(directory).map(Self).map_err(failed)
    }
}

/// The directory of everything that outlives a command.
pub(crate) fn state_directory() -> Result<PathBuf, Failure> {
    directory(env::var_os("XDG_STATE_HOME").map(PathBuf::from), env::home_dir())
}

/// The same, as the caller's variables say it.
fn directory(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Result<PathBuf, Failure> {
    // A relative one is to be ignored, say those who invented it.
    let state_home = state_home.filter(|dir| dir.is_absolute());
    let home = || home.filter(|home| home.is_absolute()).map(|home| home.join(Path::new(".local/state")));
    let found = state_home.or_else(home).ok_or_else(|| {
        let what = "cannot tell where sessions are kept; neither XDG_STATE_HOME nor HOME is set";
        Failure::new(what).next("set XDG_STATE_HOME to a directory of your own")
    })?;
    Ok(found.join("sandbar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_kept_where_the_caller_keeps_state() {
        let found = |state: &str, home: &str| {
            let path = |text: &str| Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
            directory(path(state), path(home)).map(|path| path.display().to_string()).ok()
        };
        assert_eq!(found("/state", "/home/a").as_deref(), Some("/state/sandbar"));
        assert_eq!(found("", "/home/a").as_deref(), Some("/home/a/.local/state/sandbar"));
        assert_eq!(found("relative", "/home/a").as_deref(), Some("/home/a/.local/state/sandbar"));
        assert_eq!(found("", ""), None);
        assert_eq!(found("relative", "too"), None);
    }
}
