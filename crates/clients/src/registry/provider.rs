//! The provider interface: what the registry asks a provider.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use sandbar_machine::{BoxError, MachineSpec, Result, SandboxClient, Supports};
use serde::Serialize;
use serde_json::Value;

use super::{ClientContext, leftovers::Leftovers};

/// A source of machines that programs choose by name. Four methods are required.
#[async_trait]
pub trait Provider: Send + Sync + fmt::Debug {
    /// Name of the provider in `NAME:ARGUMENT`, and the [id](SandboxClient::id) of its clients.
    fn name(&self) -> &'static str;

    /// What the provider's machines are, as a phrase that follows the name: `a container of this image`.
    fn summary(&self) -> &'static str;

    /// The argument that follows the name.
    fn argument(&self) -> Argument {
        Argument::None
    }

    /// The parts of a specification that the provider's machines support.
    fn supports(&self) -> &'static Supports;

    /// Creates a client. The argument is one that [`argument`](Self::argument) accepts.
    ///
    /// # Errors
    /// [`sandbar_machine::MachineError::Invalid`] if the provider is not set up, with what to do.
    fn client(&self, argument: Option<&str>, context: &ClientContext) -> Result<Arc<dyn SandboxClient>>;

    /// Creates a client that finds and deletes machines by their handles, and creates none.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    fn finder(&self, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        self.client(None, context)
    }

    /// Whether this user has set the provider up. A provider that is not set up is used only if it is named explicitly.
    fn is_set_up(&self) -> bool {
        true
    }

    /// Starts work in the background that the first machine of this process would wait for. Programs call it when they
    /// are about to create a machine.
    fn prepare(&self) {}

    /// The first limit of a specification that the provider's machines accept on this host but cannot enforce.
    fn unenforced(&self, _spec: &MachineSpec) -> Option<Unenforced> {
        None
    }

    /// Checks whether the provider works. `None`: there is nothing to check.
    async fn diagnose(&self) -> Option<Diagnosis> {
        None
    }

    /// The leftovers of the provider's dead clients. `None`: there are none, or the provider removes them itself.
    fn leftovers(&self) -> Option<&dyn Leftovers> {
        None
    }
}

/// The argument of a provider: the text after the name and a colon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// No argument.
    None,
    /// A required argument.
    Required {
        /// Name of the argument: `IMAGE`.
        name: &'static str,
        /// An example that works for many users.
        example: &'static str,
    },
    /// An optional argument.
    Optional {
        /// Name of the argument: `TEMPLATE`.
        name: &'static str,
        /// The value that is used without the argument.
        default: &'static str,
    },
}

impl Argument {
    /// Whether this argument is accepted.
    #[must_use]
    pub fn takes(self, argument: Option<&str>) -> bool {
        match (self, argument) {
            (_, Some("")) | (Self::None, Some(_)) | (Self::Required { .. }, None) => false,
            (Self::None | Self::Optional { .. }, None) | (Self::Required { .. } | Self::Optional { .. }, Some(_)) => {
                true
            }
        }
    }

    /// The form of a source with this argument: `docker:IMAGE`, `e2b[:TEMPLATE]`.
    #[must_use]
    pub fn form(self, provider: &str) -> String {
        match self {
            Self::None => provider.to_owned(),
            Self::Required { name, .. } => format!("{provider}:{name}"),
            Self::Optional { name, .. } => format!("{provider}[:{name}]"),
        }
    }

    pub(super) fn example(self) -> Option<&'static str> {
        match self {
            Self::Required { example, .. } => Some(example),
            Self::None | Self::Optional { .. } => None,
        }
    }
}

/// A limit that cannot be enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unenforced {
    /// Name of the limit: `memory`, `cpus` or `disk`.
    pub limit: &'static str,
    /// Why the limit cannot be enforced.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// The result of [`Provider::diagnose`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Diagnosis {
    /// Address of the provider.
    pub address: String,
    /// Whether the provider answered.
    pub reached: bool,
    /// Why the provider did not answer.
    pub reason: Option<String>,
    /// What to do about it.
    pub fix: Option<String>,
    /// Description of the provider for the terminal, one entry per line.
    #[serde(skip)]
    pub lines: Vec<String>,
    /// The same description as a JSON object.
    #[serde(flatten)]
    pub details: Value,
}

/// A provider that cannot be reached: the source of a [`sandbar_machine::MachineError::Start`] whose text contains all
/// of this.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Unreachable {
    /// Address at which the provider should listen.
    pub address: String,
    /// Why the provider cannot be reached.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
    /// The error of the operating system.
    pub cause: BoxError,
}
