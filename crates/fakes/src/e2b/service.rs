//! The service behind the listener: dispatches requests to the planes, and applies the timeouts of sandboxes.

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
    body::{self, Body, RequestBody},
    listener::{self, BoxFuture, respond},
};

/// Longest wait between two checks of the timeouts.
const IDLE: Duration = Duration::from_secs(60);

/// A fake E2B.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) key: String,
    pub(super) templates: Vec<String>,
    pub(super) client: UnixLocal,
    pub(super) catalog: Catalog,
    /// Notified when a timeout changes.
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

    /// Pauses or kills every sandbox whose timeout has expired.
    async fn expire(&self) {
        let now = SystemTime::now();
        let over = |sandbox: &Arc<Sandbox>| sandbox.state() == State::Running && sandbox.end() <= now;
        for sandbox in self.catalog.sandboxes().into_iter().filter(over) {
            match sandbox.config.on_timeout {
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
    fn answer(self: Arc<Self>, parts: Parts, body: RequestBody) -> BoxFuture<Response<Body>> {
        Box::pin(async move {
            match edge::destination(&parts) {
                Ok(Some(destination)) => edge::answer(&self, destination, parts, body).await,
                Ok(None) => control::answer(&self, parts, body).await,
                Err(reason) => respond(400, &[("content-type", "text/plain; charset=utf-8")], body::full(reason)),
            }
        })
    }

    fn attend(self: Arc<Self>) -> BoxFuture<()> {
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

    fn close(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            let all = self.catalog.sandboxes();
            futures::future::join_all(all.iter().map(|sandbox| sandbox.kill())).await;
            for sandbox in all {
                self.catalog.remove(&sandbox.id);
            }
        })
    }
}
