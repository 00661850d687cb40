//! The registry: which sources it accepts, how it finds machines by handle, and that adding a provider takes one type
//! and one line.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use sandbar_clients::{
    ClientContext, Provider, Registry,
    registry::{Argument, Fate, Scope, SessionList, SessionRecords},
};
use sandbar_machine::{
    Isolation, Lifetime, MachineHandle, MachineSpec, MemoryClient, Network, Result, SandboxClient, Support, Supports,
};

const SUPPORTS: Supports = Supports::new(Isolation::Provider, &[Support::NetworkOff]);

/// Machines in memory, with a size as their argument.
#[derive(Debug, Default)]
struct Memory {
    client: Arc<MemoryClient>,
    asked: Arc<Mutex<Vec<Option<String>>>>,
}

#[async_trait]
impl Provider for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn summary(&self) -> &'static str {
        "nothing but memory"
    }

    fn argument(&self) -> Argument {
        Argument::Optional { name: "SIZE", default: "small" }
    }

    fn supports(&self) -> &'static Supports {
        &SUPPORTS
    }

    fn client(&self, argument: Option<&str>, _context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        self.asked.lock().push(argument.map(ToOwned::to_owned));
        Ok(self.client.clone())
    }
}

#[test]
fn sources_are_read_and_the_rest_is_refused_with_what_could_be_written() {
    let registry = Registry::builtin();
    let names: Vec<&str> = registry.providers().map(Provider::name).collect();
    assert_eq!(names, ["local", "docker", "e2b"]);
    assert_eq!(registry.default_provider().unwrap().name(), "local");
    for text in ["local", "docker:python:3.12-slim", "e2b", "e2b:base"] {
        assert_eq!(registry.parse(text).unwrap().to_string(), text);
    }
    assert_eq!(registry.parse("docker:a:b").unwrap().argument(), Some("a:b"));
    for text in ["", "moon", "local:", "local:x", "docker", "docker:", "e2b:", "LOCAL"] {
        let refused = registry.parse(text).unwrap_err().to_string();
        assert!(
            refused.contains("it must be local, docker:IMAGE or e2b[:TEMPLATE], for instance docker:python"),
            "{refused}"
        );
    }
    assert!(Registry::new().parse("local").is_err() && Registry::new().default_provider().is_err());
}

#[tokio::test]
async fn one_type_and_one_line_add_a_provider() {
    let asked = Arc::<Mutex<Vec<_>>>::default();
    let registry = Registry::builtin().with(Memory { asked: asked.clone(), ..Memory::default() });
    assert!(registry.forms().contains("memory[:SIZE]"), "{}", registry.forms());
    let context = ClientContext::default();
    for text in ["memory", "memory:large"] {
        let source = registry.parse(text).unwrap();
        let machine = registry.client(&source, &context).unwrap().create(MachineSpec::default()).await.unwrap();
        let handle = machine.handle();
        let finder = registry.client_of(&handle, &context).unwrap();
        assert!(finder.exists(&handle).await.unwrap() && finder.attach(&handle).await.unwrap().is_some());
        finder.delete(&handle).await.unwrap();
        assert!(!finder.exists(&handle).await.unwrap());
    }
    assert_eq!(*asked.lock(), [None, None, Some("large".to_owned()), None]);
    let provider = registry.provider("memory").unwrap();
    assert!(provider.leftovers().is_none() && provider.diagnose().await.is_none() && provider.is_set_up());
    // A second provider of the same name replaces the first.
    assert_eq!(registry.with(Memory::default()).providers().count(), 4);
    let unknown = MachineHandle { client: "moon".to_owned(), state: serde_json::json!({}) };
    let refused = Registry::builtin().client_of(&unknown, &context).unwrap_err().to_string();
    assert!(refused.contains("there are local, docker, e2b"), "{refused}");
}

#[tokio::test]
async fn a_machine_of_this_process_is_found_through_another_client_of_the_registry() {
    let registry = Registry::builtin();
    let (source, context) = (registry.parse("local").unwrap(), ClientContext::default());
    let machine = registry.client(&source, &context).unwrap().create(MachineSpec::default()).await.unwrap();
    let finder = registry.client_of(&machine.handle(), &context).unwrap();
    assert!(finder.attach(&machine.handle()).await.unwrap().is_some());
    machine.stop().await.unwrap();
    assert!(finder.attach(&machine.handle()).await.unwrap().is_none());
}

#[test]
fn each_provider_refuses_a_network_that_its_machines_cannot_have() {
    let registry = Registry::builtin();
    let table = [("local", Network::Open), ("e2b", Network::Host)];
    for (name, network) in table {
        let supports = registry.provider(name).unwrap().supports();
        let error = MachineSpec::default().network(network).refuse_unless(supports).unwrap_err();
        assert_eq!(error.code(), "unsupported", "{name}");
    }
}

struct Records {
    list: SessionList,
    handles: Result<Vec<MachineHandle>, String>,
}

impl SessionRecords for Records {
    fn list(&self) -> &SessionList {
        &self.list
    }

    fn handles(&self) -> Result<Vec<MachineHandle>, String> {
        self.handles.clone()
    }
}

#[tokio::test]
async fn a_machine_that_no_session_has_is_left_over_and_one_in_doubt_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let list = SessionList::new(directory.path().join("machines"), || Ok("a list".to_owned()));
    let registry = Registry::builtin();
    let context = ClientContext::default().sessions(list.clone());
    let client = registry.client(&registry.parse("local").unwrap(), &context).unwrap();
    let spec = || MachineSpec::default().lifetime(Lifetime::Detached);
    let (has, lost) = (client.create(spec()).await.unwrap(), client.create(spec()).await.unwrap());
    let records = |handles| Records { list: list.clone(), handles };
    let leftovers = registry.default_provider().unwrap().leftovers().unwrap();
    let unclear = records(Err("a record is damaged".to_owned()));
    let found = leftovers.find(Scope::Sessions(&unclear)).await.unwrap();
    assert!(found.things.len() == 2 && found.things.iter().all(|thing| thing.fate == Fate::Keep), "{found:?}");
    assert!(found.notes[0].starts_with("a record is damaged"), "{found:?}");
    let known = records(Ok(vec![has.handle()]));
    let found = leftovers.find(Scope::Sessions(&known)).await.unwrap();
    let removed: Vec<_> = found.things.iter().filter(|thing| thing.fate == Fate::Remove).collect();
    assert_eq!((removed.len(), found.things.len()), (1, 2), "{found:?}");
    leftovers.remove(removed[0]).await.unwrap();
    leftovers.remove(removed[0]).await.unwrap();
    assert!(client.exists(&has.handle()).await.unwrap() && !client.exists(&lost.handle()).await.unwrap());
    client.delete(&has.handle()).await.unwrap();
}
