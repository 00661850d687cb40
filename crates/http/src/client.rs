//! The client: its connections, the route of each request, and the attempts until there is an answer.

use std::{
    fmt,
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{Url, redirect::Policy};
use tokio::time::timeout_at;

use crate::{
    HttpError, Key, Patience, Phase, Proxies, RealTime, Request, Response, Route,
    address::{self, Host},
    coding::Body,
    error,
    request::Accepted,
    resolve::{Check, MustNotBeAsked, Names},
    response::{Deadline, Peer},
    retry::Failure,
    tls,
};

const CONNECT: Duration = Duration::from_secs(5);

/// Sends requests. It reads nothing from the environment, follows no redirect, and stores no cookie. Clones share their
/// connections.
///
/// ```no_run
/// use sandbar_http::{Client, HttpError, Proxies, Request};
///
/// # async fn example() -> Result<(), HttpError> {
/// let client = Client::new(Proxies::from_env()?);
/// let request = Request::get("https://api.example/v1/sandboxes").secret_header("x-api-key", "key-123456");
/// let sandboxes: serde_json::Value = client.send(request).await?.success().await?.json(1 << 20).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    settings: Arc<Settings>,
    made: Arc<[OnceLock<Result<reqwest::Client, String>>; 3]>,
}

#[derive(Clone)]
struct Settings {
    proxies: Proxies,
    connect: Duration,
    names: Names,
    connections: Connections,
    patience: Arc<dyn Patience>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connections {
    Kept,
    Fresh,
}

/// The kinds of connections of a client. Certificates and settings of a kind are read when it is first used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Tls,
    Proxied,
}

impl Client {
    /// A client that uses these proxies.
    #[must_use]
    pub fn new(proxies: Proxies) -> Self {
        let settings = Settings {
            proxies,
            connect: CONNECT,
            names: Names::default(),
            connections: Connections::Kept,
            patience: Arc::new(RealTime),
        };
        Self { settings: Arc::new(settings), made: Arc::default() }
    }

    /// Sets how long resolving and connecting may take; the default is five seconds.
    #[must_use]
    pub fn connect_timeout(self, limit: Duration) -> Self {
        self.with(|settings| settings.connect = limit)
    }

    /// Connects only to addresses that this function allows, whether they are literal or resolved from a name. Behind a
    /// proxy only literal addresses can be checked, because the proxy resolves the names.
    #[must_use]
    pub fn only(self, check: Check) -> Self {
        self.with(|settings| settings.names.check = Some(check))
    }

    /// Uses this address for this name instead of asking the host's resolver.
    #[must_use]
    pub fn resolve(self, name: impl Into<String>, address: IpAddr) -> Self {
        self.with(|settings| settings.names.known.extend([(name.into(), address)]))
    }

    /// Opens a new connection for each request.
    #[must_use]
    pub fn fresh_connections(self) -> Self {
        self.with(|settings| settings.connections = Connections::Fresh)
    }

    /// Sets how the client waits between attempts.
    #[must_use]
    pub fn patience(self, patience: impl Patience + 'static) -> Self {
        self.with(|settings| settings.patience = Arc::new(patience))
    }

