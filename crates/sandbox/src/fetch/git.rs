//! Clones a repository in a separate sandbox that has a network and nothing else.
//!
//! Git runs programs that repositories name: hooks, filters, transports, credential helpers. None of them is configured
//! here. A program that a hostile repository still starts finds an empty machine, which ends when the clone is copied.

mod checkout;
mod plan;
mod run;
mod source;

use std::{fmt, sync::Arc, time::Duration};

use sandbar_http::shown_text;
use sandbar_machine::{Demand, SandboxClient};
use tokio::time::timeout;

pub use self::checkout::Checkout;
use self::{
    checkout::CloneMachine,
    plan::Plan,
    run::Worker,
    source::{Reference, Source},
};
use crate::{Result, SandboxError, Secret, error::Outside};

/// What to clone, and its limits.
#[derive(Clone)]
pub struct GitRequest {
    /// Address of the repository: `https`, `http` or `git`, without user or password.
    pub url: String,
    /// Branch, tag, commit or whole `refs/…` name; `None` is the server's `HEAD`.
    pub reference: Option<String>,
    /// Number of commits of history; `None` is the whole history. Some servers can only send the whole history.
    pub depth: Option<u32>,
    /// Patterns of files to check out, as in a `.gitignore` file; all files if empty.
    pub sparse: Vec<String>,
    /// Directory to copy. If `None`, the whole repository is copied, including `.git`.
    pub subpath: Option<String>,
    /// Whether submodules are cloned, recursively.
    pub submodules: bool,
    /// Token, or `user:password`; sent to the origin of `url` only.
    pub auth: Option<Secret>,
    /// Minimum isolation of the machine that clones.
    pub isolation: Demand,
    /// Limits of the clone.
    pub limits: CloneLimits,
    /// Whether only public addresses may be contacted: those that the server's name resolves to when it is checked, and
    /// no other server, neither by redirect nor by submodule. The `git` protocol cannot enforce this and is refused.
    pub public_only: bool,
}

impl GitRequest {
    /// The newest commit of this repository, without its history.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            reference: None,
            depth: Some(1),
            sparse: Vec::new(),
            subpath: None,
            submodules: false,
            auth: None,
            isolation: Demand::default(),
            limits: CloneLimits::default(),
            public_only: false,
        }
    }

    /// The same for a host and a repository, such as `github.com` and `owner/name`. If `repo` is a whole address, the
    /// host is not used.
    #[must_use]
    pub fn hosted(host: &str, repo: &str) -> Self {
        if repo.contains("://") {
            return Self::new(repo);
        }
        Self::new(format!("https://{host}/{}.git", repo.trim_matches('/').trim_end_matches(".git")))
    }

    /// A branch, tag, commit or `refs/…` name instead of `HEAD`.
    #[must_use]
    pub fn reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Copies only this directory.
    #[must_use]
    pub fn subpath(mut self, subpath: impl Into<String>) -> Self {
        self.subpath = Some(subpath.into());
        self
    }

    /// Authenticates to the server with this secret.
    #[must_use]
    pub fn auth(mut self, secret: Secret) -> Self {
        self.auth = Some(secret);
        self
    }
}

/// Leaves out the secret parts of the address.
impl fmt::Debug for GitRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitRequest")
            .field("url", &shown_text(&self.url))
            .field("reference", &self.reference)
            .field("depth", &self.depth)
            .field("sparse", &self.sparse)
            .field("subpath", &self.subpath)
            .field("submodules", &self.submodules)
            .field("auth", &self.auth)
            .field("isolation", &self.isolation)
            .field("limits", &self.limits)
            .field("public_only", &self.public_only)
            .finish()
    }
}

/// Limits of a clone, including its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneLimits {
    /// Time for all steps together.
    pub time: Duration,
    /// Bytes on disk.
    pub bytes: u64,
    /// Number of files, directories and links.
    pub entries: u64,
}

impl Default for CloneLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(600), bytes: 2 << 30, entries: 500_000 }
    }
}

/// Git's message if a depth is requested from a server that only serves files.
const DUMB_SERVER: &str = "dumb http transport does not support shallow";

/// Clones a repository in a new machine of this client.
///
/// # Errors
/// `git_clone_error` with git's own message, `git_subpath_error`, `git_missing_in_image`, `limit_exceeded`, and
/// `machine_error` if no machine can be created. The machine is removed in every case.
pub async fn clone(client: &Arc<dyn SandboxClient>, request: &GitRequest) -> Result<Checkout> {
    let source = Source::check(request)?;
    let limit = request.limits.time;
    match timeout(limit, fetch_with_fallback(client, request, &source)).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("it took longer than {} s", limit.as_secs_f64());
            Err(source.error(&reason).because(Outside::passing("the server may be slow, or the repository large")))
        }
    }
}

/// Fetches the whole history if the server only serves files and cannot send a part of it.
async fn fetch_with_fallback(
    client: &Arc<dyn SandboxClient>,
    request: &GitRequest,
    source: &Source,
) -> Result<Checkout> {
    match fetch(client, request, source).await {
        Err(error) if request.depth.is_some() && stderr(&error).is_some_and(|text| text.contains(DUMB_SERVER)) => {
            tracing::info!(url = source.shown, "the server cannot send a part of the history; fetching all of it");
            fetch(client, &GitRequest { depth: None, ..request.clone() }, source).await
        }
        fetched => fetched,
    }
}

/// The output of git, if a clone failed.
fn stderr(error: &SandboxError) -> Option<&str> {
    error.text("stderr").filter(|_| error.code() == "git_clone_error")
}

async fn fetch(client: &Arc<dyn SandboxClient>, request: &GitRequest, source: &Source) -> Result<Checkout> {
    let pins = if request.public_only { source.pins().await? } else { Vec::new() };
    let sandbox = CloneMachine::create(client, request.isolation).await?;
    let plan = Plan::new(request, source, sandbox.workspace()?).with_pins(pins);
    let worker = Worker { sandbox: &sandbox, request, source, plan: &plan };
    fetch_commits(&worker).await?;
    let commit = worker.text(plan.resolve()).await?;
    source.verify(&commit)?;
    if !request.sparse.is_empty() {
        worker.run(plan.sparse()).await?;
    }
    worker.run(plan.fill()).await?;
    if request.submodules {
        worker.run(plan.submodules()).await?;
    }
    let (bytes, entries) = worker.measure().await?;
    let root = worker.subdirectory().await?;
    Ok(Checkout {
        sandbox: Arc::new(sandbox),
        clone: plan.clone,
        root,
        commit,
        bytes,
        entries,
        shown: source.shown.clone(),
    })
}

/// Fetches the commits. A commit can be requested only by its whole id; an abbreviated id may also be a branch.
async fn fetch_commits(worker: &Worker<'_>) -> Result<()> {
    let plan = worker.plan;
    match &worker.source.reference {
        Reference::Head => worker.run(plan.clone_head()).await.map(drop),
        Reference::Named(name) => worker.run(plan.clone_named(name)).await.map(drop),
        Reference::Whole(name) => {
            for step in plan.fetch_exactly(name) {
                worker.run(step).await?;
            }
            Ok(())
        }
        Reference::Abbreviated(name) => worker.run(plan.clone_named(name)).await.map(drop).map_err(|error| {
            let Some(stderr) = stderr(&error) else { return error };
            if stderr.contains(DUMB_SERVER) {
                return error;
            }
            let hint = "if it is a commit, give all of its digits: servers do not look up abbreviated ids";
            worker.source.error(&format!("{stderr}; {hint}")).because(Outside::lasting())
        }),
    }
}
