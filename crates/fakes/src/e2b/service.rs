//! The server behind the listener: it decides whom a request is for, and ends sandboxes whose time is over.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use hyper::{Response, http::request::Parts};
use sandbar_clients::UnixLocal;
use tokio::sync::Notify;

use super::{
    Options,
    catalog::Catalog,
    control, edge,
    sandbox::{OnTimeout, Sandbox, State},
};
use crate::{
    body::{Body, Recorded},
    listener::{self, Answering},
};

/// How often the clock is looked at when nothing is about to end.
const IDLE: Duration = Duration::from_secs(60);

/// A fake E2B.
pub(super) struct Service {
    pub(super) key: String,
    pub(super) templates: Vec<String>,
    pub(super) client: UnixLocal,
    pub(super) catalog: Catalog,
    /// Some sandbox ends at another time than before.
    pub(super) rescheduled: Notify,
}

impl Service {
    pub(super) fn new(key: String, options: Options) -> Self {
        let client = match options.state_dir {
            Some(directory) => UnixLocal::new().state_dir(directory),
            None => UnixLocal::new(),
        };
        let templates = options.templates;
        Self { key, templates, client, catalog: Catalog::default(), rescheduled: Notify::new() }
    }

    /// Pauses or ends every sandbox whose time is over.
    async fn expire(&self) {
        let now = SystemTime::now();
        let over = |sandbox: &Arc<Sandbox>| sandbox.state() == State::Running && sandbox.end() <= now;
        for sandbox in self.catalog.sandboxes().into_iter().filter(over) {
            match sandbox.wish.on_timeout {
                OnTimeout::Pause(memory) if sandbox.pause(memory).await.is_ok() => {}
                _ => {
                    let removed = self.catalog.remove(&sandbox.id);
                    if let Some(sandbox) = removed {
                        let _removed_by_its_supervisor = sandbox.kill().await;
                    }
                }
            }
        }
    }
}

impl listener::Service for Service {
    fn answer(self: Arc<Self>, parts: Parts, body: Recorded) -> Answering<Response<Body>> {
        Box::pin(async move {
            match edge::destination(&parts) {
                Ok(Some(destination)) => edge::answer(&self, destination, parts, body).await,
                Ok(None) => control::answer(&self, parts, body).await,
                Err(refusal) => refusal,
            }
        })
    }

    fn attend(self: Arc<Self>) -> Answering<()> {
        Box::pin(async move {
            loop {
                let next = self.catalog.next_end();
                let wait = next.map_or(IDLE, |end| end.duration_since(SystemTime::now()).unwrap_or_default());
                tokio::select! {
                    () = tokio::time::sleep(wait.min(IDLE)) => self.expire().await,
                    () = self.rescheduled.notified() => {}
                }
            }
        })
    }

    fn close(self: Arc<Self>) -> Answering<()> {
        Box::pin(async move {
            let all = self.catalog.sandboxes();
            futures::future::join_all(all.iter().map(|sandbox| sandbox.kill())).await;
            for sandbox in all {
                self.catalog.remove(&sandbox.id);
            }
        })
    }
}
