//! Garbage collection: removes what dead processes left (machines, containers, volumes, records and runs), and nothing else.

use sandbar::{
    MachineError,
    client::{
        Registry,
        registry::{Fate, Leftovers, Provider, Scope},
    },
};

use crate::{Error, Result, RunStore, StateDir, error::other, sessions::Sessions};

/// What [`collect`] searches, and whether it removes anything.
#[derive(Clone, Debug, Default)]
pub struct GcOptions {
    dry_run: bool,
    provider: Option<String>,
}

impl GcOptions {
    /// Reports what would be removed, and removes nothing.
    #[must_use]
    pub fn dry_run(mut self, is_dry: bool) -> Self {
        self.dry_run = is_dry;
        self
    }

    /// Searches only one provider, which must then be reachable. Sessions and runs belong to the default provider.
    #[must_use]
    pub fn provider(mut self, name: Option<String>) -> Self {
        self.provider = name;
        self
    }
}

/// Something that a dead process left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Garbage {
    /// `machine`, `container`, `volume`, `session`, `record` or `run`.
    pub kind: &'static str,
    /// Name or id.
    pub name: String,
    /// Why it is removed or retained.
    pub reason: String,
}

impl Garbage {
    fn new(kind: &'static str, name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, name: name.into(), reason: reason.into() }
    }
}

