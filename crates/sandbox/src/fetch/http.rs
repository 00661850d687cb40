//! A file of a web server, brought to this host's disk and checked.

mod follow;
pub(in crate::fetch) mod reach;
mod spool;
mod trouble;

use std::{fmt, time::Duration};

use sandbar_http::{
    Credentials, Proxies, Redaction, Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    shown_text,
};
use sandbar_machine::Sha256;
use tokio::time::{sleep, timeout};

pub use self::spool::Download;
use self::{
    reach::Reach,
    trouble::{Trouble, Voice},
};
use crate::{Result, Secret};

/// A server that asks for a longer pause than this is not waited for.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Headers that describe the connection itself, which is not the caller's.
const NOT_YOURS: [&str; 6] = ["connection", "content-length", "expect", "te", "transfer-encoding", "upgrade"];

/// What to fetch, and what it may cost.
#[derive(Clone)]
pub struct HttpRequest {
    /// Where; `http` or `https`. A user name and password in it are sent to its origin only.
    pub url: String,
    /// Sent to the address' own origin, and to nobody it redirects to.
    pub headers: Vec<(String, Secret)>,
    /// What must arrive.
    pub sha256: Option<Sha256>,
    /// How much may arrive.
    pub max_bytes: u64,
    /// How long it may take.
    pub timeouts: Timeouts,
    /// How often a passing trouble is tried again.
    pub retries: Retries,
    /// Whether only public addresses may be asked, from the first on. Otherwise the first address may be anything; but
    /// once a public server has answered, its redirects lead to public addresses only.
    pub public_only: bool,
    /// The proxies on the way; none, unless trusted code says otherwise. A proxy resolves names itself, so behind one only
    /// addresses that are numbers can be refused.
    pub proxies: Proxies,
}

impl HttpRequest {
    /// At most 1 GiB from this address, whatever it is.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: Vec::new(),
            sha256: None,
            max_bytes: 1 << 30,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            public_only: false,
            proxies: Proxies::none(),
        }
    }

    /// Sends one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: Secret) -> Self {
        self.headers.push((name.into(), value));
        self
    }

    /// Accepts only what has this digest.
    #[must_use]
    pub fn sha256(mut self, expected: Sha256) -> Self {
        self.sha256 = Some(expected);
        self
    }

    /// Accepts at most this much.
    #[must_use]
    pub fn max_bytes(mut self, limit: u64) -> Self {
        self.max_bytes = limit;
        self
    }

    /// Goes through these proxies.
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }
}

/// Without what may be secret in the address.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpRequest")
            .field("url", &shown_text(&self.url))
            .field("headers", &self.headers)
            .field("sha256", &self.sha256)
            .field("max_bytes", &self.max_bytes)
            .field("timeouts", &self.timeouts)
            .field("retries", &self.retries)
            .field("public_only", &self.public_only)
            .field("proxies", &self.proxies)
            .finish()
    }
}

/// How long a download may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To find and reach the server.
    pub connect: Duration,
    /// Without a single byte.
    pub idle: Duration,
    /// For everything, redirects and further attempts included.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), idle: seconds(30), total: seconds(600) }
    }
}

/// How often a broken connection, or a server that has trouble of its own, is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Attempts, the first included.
    pub attempts: u32,
    /// Before the second attempt; doubled before each further one. What the server asks for comes first.
    pub pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 3, pause: Duration::from_millis(250) }
    }
}

/// Fetches a file to this host's disk. It has no name there, and is gone when it is dropped.
///
/// # Errors
/// `remote_fetch_error` when it cannot be had, `local_checksum_error` when it is not what was announced, `limit_exceeded`
/// when it is too large.
pub async fn download(request: &HttpRequest) -> Result<Download> {
    let voice = Voice::new(request);
    let errand = Errand::new(request, voice)?;
    let total = request.timeouts.total;
    match timeout(total, errand.run()).await {
        Ok(result) => result,
        Err(_) => Err(errand.voice.late(&format!("it took longer than {} s", total.as_secs_f64())).into()),
    }
}

/// A request that has been checked.
struct Errand<'a> {
    request: &'a HttpRequest,
    voice: Voice,
    url: Url,
    headers: HeaderMap,
    reach: Reach,
}

impl<'a> Errand<'a> {
    fn new(request: &'a HttpRequest, voice: Voice) -> Result<Self> {
        let mut url = Url::parse(&request.url).map_err(|error| voice.refuse(&format!("{error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(voice.refuse("only http and https addresses can be fetched").into());
        }
        let mut headers = HeaderMap::new();
        if let Some(user) = Credentials::take(&mut url) {
            let basic = header_value(&user.basic()).ok_or_else(|| voice.refuse("the user is malformed"))?;
            headers.insert(AUTHORIZATION, basic);
        }
        for (name, value) in &request.headers {
            let known = HeaderName::from_bytes(name.as_bytes()).ok().filter(|name| !NOT_YOURS.contains(&name.as_str()));
            let (Some(known), Some(value)) = (known, header_value(value.expose())) else {
                return Err(voice.refuse(&format!("the header {name:?} cannot be sent")).into());
            };
            headers.insert(known, value);
        }
        let reach = if request.public_only { Reach::Public } else { Reach::Anywhere };
        Ok(Self { request, voice, url, headers, reach })
    }

    async fn run(&self) -> Result<Download> {
        let Retries { attempts, mut pause } = self.request.retries;
        let mut made = 1;
        loop {
            let trouble = match self.attempt().await {
                Ok(download) => return Ok(download),
                Err(trouble) => trouble,
            };
            let wait = match &trouble {
                Trouble::Passing { pause: asked, .. } if made < attempts => asked.unwrap_or(pause),
                Trouble::Passing { .. } | Trouble::Lasting(_) => return Err(trouble.into()),
            };
            if wait > LONGEST_PAUSE {
                return Err(trouble.into());
            }
            sleep(wait).await;
            pause = pause.saturating_mul(2);
            made += 1;
        }
    }

    async fn attempt(&self) -> Result<Download, Trouble> {
        let answer = follow::follow(self).await?;
        spool::spool(self, answer).await
    }
}

/// A value that HTTP libraries keep out of their logs, too.
fn header_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Voice {
    fn new(request: &HttpRequest) -> Self {
        let secrets = request.headers.iter().map(|(_, secret)| secret.expose().to_owned());
        Self { shown: shown_text(&request.url), redaction: Redaction::new(secrets) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_for_is_refused_before_anything_is_sent() {
        let plain = || HttpRequest::new("http://127.0.0.1/");
        let table = [
            HttpRequest::new(""),
            HttpRequest::new("no address"),
            HttpRequest::new("file:///etc/passwd"),
            HttpRequest::new("ftp://example.org/x"),
            HttpRequest::new("http://"),
            plain().header("a b", Secret::new("x")),
            plain().header("x", Secret::new("hunter2\r\ny: z")),
            plain().header("Transfer-Encoding", Secret::new("chunked")),
        ];
        for request in table {
            let voice = Voice::new(&request);
            let error = Errand::new(&request, voice).err().expect("a refusal");
            assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(false)), "{request:?}");
            assert!(!error.full_message().contains("hunter2"));
        }
    }
}
