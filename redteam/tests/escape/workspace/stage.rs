//! One session on a directory of the host, beside a directory with a secret that it must never touch.

use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
};

use sandbar_machine::{Machine, SandboxClient};
use sandbar_sandbox::{Exec, Manifest, Result, SandboxSession, SessionOptions};
use tokio::time::{Duration, timeout};

use crate::escape::rig::{Rig, SOON, token};

/// An answer that takes longer counts as a hang.
pub(super) const PROMPT: Duration = SOON;

pub(super) struct Stage<'r> {
    pub(super) rig: &'r Rig,
    pub(super) session: SandboxSession,
    /// On the host.
    pub(super) workspace: PathBuf,
    /// On the host, and nowhere in the machine.
    pub(super) canary: Canary,
}

impl<'r> Stage<'r> {
    pub(super) async fn new(rig: &'r Rig, name: &str) -> Self {
        let workspace = rig.dir(&format!("{name}-workspace"));
        let canary = Canary::new(rig.dir(&format!("{name}-canary")));
        let session = open(rig, Manifest::new(), &workspace).await.expect("a session");
        Self { rig, session, workspace, canary }
    }

    /// Runs a script of the attacker inside the machine.
    pub(super) async fn plant(&self, script: &str) {
        plant(&self.session, script).await;
    }

    pub(super) fn machine(&self) -> &Arc<dyn Machine> {
        self.session.machine()
    }
}

pub(super) async fn plant(session: &SandboxSession, script: &str) {
    let ran = soon(session.exec(Exec::shell(script))).await.expect("the script runs");
    assert!(ran.success(), "{script}: {}", ran.stderr_text());
}

pub(super) fn client(rig: &Rig) -> Arc<dyn SandboxClient> {
    rig.client.clone()
}

pub(super) async fn open(rig: &Rig, manifest: Manifest, workspace: &Path) -> Result<SandboxSession> {
    let options = SessionOptions::new(manifest).machine(rig.spec(workspace));
    soon(SandboxSession::open(client(rig), options)).await
}

pub(super) async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(SOON, work).await.expect("an answer within a minute")
}

/// An answer, or the word that there was none.
pub(super) async fn prompt<T>(work: impl Future<Output = Result<T>>) -> std::result::Result<T, String> {
    match timeout(PROMPT, work).await {
        Ok(answer) => answer.map_err(|error| format!("{}: {}", error.code(), error.full_message())),
        Err(_) => Err("HANGS".to_owned()),
    }
}

/// Whether something was refused, and not just never answered.
pub(super) fn refused<T>(answer: &std::result::Result<T, String>) -> bool {
    answer.as_ref().is_err_and(|reason| reason != "HANGS")
}

/// The reason alone: what was reached may be long.
pub(super) fn brief<T>(answer: &std::result::Result<T, String>) -> String {
    answer.as_ref().map_or_else(|reason| reason.chars().take(160).collect(), |_| "it was done".to_owned())
}

/// A directory with a secret.
pub(super) struct Canary {
    pub(super) dir: PathBuf,
    pub(super) secret: String,
    before: Vec<(PathBuf, Vec<u8>)>,
}

impl Canary {
    pub(super) fn new(dir: PathBuf) -> Self {
        let secret = token();
        fs::write(dir.join("f"), &secret).expect("a secret");
        fs::create_dir_all(dir.join("sub")).expect("a directory");
        fs::write(dir.join("sub/g"), &secret).expect("a secret");
        let before = everything(&dir);
        Self { dir, secret, before }
    }

    pub(super) fn text(&self) -> String {
        self.dir.display().to_string()
    }

    /// Whether everything in it is as it was.
    pub(super) fn untouched(&self) -> bool {
        everything(&self.dir) == self.before
    }

    /// Whether these bytes hold the secret.
    pub(super) fn is_in(&self, bytes: &[u8]) -> bool {
        bytes.windows(self.secret.len()).any(|part| part == self.secret.as_bytes())
    }
}

/// Every path below a directory, links not followed, with what is in each file.
pub(super) fn everything(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            let bytes = if kind.is_file() { fs::read(entry.path()).unwrap_or_default() } else { Vec::new() };
            if kind.is_dir() {
                waiting.push(entry.path());
            }
            all.push((entry.path(), bytes));
        }
    }
    all.sort();
    all
}