/// What [`collect`] reports while it works.
#[derive(Debug)]
#[non_exhaustive]
pub enum GcEvent {
    /// What is done now.
    Progress(String),
    /// A provider was searched, at this address if it has one.
    Searched(&'static str, Option<String>),
    /// A provider cannot be reached.
    Unreachable(&'static str, Error),
    /// A note for the user.
    Note(String),
    /// Something was removed, or would be removed in a dry run.
    Removed(Garbage),
    /// Something whose removal continues without this process.
    Removing(Garbage),
    /// Something that cannot be proven to be garbage.
    Retained(Garbage),
    /// Something, named first, cannot be searched or removed.
    Failed(String, Error),
}

/// Receives the events.
pub type Observer<'a> = dyn FnMut(GcEvent) + Send + 'a;

/// Removes garbage of this user; sessions and runs only if there is a `state` directory. The future can be dropped at any time: what is half removed is removed by the next call.
///
/// # Errors
/// If [`GcOptions::provider`] names a provider that cannot be reached. Everything else is an event.
pub async fn collect(
    state: Option<&StateDir>,
    registry: &Registry,
    options: &GcOptions,
    observer: &mut Observer<'_>,
) -> Result<()> {
    let sessions = state.and_then(|state| {
        Sessions::open_existing(state, registry.clone()).unwrap_or_else(|error| {
            observer(GcEvent::Failed("sessions".to_owned(), error));
            None
        })
    });
    let mut collector = Collector { sessions: sessions.as_ref(), options, observer };
    for provider in registry.providers() {
        let is_wanted = match &options.provider {
            Some(name) => name == provider.name(),
            None => provider.is_set_up(),
        };
        if let Some(leftovers) = provider.leftovers().filter(|_| is_wanted) {
            collector.provider(provider, leftovers).await?;
        }
    }
    let default = registry.default_provider().ok().map(Provider::name);
    if options.provider.is_none() || options.provider.as_deref() == default {
        collector.records();
        collector.gone_sessions().await;
        if let Some(state) = state {
            collector.runs(state).await;
        }
    }
    Ok(())
}

struct Collector<'a, 'o> {
    sessions: Option<&'a Sessions>,
    options: &'a GcOptions,
    observer: &'a mut Observer<'o>,
}

impl Collector<'_, '_> {
    fn tell(&mut self, event: GcEvent) {
        (self.observer)(event);
    }

    /// Removes what dead clients left at one provider.
    async fn provider(&mut self, provider: &dyn Provider, leftovers: &dyn Leftovers) -> Result<()> {
        let name = provider.name();
        self.tell(GcEvent::Progress(format!("searching {name} for leftovers")));
        let found = match leftovers.find(Scope::User(self.sessions.map(Sessions::records))).await {
            Ok(found) => found,
            Err(error) if self.options.provider.is_some() => return Err(error.into()),
            Err(error) => {
                self.tell(GcEvent::Unreachable(name, error.into()));
                return Ok(());
            }
        };
        self.tell(GcEvent::Searched(name, found.address));
        found.notes.into_iter().for_each(|note| self.tell(GcEvent::Note(note)));
        for error in found.failures {
            self.tell(GcEvent::Failed(format!("{name} machines"), error.into()));
        }
        let total = found.things.iter().filter(|thing| thing.fate == Fate::Remove).count();
        let mut count = 0;
        for thing in found.things {
            let garbage = Garbage::new(thing.kind, thing.name.clone(), thing.why.clone());
            match thing.fate {
                Fate::Keep => self.tell(GcEvent::Retained(garbage)),
                Fate::Removing => self.tell(GcEvent::Removing(garbage)),
                Fate::Remove => {
                    count += 1;
                    let progress = format!("removing {count} of {total}: {} {}", thing.kind, thing.name);
                    self.tell(GcEvent::Progress(progress));
                    let removed = if self.options.dry_run { Ok(()) } else { leftovers.remove(&thing).await };
                    self.tell(match removed {
                        Ok(()) => GcEvent::Removed(garbage),
                        Err(MachineError::StillBeingRemoved { .. }) => {
                            GcEvent::Removing(Garbage { reason: "the removal takes long".to_owned(), ..garbage })
                        }
                        Err(error) => GcEvent::Failed(format!("{} {}", garbage.kind, garbage.name), error.into()),
                    });
                }
            }
        }
        Ok(())
    }

    fn outcome(&mut self, garbage: Garbage, removed: Result<()>) {
        self.tell(match removed {
            Ok(()) => GcEvent::Removed(garbage),
            Err(error) => GcEvent::Failed(format!("{} {}", garbage.kind, garbage.name), error),
        });
    }

    /// Removes records whose writers were killed.
    fn records(&mut self) {
        let Some(sessions) = self.sessions else { return };
        let store = sessions.store();
        let names = store.half_written().unwrap_or_else(|error| {
            self.tell(GcEvent::Failed("sessions".to_owned(), error.into()));
            Vec::new()
        });
        for name in names {
            let removed = if self.options.dry_run { Ok(()) } else { store.remove_half_written(&name) };
            self.outcome(Garbage::new("record", name, "it was not written completely"), removed.map_err(Error::from));
        }
    }

    /// Removes sessions whose machine ended by itself or with the host: only their record is left.
    async fn gone_sessions(&mut self) {
        let Some(sessions) = self.sessions else { return };
        let gone = match sessions.gone().await {
            Ok(gone) => gone,
            Err(error) => return self.tell(GcEvent::Failed("sessions".to_owned(), error)),
        };
        for state in gone {
            let removed = if self.options.dry_run { Ok(()) } else { sessions.remove_gone(&state).await };
            self.outcome(Garbage::new("session", state.session_id, "its machine is gone"), removed);
        }
    }

    /// Removes the remnants of runs.
    async fn runs(&mut self, state: &StateDir) {
        let store = match RunStore::existing(state) {
            Ok(Some(store)) => store,
            Ok(None) => return,
            Err(error) => return self.tell(GcEvent::Failed("runs".to_owned(), error)),
        };
        for remnant in store.remnants() {
            let garbage = Garbage::new("run", remnant.name(), remnant.why());
            self.tell(GcEvent::Progress(format!("removing {}", remnant.name())));
            let mut removed = Ok(());
            if !self.options.dry_run {
                let store = store.clone();
                let removal = tokio::task::spawn_blocking(move || store.remove_remnant(&remnant)).await;
                removed = removal.unwrap_or_else(|panic| Err(other(panic.to_string())));
            }
            self.outcome(garbage, removed.map_err(|error| Error::io("a part of the run is left", error)));
        }
    }
}
