//! The registry of providers: a program uses it to create clients by name, to find machines by handle, to check the
//! setup and to remove leftovers.
//!
//! ```
//! use sandbar_clients::{ClientContext, Registry};
//!
//! # fn main() -> sandbar_machine::Result<()> {
//! let registry = Registry::builtin();
//! let source = registry.parse("local")?;
//! let client = registry.client(&source, &ClientContext::default())?;
//! assert_eq!(client.id(), "local");
//! assert!(registry.parse("nowhere").is_err());
//! # Ok(())
//! # }
//! ```
//!
//! To add your own provider, implement [`Provider`] for a type and pass it to [`Registry::with`].

mod leftovers;
mod provider;

use std::{fmt, path::PathBuf, sync::Arc};

use sandbar_machine::{MachineError, MachineHandle, Result, SandboxClient};

pub use self::{
    leftovers::{Fate, Leftover, Leftovers, LeftoversFound, Scope, SessionRecords},
    provider::{Argument, Diagnosis, Provider, Unenforced, Unreachable},
};

/// The providers that a program knows. The first one is the default.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    providers: Vec<Arc<dyn Provider>>,
}

impl Registry {
    /// A registry without providers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The providers of this crate; the local provider is first.
    #[must_use]
    pub fn builtin() -> Self {
        let registry = Self::new();
        #[cfg(target_os = "linux")]
        let registry = registry.with(crate::local::LocalProvider::default());
        #[cfg(all(feature = "docker", target_os = "linux"))]
        let registry = registry.with(crate::docker::DockerProvider);
        #[cfg(all(feature = "e2b", target_os = "linux"))]
        let registry = registry.with(crate::e2b::E2bProvider::default());
        registry
    }

    /// Adds a provider. It replaces a provider of the same name.
    #[must_use]
    pub fn with(mut self, provider: impl Provider + 'static) -> Self {
        let provider: Arc<dyn Provider> = Arc::new(provider);
        match self.providers.iter_mut().find(|known| known.name() == provider.name()) {
            Some(known) => *known = provider,
            None => self.providers.push(provider),
        }
        self
    }

    /// All providers, the default first.
    pub fn providers(&self) -> impl Iterator<Item = &dyn Provider> {
        self.providers.iter().map(AsRef::as_ref)
    }

    /// The provider with this name.
    ///
    /// # Errors
    /// [`MachineError::Invalid`], which lists the known names.
    pub fn provider(&self, name: &str) -> Result<&dyn Provider> {
        let found = self.providers().find(|provider| provider.name() == name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.providers().map(Provider::name).collect();
            MachineError::invalid(format!("sandbox {name:?}"), format!("is not known; there are {}", names.join(", ")))
        })
    }

    /// The default provider.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the registry has no providers.
    pub fn default_provider(&self) -> Result<&dyn Provider> {
        self.providers().next().ok_or_else(|| MachineError::invalid("the registry", "has no providers"))
    }

    /// Reads `NAME` or `NAME:ARGUMENT`, such as `docker:python:3.12-slim`.
    ///
    /// # Errors
    /// [`MachineError::Invalid`], which lists the accepted forms.
    pub fn parse(&self, text: &str) -> Result<Source> {
        let (name, argument) = match text.split_once(':') {
            Some((name, argument)) => (name, Some(argument.to_owned())),
            None => (text, None),
        };
        let fits = self.providers().any(|one| one.name() == name && one.argument().takes(argument.as_deref()));
        if fits {
            return Ok(Source { provider: name.to_owned(), argument });
        }
        Err(MachineError::invalid(format!("sandbox {text:?}"), format!("is not known; it must be {}", self.forms())))
    }

    /// The accepted forms of a source, as one phrase: `local or docker:IMAGE, for instance docker:python:3.12-slim`.
    #[must_use]
    pub fn forms(&self) -> String {
        let forms: Vec<String> = self.providers().map(|one| one.argument().form(one.name())).collect();
        let forms = match forms.as_slice() {
            [] => "nothing: there are no providers".to_owned(),
            [one] => one.clone(),
            [others @ .., last] => format!("{} or {last}", others.join(", ")),
        };
        let example = self.providers().find_map(|one| one.argument().example().map(|text| (one.name(), text)));
        example.map_or(forms.clone(), |(name, text)| format!("{forms}, for instance {name}:{text}"))
    }

    /// The client that creates machines of this source.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if this registry does not accept the source, or if its provider is not set up.
    pub fn client(&self, source: &Source, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        let provider = self.provider(&source.provider)?;
        if !provider.argument().takes(source.argument.as_deref()) {
            let form = provider.argument().form(provider.name());
            return Err(MachineError::invalid(format!("sandbox {:?}", source.to_string()), format!("must be {form}")));
        }
        provider.client(source.argument.as_deref(), context)
    }

    /// The client that finds the machine with this handle.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] if the provider is not known or not set up.
    pub fn client_of(&self, handle: &MachineHandle, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        self.provider(&handle.client)?.finder(context)
    }
}

/// A provider and its argument, as read by [`Registry::parse`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    provider: String,
    argument: Option<String>,
}

impl Source {
    /// The name of the provider.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The text after the colon.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        self.argument.as_deref()
    }
}

/// The text that [`Registry::parse`] reads.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.argument {
            Some(argument) => write!(f, "{}:{argument}", self.provider),
            None => f.write_str(&self.provider),
        }
    }
}

/// Receives one line of progress for a create that takes long, for instance the download of an image.
pub type ProgressListener = Arc<dyn Fn(&str) + Send + Sync>;

/// What a program passes to every client that it creates.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct ClientContext {
    /// The list of the sessions that machines are created for, if there is one.
    pub sessions: Option<SessionList>,
    /// Receives the progress of creates.
    pub progress: Option<ProgressListener>,
}

impl ClientContext {
    /// Sets the session list that machines are created for.
    #[must_use]
    pub fn sessions(self, sessions: SessionList) -> Self {
        Self { sessions: Some(sessions), ..self }
    }

    /// Sets the progress listener.
    #[must_use]
    pub fn progress(self, listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { progress: Some(Arc::new(listener)), ..self }
    }
}

impl fmt::Debug for ClientContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientContext").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// A list of sessions on this host.
#[derive(Clone)]
pub struct SessionList {
    /// The directory that holds the machines of these sessions on this host.
    pub machines: PathBuf,
    id: Arc<dyn Fn() -> Result<String> + Send + Sync>,
}

impl SessionList {
    /// A list whose machines are in this directory. `id` returns the identity of the list: the same value at each call,
    /// and different from that of every other list. Only clients that record the identity call it.
    #[must_use]
    pub fn new(machines: impl Into<PathBuf>, id: impl Fn() -> Result<String> + Send + Sync + 'static) -> Self {
        Self { machines: machines.into(), id: Arc::new(id) }
    }

    /// The identity of the list.
    ///
    /// # Errors
    /// The errors of the `id` function that the list was created with.
    pub fn id(&self) -> Result<String> {
        (self.id)()
    }
}

impl fmt::Debug for SessionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionList").field("machines", &self.machines).finish_non_exhaustive()
    }
}
