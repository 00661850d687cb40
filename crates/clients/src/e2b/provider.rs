//! The registry entry of the E2B client.

use std::sync::Arc;

use async_trait::async_trait;
use sandbar_machine::{MachineError, MachineHandle, Result, SandboxClient, Supports};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{E2b, HandleState, HeldSandboxes, ID, SESSIONS, SUPPORTS};
use crate::{
    random::hex,
    registry::{
        Argument, ClientContext, Diagnosis, Fate, Leftover, Leftovers, LeftoversFound, Provider, Scope, SessionList,
    },
};

const TEMPLATE: &str = "base";

/// Virtual machines of an account, whose key is in the environment. All clients of this provider share their machines.
#[derive(Clone, Debug, Default)]
pub(crate) struct E2bProvider {
    held: HeldSandboxes,
}

impl E2bProvider {
    fn e2b(&self, template: &str) -> Result<E2b> {
        Ok(E2b { held: self.held.clone(), ..E2b::from_env(template)? })
    }
}

#[async_trait]
impl Provider for E2bProvider {
    fn name(&self) -> &'static str {
        ID
    }

    fn summary(&self) -> &'static str {
        "a virtual machine at E2B, for the account of E2B_API_KEY"
    }

    fn argument(&self) -> Argument {
        Argument::Optional { name: "TEMPLATE", default: TEMPLATE }
    }

    fn supports(&self) -> &'static Supports {
        &SUPPORTS
    }

    fn client(&self, argument: Option<&str>, context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        let mut client = self.e2b(argument.unwrap_or(TEMPLATE))?;
        client.sessions = context.sessions.as_ref().map(list_mark).transpose()?;
        Ok(Arc::new(client))
    }

    /// Without a session list, which only new machines need.
    fn finder(&self, _context: &ClientContext) -> Result<Arc<dyn SandboxClient>> {
        Ok(Arc::new(self.e2b(TEMPLATE)?))
    }

    fn is_set_up(&self) -> bool {
        E2b::from_env(TEMPLATE).is_ok()
    }

    async fn diagnose(&self) -> Option<Diagnosis> {
        let client = match E2b::from_env(TEMPLATE) {
            Ok(client) => client,
            Err(error) => {
                return Some(Diagnosis { reason: Some(error.to_string()), details: json!({}), ..Diagnosis::default() });
            }
        };
        let address = client.address();
        let asked = client.marked("sandbar", "doctor").await;
        let reason = asked.as_ref().err().map(MachineError::with_causes);
        let lines = vec![format!("E2B at {address}, which took the key")];
        Some(Diagnosis { address, reached: asked.is_ok(), reason, fix: None, lines, details: json!({}) })
    }

    fn leftovers(&self) -> Option<&dyn Leftovers> {
        Some(self)
    }
}

/// The metadata of a session list's sandboxes. A hash, because the id of the list contains paths of this host.
fn list_mark(list: &SessionList) -> Result<String> {
    let digest = Sha256::digest(list.id()?.as_bytes());
    Ok(hex(&digest).chars().take(32).collect())
}

/// Finds detached machines that no session has: their creators were killed before they recorded them. Others end by
/// themselves.
#[async_trait]
impl Leftovers for E2bProvider {
    async fn find(&self, scope: Scope<'_>) -> Result<LeftoversFound> {
        let client = E2b::from_env(TEMPLATE)?;
        let mut found = LeftoversFound { address: Some(client.address()), ..LeftoversFound::default() };
        let Some(sessions) = scope.sessions() else { return Ok(found) };
        let mark = match list_mark(sessions.list()) {
            Ok(mark) => mark,
            Err(error) => {
                found.failures.push(error);
                return Ok(found);
            }
        };
        let machines = client.marked(SESSIONS, &mark).await?;
        if machines.is_empty() {
            return Ok(found);
        }
        let handles = match sessions.handles() {
            Ok(handles) => handles,
            Err(why) => {
                found.notes.push(format!("{why}; machines at E2B without a session were left as they are"));
                return Ok(found);
            }
        };
        let sandbox = |handle: &MachineHandle| HandleState::read(handle).ok().map(|state| state.sandbox);
        let known: Vec<String> = handles.iter().filter_map(sandbox).collect();
        for machine in machines {
            let (why, fate) = match known.contains(&machine.sandbox_id) {
                true => ("a session has it", Fate::Keep),
                false => ("no session has it", Fate::Remove),
            };
            let state = json!(machine.sandbox_id);
            found.things.push(Leftover { kind: "machine", name: machine.sandbox_id, why: why.into(), fate, state });
        }
        Ok(found)
    }

    async fn remove(&self, leftover: &Leftover) -> Result<()> {
        E2b::from_env(TEMPLATE)?.remove(&leftover.name).await
    }
}