    /// The same client with another setting, and without open connections.
    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(Arc::make_mut(&mut self.settings));
        self.made = Arc::default();
        self
    }

    /// Sends a request, and repeats it as its [`Retries`](crate::Retries) allow. Returns an answer of any status;
    /// [`Response::success`] checks it.
    ///
    /// # Errors
    /// Any [`HttpError`] if there is no answer.
    pub async fn send(&self, mut request: Request) -> Result<Response, HttpError> {
        let deadline = Deadline::of(&request.timeouts);
        let mut made = 0;
        loop {
            let ended = self.attempt(&mut request, deadline).await;
            made += 1;
            let failure = match &ended {
                Ok(response) => Failure::Status(response.status(), response.retry_after()),
                Err(error) => Failure::from(error),
            };
            let chance = self.settings.patience.chance();
            let pause = request.retries.pause_after(failure, request.repeat(), made, chance);
            let Some(pause) = pause.filter(|pause| deadline.allows(*pause)) else { return ended };
            tracing::debug!(request = request.shown(), ?failure, wait_ms = pause.as_millis(), "sent again");
            drop(ended);
            self.settings.patience.wait(pause).await;
        }
    }

    async fn attempt(&self, request: &mut Request, deadline: Deadline) -> Result<Response, HttpError> {
        let unusable =
            |reason: &String| HttpError::Unusable { server: request.shown().to_owned(), reason: reason.clone() };
        let url = request.url.as_ref().map_err(unusable)?.clone();
        if let Some(fault) = &request.fault {
            return Err(unusable(fault));
        }
        let route = self.settings.proxies.route(&url, request.key());
        let peer = peer(request, &url, route);
        if let Host::Ip(ip) = Host::of(&url)
            && !self.settings.names.allows(ip)
        {
            return Err(HttpError::Refused { server: peer.server });
        }
        let client = self.made(match route {
            Route::Through(_) => Kind::Proxied,
            Route::Direct if url.scheme() == "https" => Kind::Tls,
            Route::Direct => Kind::Plain,
        });
        let client = client.map_err(|reason| HttpError::Unusable { server: peer.server.clone(), reason })?;
        let asked = client.request(request.method.clone(), url).headers(request.complete_headers());
        let (until, phase, limit) = deadline.step(Phase::Head, request.timeouts.head);
        let inner = match timeout_at(until, asked.body(request.body.take()).send()).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) if error::caused_by::<MustNotBeAsked>(&error) => {
                return Err(HttpError::Refused { server: peer.server });
            }
            Ok(Err(error)) if error.is_timeout() => return Err(peer.late(Phase::Connect, self.settings.connect)),
            Ok(Err(error)) => return Err(peer.lost(error)),
            Err(_late) => return Err(peer.late(phase, limit)),
        };
        let body = match request.coding {
            Accepted::Compressed => Body::new(inner.headers()),
            Accepted::AsItIs => Body::plain(),
        };
        Ok(Response { inner, body, peer, idle: request.timeouts.idle, deadline })
    }

    fn made(&self, kind: Kind) -> Result<reqwest::Client, String> {
        self.made[kind as usize].get_or_init(|| self.make(kind)).clone()
    }

    fn make(&self, kind: Kind) -> Result<reqwest::Client, String> {
        let tls = match kind {
            Kind::Plain => tls::trusting_none()?,
            Kind::Tls | Kind::Proxied => tls::trusting_this_host()?,
        };
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // Only this client's own proxy rules apply: nothing is read from the environment.
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            .connect_timeout(self.settings.connect)
            .user_agent(concat!("sandbar/", env!("CARGO_PKG_VERSION")));
        if self.settings.connections == Connections::Fresh {
            builder = builder.pool_max_idle_per_host(0).retry(reqwest::retry::never());
        }
        builder = match kind {
            Kind::Plain | Kind::Tls => builder.dns_resolver(Arc::new(self.settings.names.clone())),
            // The proxy resolves the names of servers; the proxy's own address was chosen by trusted code.
            Kind::Proxied => {
                let proxies = self.settings.proxies.clone();
                builder.proxy(reqwest::Proxy::custom(move |url| match proxies.route(url, Key::Absent) {
                    Route::Through(proxy) => Some(proxy.url().clone()),
                    Route::Direct => None,
                }))
            }
        };
        builder.build().map_err(|error| error.without_url().to_string())
    }
}

fn peer(request: &Request, url: &Url, route: Route<'_>) -> Peer {
    let server = address::origin(url);
    let redaction = request.redaction();
    match route {
        Route::Direct => Peer { server, redaction, is_proxied: false },
        Route::Through(proxy) => {
            Peer { server: format!("{server} {route}"), redaction: redaction.and(proxy.secrets()), is_proxied: true }
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("proxies", &self.settings.proxies)
            .field("connect", &self.settings.connect)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_process_wide_provider_of_cryptography_is_needed() {
        let proxies = Proxies::new().all("http://p.example:1".parse().expect("a proxy"));
        for kind in [Kind::Plain, Kind::Tls, Kind::Proxied] {
            Client::new(proxies.clone()).made(kind).expect("a client");
        }
        assert!(rustls::crypto::CryptoProvider::get_default().is_none());
    }
}
