//! Downloads a file over HTTP to this host's disk and checks it.

mod failure;
mod follow;
pub(in crate::fetch) mod reach;
mod spool;

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
    failure::{Failure, Reporter},
    reach::Reach,
};
use crate::{Result, Secret};

/// Longest pause before a retry; if a server requests a longer one, the download fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Headers of the connection itself, which callers cannot set.
const CONNECTION_HEADERS: [&str; 6] = ["connection", "content-length", "expect", "te", "transfer-encoding", "upgrade"];

/// What to fetch, and its limits.
#[derive(Clone)]
pub struct HttpRequest {
    /// Address; `http` or `https`. Its user name and password are sent to its origin only.
    pub url: String,
    /// Request headers, sent to the origin of the address only, not to redirect targets.
    pub headers: Vec<(String, Secret)>,
    /// Expected SHA-256.
    pub sha256: Option<Sha256>,
    /// Limit in bytes.
    pub max_bytes: u64,
    /// Timeouts of the download.
    pub timeouts: Timeouts,
    /// Retries after temporary failures.
    pub retries: Retries,
    /// Whether only public addresses may be contacted, including the first one. If not, the first address may be any,
    /// but redirects of a public server must still lead to public addresses.
    pub public_only: bool,
    /// Proxies; none by default. A proxy resolves names itself, so with a proxy only literal IP addresses are refused.
    pub proxies: Proxies,
}

impl HttpRequest {
    /// A download of at most 1 GiB from this address.
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

    /// Accepts only content with this digest.
    #[must_use]
    pub fn sha256(mut self, expected: Sha256) -> Self {
        self.sha256 = Some(expected);
        self
    }

    /// Accepts at most this many bytes.
    #[must_use]
    pub fn max_bytes(mut self, limit: u64) -> Self {
        self.max_bytes = limit;
        self
    }

    /// Uses these proxies.
    #[must_use]
    pub fn proxies(mut self, proxies: Proxies) -> Self {
        self.proxies = proxies;
        self
    }
}

/// Leaves out the secret parts of the address.
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

/// Timeouts of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// To resolve and connect to the server.
    pub connect: Duration,
    /// Between two pieces of data.
    pub idle: Duration,
    /// For the whole download, including redirects and retries.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { connect: seconds(10), idle: seconds(30), total: seconds(600) }
    }
}

/// Retries after a broken connection or a server error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Number of attempts, including the first.
    pub attempts: u32,
    /// Pause before the second attempt, doubled before each further one. A pause that the server requests has priority.
    pub pause: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { attempts: 3, pause: Duration::from_millis(250) }
    }
}

/// Fetches a file to this host's disk. The file has no name and is removed when it is dropped.
///
/// # Errors
/// `remote_fetch_error` if the file cannot be fetched, `local_checksum_error` if its hash is not the expected one,
/// `limit_exceeded` if it is too large.
pub async fn download(request: &HttpRequest) -> Result<Download> {
    let reporter = Reporter::new(request);
    let fetch = Fetch::new(request, reporter)?;
    let total = request.timeouts.total;
    match timeout(total, fetch.run()).await {
        Ok(result) => result,
        Err(_) => Err(fetch.reporter.late(&format!("it took longer than {} s", total.as_secs_f64())).into()),
    }
}

/// A request that has been checked.
struct Fetch<'a> {
    request: &'a HttpRequest,
    reporter: Reporter,
    url: Url,
    headers: HeaderMap,
    reach: Reach,
}

impl<'a> Fetch<'a> {
    fn new(request: &'a HttpRequest, reporter: Reporter) -> Result<Self> {
        let mut url = Url::parse(&request.url).map_err(|error| reporter.refuse(&format!("{error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(reporter.refuse("only http and https addresses can be fetched").into());
        }
        let mut headers = HeaderMap::new();
        if let Some(user) = Credentials::take(&mut url) {
            let basic = header_value(&user.basic()).ok_or_else(|| reporter.refuse("the user is malformed"))?;
            headers.insert(AUTHORIZATION, basic);
        }
        for (name, value) in &request.headers {
            let known = HeaderName::from_bytes(name.as_bytes())
                .ok()
                .filter(|name| !CONNECTION_HEADERS.contains(&name.as_str()));
            let (Some(known), Some(value)) = (known, header_value(value.expose())) else {
                return Err(reporter.refuse(&format!("the header {name:?} cannot be sent")).into());
            };
            headers.insert(known, value);
        }
        let reach = if request.public_only { Reach::Public } else { Reach::Anywhere };
        Ok(Self { request, reporter, url, headers, reach })
    }

    async fn run(&self) -> Result<Download> {
        let Retries { attempts, mut pause } = self.request.retries;
        let mut made = 1;
        loop {
            let failure = match self.attempt().await {
                Ok(download) => return Ok(download),
                Err(failure) => failure,
            };
            let wait = match &failure {
                Failure::Passing { pause: asked, .. } if made < attempts => asked.unwrap_or(pause),
                Failure::Passing { .. } | Failure::Lasting(_) => return Err(failure.into()),
            };
            if wait > LONGEST_PAUSE {
                return Err(failure.into());
            }
            sleep(wait).await;
            pause = pause.saturating_mul(2);
            made += 1;
        }
    }

    async fn attempt(&self) -> Result<Download, Failure> {
        let answer = follow::follow(self).await?;
        spool::spool(self, answer).await
    }
}

/// A header value that HTTP libraries do not log.
fn header_value(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

impl Reporter {
    fn new(request: &HttpRequest) -> Self {
        let secrets = request.headers.iter().map(|(_, secret)| secret.expose().to_owned());
        Self { shown: shown_text(&request.url), redaction: Redaction::new(secrets) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_is_refused_before_anything_is_sent() {
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
            let reporter = Reporter::new(&request);
            let error = Fetch::new(&request, reporter).err().expect("a refusal");
            assert_eq!((error.code(), error.retryable()), ("remote_fetch_error", Some(false)), "{request:?}");
            assert!(!error.full_message().contains("hunter2"));
        }
    }
}
