//! The connection to an engine: its address, a timeout for every request, and what to do if it does not answer.

use std::{
    error::Error as StdError,
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bollard::{API_DEFAULT_VERSION, errors::Error};
use sandbar_machine::{MachineError, Result};
use tokio::time::timeout;

use crate::registry::Unreachable;

const SOCKET: &str = "/var/run/docker.sock";
/// Default timeout of every request that is neither a pull nor a build.
const PATIENCE: Duration = Duration::from_secs(60);

/// The address of a Docker engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    pub(super) address: Address,
    patience: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Engine {
    /// The engine at this host's default socket.
    #[must_use]
    pub fn local() -> Self {
        Self::of(Address::Unix(SOCKET.into()))
    }

    /// The engine that `DOCKER_HOST` names, or the one at this host's default socket.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the variable holds neither a socket nor a host.
    pub fn from_env() -> Result<Self> {
        match std::env::var("DOCKER_HOST") {
            Ok(address) if !address.is_empty() => Self::at(&address),
            _ => Ok(Self::local()),
        }
    }

    /// The engine at an address: `unix:///run/docker.sock` or `tcp://127.0.0.1:2375`. TCP is not encrypted.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] for any other kind of address.
    pub fn at(address: &str) -> Result<Self> {
        let bad = |reason: &str| Err(MachineError::invalid(format!("engine address {address:?}"), reason));
        if let Some(path) = address.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::of(Address::Unix(path.into())))
            } else {
                bad("must be an absolute path, like unix:///var/run/docker.sock")
            };
        }
        match address.strip_prefix("tcp://").map(|host| host.trim_end_matches('/')) {
            Some(host) if is_host(host) => Ok(Self::of(Address::Tcp(host.to_owned()))),
            Some(_) => bad("must be a host and a port, like tcp://127.0.0.1:2375"),
            None => bad("must begin with unix:// or tcp://; for an engine elsewhere, forward its socket with ssh -L"),
        }
    }

    /// Sets the timeout of every request that is neither a pull nor a build; the default is one minute.
    #[must_use]
    pub fn patience(mut self, most: Duration) -> Self {
        self.patience = most;
        self
    }

    fn of(address: Address) -> Self {
        Self { address, patience: PATIENCE }
    }

    /// The deadline of a request that starts now.
    pub(super) fn until(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Path of the socket, if the address is a socket of this host.
    pub(super) fn socket(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }

    /// Creates an API client; sends nothing yet.
    pub(super) fn connect(&self) -> Result<bollard::Docker> {
        // The API client's own timeout must not be the first to expire.
        let seconds = self.patience.as_secs() + 1;
        let made = match &self.address {
            Address::Unix(path) => {
                bollard::Docker::connect_with_unix(&path.to_string_lossy(), seconds, API_DEFAULT_VERSION)
            }
            Address::Tcp(host) => bollard::Docker::connect_with_http(host, seconds, API_DEFAULT_VERSION),
        };
        made.map_err(|error| self.api_error("reach it", error))
    }

    /// Waits for an answer until the timeout.
    pub(super) async fn ask<T>(&self, action: &str, asked: impl Future<Output = Result<T, Error>>) -> Result<T> {
        self.within(action, asked).await?.map_err(|error| self.api_error(action, error))
    }

    /// The same, but returns the engine's refusals to the caller.
    pub(super) async fn within<T>(&self, action: &str, asked: impl Future<Output = T>) -> Result<T> {
        timeout(self.patience, asked).await.map_err(|_late| {
            let why = format!("it did not answer within {:?}", self.patience);
            self.failed(action, why)
        })
    }

    pub(super) fn failed(&self, action: &str, source: impl Into<sandbar_machine::BoxError>) -> MachineError {
        MachineError::Start {
            stage: format!("the Docker engine at {self} was asked to {action}"),
            source: source.into(),
        }
    }

    /// The error for the user, with what to do if the engine cannot be reached.
    pub(super) fn api_error(&self, action: &str, error: Error) -> MachineError {
        let cause = match error {
            Error::SocketNotFoundError(_) => Some(io::ErrorKind::NotFound.into()),
            Error::DockerResponseServerError { status_code, message } => {
                return self.failed(action, format!("it answered {status_code}: {message}"));
            }
            ref other => cause(other).map(|cause| io::Error::from(cause.kind())),
        };
        match cause.and_then(|cause| unreachable(self, cause)) {
            None => self.failed(action, error),
            Some(found) => {
                let Unreachable { address, reason, fix, .. } = &found;
                let stage = format!("cannot reach the Docker engine at {address}: {reason}; {fix}");
                MachineError::Start { stage, source: found.into() }
            }
        }
    }
}

/// Why an engine cannot be reached, if the error tells.
fn unreachable(engine: &Engine, cause: io::Error) -> Option<Unreachable> {
    let (reason, fix) = match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => (
            "nothing listens there",
            "start one (`systemctl start docker`), or set DOCKER_HOST to where one does".to_owned(),
        ),
        io::ErrorKind::PermissionDenied => (
            "this user may not open its socket",
            format!(
                "add the user to the group `docker` (whose members are as good as root), or set DOCKER_HOST to a rootless \
                 engine's (unix:///run/user/{}/docker.sock)",
                rustix::process::getuid().as_raw()
            ),
        ),
        _ => return None,
    };
    Some(Unreachable { address: engine.to_string(), reason: reason.to_owned(), fix, cause: cause.into() })
}

/// The innermost error of the operating system.
fn cause(error: &Error) -> Option<&io::Error> {
    let mut next = error.source();
    while let Some(inner) = next {
        if let Some(found) = inner.downcast_ref::<io::Error>() {
            return Some(found);
        }
        next = inner.source();
    }
    None
}

/// The host goes into a request line and must not contain anything that ends the line.
fn is_host(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte);
    host.bytes().all(plain)
        && host.rsplit_once(':').is_some_and(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok())
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Address::Unix(path) => write!(f, "unix://{}", path.display()),
            Address::Tcp(host) => write!(f, "tcp://{host}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_socket_or_a_host_with_a_port() {
        for good in ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://[::1]:2375"] {
            assert_eq!(Engine::at(good).expect(good).to_string(), good);
        }
        for bad in
            ["unix://docker.sock", "tcp://host", "tcp://:1", "tcp://a b:1", "tcp://a\r\nb:1", "ssh://me@host", "x"]
        {
            assert_eq!(Engine::at(bad).expect_err(bad).code(), "invalid");
        }
    }

    #[tokio::test]
    async fn an_engine_that_is_not_there_says_what_to_do() {
        let absent = Engine::at("unix:///no/such/docker.sock").expect("an address").connect().expect_err("absent");
        assert!(absent.to_string().contains("start one"), "{absent}");
        let closed = Engine::at("tcp://127.0.0.1:1").expect("an address");
        let asked = closed.connect().expect("nothing is asked yet");
        let refused = closed.ask("tell its version", asked.version()).await.expect_err("refused");
        assert!(refused.to_string().contains("DOCKER_HOST"), "{refused}");
    }
}
