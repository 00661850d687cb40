//! A repository, cloned in a sandbox of its own that has a network and nothing else.
//!
//! Git runs programs that repositories name: hooks, filters, transports, credential helpers. None of that is configured
//! there, and what a hostile repository might still start finds an empty machine that ends when the clone has been copied.

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
    checkout::Throwaway,
    plan::Plan,
    run::Worker,
    source::{Reference, Source},
};
use crate::{Result, SandboxError, Secret, error::Outside};

/// What to clone, and what it may cost.
#[derive(Clone)]
pub struct GitRequest {
    /// Where: an `https`, `http` or `git` address without user or password.
    pub url: String,
    /// A branch, a tag, a commit or a whole `refs/…` name; `None` is what the server calls its `HEAD`.
    pub reference: Option<String>,
    /// How many commits of the history come along; `None` is all of it. A server that can only give all of it does.
    pub depth: Option<u32>,
    /// What is checked out, as patterns of a `.gitignore`; all of it when empty.
    pub sparse: Vec<String>,
    /// The only directory that is wanted. Without one, `.git` comes along, too.
    pub subpath: Option<String>,
    /// Whether submodules are cloned, and theirs.
    pub submodules: bool,
    /// A token, or `user:password`; sent to the origin of `url` only.
    pub auth: Option<Secret>,
    /// The level below which nothing is cloned.
    pub isolation: Demand,
    /// How much the clone may take.
    pub limits: CloneLimits,
    /// Whether only public addresses may be asked: those that the server's name stands for when it is checked, and no other
    /// server, be it by redirect or by submodule. The `git` protocol cannot be held to that, and is refused.
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

    /// The same for a repository of a host, like `github.com` and `owner/name`. A `repo` that is a whole address stays one.
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

    /// Only this directory.
    #[must_use]
    pub fn subpath(mut self, subpath: impl Into<String>) -> Self {
        self.subpath = Some(subpath.into());
        self
    }

    /// Identifies itself to the server.
    #[must_use]
    pub fn auth(mut self, secret: Secret) -> Self {
        self.auth = Some(secret);
        self
    }
}

/// Without what may be secret in the address.
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

/// How much a clone may take, its history included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneLimits {
    /// From the first step to the last.
    pub time: Duration,
    /// On disk.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
}

impl Default for CloneLimits {
    fn default() -> Self {
        Self { time: Duration::from_secs(600), bytes: 2 << 30, entries: 500_000 }
    }
}

/// What git says of such a server when a depth is asked for.
const DUMB: &str = "dumb http transport does not support shallow";

/// Clones a repository in a new machine of this client.
///
/// # Errors
/// `git_clone_error` with git's own words, `git_subpath_error`, `git_missing_in_image`, `limit_exceeded`, and
/// `machine_error` when there is no machine to be had. Nothing is left behind.
pub async fn clone(client: &Arc<dyn SandboxClient>, request: &GitRequest) -> Result<Checkout> {
    let source = Source::check(request)?;
    let limit = request.limits.time;
    match timeout(limit, fetch_somehow(client, request, &source)).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("it took longer than {} s", limit.as_secs_f64());
            Err(source.error(&reason).because(Outside::passing("the server may be slow, or the repository large")))
        }
    }
}

/// A server that only has files to give cannot give some of the history: then all of it comes along.
async fn fetch_somehow(client: &Arc<dyn SandboxClient>, request: &GitRequest, source: &Source) -> Result<Checkout> {
    match fetch(client, request, source).await {
        Err(SandboxError::GitClone { stderr, .. }) if request.depth.is_some() && stderr.contains(DUMB) => {
            tracing::info!(url = source.shown, "the server cannot give a part of the history; fetching all of it");
            fetch(client, &GitRequest { depth: None, ..request.clone() }, source).await
        }
        fetched => fetched,
    }
}

async fn fetch(client: &Arc<dyn SandboxClient>, request: &GitRequest, source: &Source) -> Result<Checkout> {
    let pins = if request.public_only { source.pins().await? } else { Vec::new() };
    let place = Throwaway::create(client, request.isolation).await?;
    let plan = Plan::new(request, source, place.workspace()?).held_to(pins);
    let worker = Worker { place: &place, request, source, plan: &plan };
    bring(&worker).await?;
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
        place: Arc::new(place),
        clone: plan.clone,
        root,
        commit,
        bytes,
        entries,
        shown: source.shown.clone(),
    })
}

/// Gets the commits. A commit can be asked for by its whole name only; what looks like a short one may be a branch.
async fn bring(worker: &Worker<'_>) -> Result<()> {
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
            let SandboxError::GitClone { stderr, .. } = &error else { return error };
            if stderr.contains(DUMB) {
                return error;
            }
            let hint = "if it is a commit, give all of its digits: servers do not look up short ones";
            worker.source.error(&format!("{stderr}; {hint}")).because(Outside::lasting())
        }),
    }
}
