//! What an agent has at hand in a turn: the tools that are there now, and the agents it may hand over to.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Agent, AgentError, App, Enabled, Handoff, Kit, Result, Tool, ToolKind, ToolSpec,
    agent::Roster,
    run::{Offer, Offered, OnUnknown},
};

/// What an agent has at hand.
pub(super) struct Equipment {
    /// The agent's key.
    pub(super) key: String,
    pub(super) agent: Agent,
    pub(super) kit: Kit,
    pub(super) specs: Arc<[ToolSpec]>,
    pub(super) offer: Offer,
    pub(super) tools: BTreeMap<String, Arc<dyn Tool>>,
    pub(super) handoffs: BTreeMap<String, Handoff>,
    /// Whether it was looked up already and cannot have changed since.
    settled: bool,
}

/// What is gathered before it is known to be free of clashes.
#[derive(Default)]
struct Gathered {
    specs: Vec<ToolSpec>,
    names: BTreeMap<String, Offered>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    handoffs: BTreeMap<String, Handoff>,
}

impl Equipment {
    pub(super) fn new(key: String, agent: Agent, kit: Kit) -> Self {
        Self {
            key,
            agent,
            kit,
            specs: Arc::new([]),
            offer: Offer::default(),
            tools: BTreeMap::new(),
            handoffs: BTreeMap::new(),
            settled: false,
        }
    }

    /// Finds out what is there now. What cannot change is looked up once.
    pub(super) async fn refresh(&mut self, roster: &Roster, app: &App, on_unknown: OnUnknown) -> Result<()> {
        if self.settled {
            return Ok(());
        }
        let mut gathered = Gathered::default();
        let mut settled = true;
        let parts = self.agent.parts();
        for tool in parts.tools.iter().chain(&self.kit.tools) {
            let enabled = &tool.rules().enabled;
            settled &= !matches!(enabled, Enabled::When(_));
            if enabled.holds(app, self.agent.name()).await {
                gathered.tool(tool)?;
            }
        }
        for handoff in &parts.handoffs {
            settled &= !matches!(handoff.enabled, Enabled::When(_));
            if handoff.enabled.holds(app, self.agent.name()).await {
                gathered.handoff(handoff, roster)?;
            }
        }
        self.specs = gathered.specs.into();
        self.offer = Offer { names: Arc::new(gathered.names), on_unknown };
        (self.tools, self.handoffs, self.settled) = (gathered.tools, gathered.handoffs, settled);
        Ok(())
    }
}

impl Gathered {
    fn tool(&mut self, tool: &Arc<dyn Tool>) -> Result<()> {
        let spec = tool.spec();
        if let Some(fault) = tool.fault() {
            return Err(AgentError::Misuse(format!("tool {} cannot be offered: {fault}", spec.name)));
        }
        match spec.kind {
            ToolKind::Function { .. } => self.offer(&spec.name, Offered::Function)?,
            ToolKind::Custom { .. } => self.offer(&spec.name, Offered::Custom)?,
            ToolKind::BuiltIn(_) => self.offer(&spec.name, Offered::BuiltIn)?,
            // The server calls these; they are never asked for here.
            ToolKind::Hosted(_) => {
                self.specs.push(spec);
                return Ok(());
            }
        }
        self.tools.insert(spec.name.clone(), Arc::clone(tool));
        self.specs.push(spec);
        Ok(())
    }

    fn handoff(&mut self, handoff: &Handoff, roster: &Roster) -> Result<()> {
        let target = roster.target(handoff)?;
        let spec = handoff.spec(roster.agent(&target)?);
        self.offer(&spec.name, Offered::Handoff(target))?;
        self.handoffs.insert(spec.name.clone(), handoff.clone());
        self.specs.push(spec);
        Ok(())
    }

    fn offer(&mut self, name: &str, offered: Offered) -> Result<()> {
        if self.names.insert(name.to_owned(), offered).is_some() {
            return Err(AgentError::Misuse(format!(
                "two tools or handoffs are called {name:?}; a model could not tell them apart"
            )));
        }
        Ok(())
    }
}
