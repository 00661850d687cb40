//! Setup of the current agent: the tools and handoffs that are enabled in this turn.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    Agent, AgentError, App, Enabled, Handoff, Kit, Result, Tool, ToolKind, ToolSpec,
    agent::Roster,
    run::{Offer, Offered, OnUnknown},
};

/// The current agent with its kit, tools and handoffs.
pub(super) struct AgentSetup {
    /// The agent's key.
    pub(super) key: String,
    pub(super) agent: Agent,
    pub(super) kit: Kit,
    pub(super) specs: Arc<[ToolSpec]>,
    pub(super) offer: Offer,
    pub(super) tools: BTreeMap<String, Arc<dyn Tool>>,
    pub(super) handoffs: BTreeMap<String, Handoff>,
    /// Whether the lists above were made and cannot change, because no tool or handoff is enabled by a function.
    is_static: bool,
}

/// Tools and handoffs that are being collected; names are checked for duplicates.
#[derive(Default)]
struct ToolCollection {
    specs: Vec<ToolSpec>,
    names: BTreeMap<String, Offered>,
    tools: BTreeMap<String, Arc<dyn Tool>>,
    handoffs: BTreeMap<String, Handoff>,
}

impl AgentSetup {
    pub(super) fn new(key: String, agent: Agent, kit: Kit) -> Self {
        Self {
            key,
            agent,
            kit,
            specs: Arc::new([]),
            offer: Offer::default(),
            tools: BTreeMap::new(),
            handoffs: BTreeMap::new(),
            is_static: false,
        }
    }

    /// Lists the tools and handoffs that are enabled now. Lists that cannot change are made once.
    pub(super) async fn refresh(&mut self, roster: &Roster, app: &App, on_unknown: OnUnknown) -> Result<()> {
        if self.is_static {
            return Ok(());
        }
        let mut collected = ToolCollection::default();
        let mut is_static = true;
        let parts = self.agent.parts();
        for tool in parts.tools.iter().chain(&self.kit.tools) {
            let enabled = &tool.rules().enabled;
            is_static &= !matches!(enabled, Enabled::When(_));
            if enabled.holds(app, self.agent.name()).await {
                collected.tool(tool)?;
            }
        }
        for handoff in &parts.handoffs {
            is_static &= !matches!(handoff.enabled, Enabled::When(_));
            if handoff.enabled.holds(app, self.agent.name()).await {
                collected.handoff(handoff, roster)?;
            }
        }
        self.specs = collected.specs.into();
        self.offer = Offer { names: Arc::new(collected.names), on_unknown };
        (self.tools, self.handoffs, self.is_static) = (collected.tools, collected.handoffs, is_static);
        Ok(())
    }
}

impl ToolCollection {
    fn tool(&mut self, tool: &Arc<dyn Tool>) -> Result<()> {
        let spec = tool.spec();
        if let Some(fault) = tool.fault() {
            return Err(AgentError::Misuse(format!("tool {} cannot be offered: {fault}", spec.name)));
        }
        match spec.kind {
            ToolKind::Function { .. } => self.offer(&spec.name, Offered::Function)?,
            ToolKind::Custom { .. } => self.offer(&spec.name, Offered::Custom)?,
            ToolKind::BuiltIn(_) => self.offer(&spec.name, Offered::BuiltIn)?,
            // The model's server calls hosted tools itself.
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
