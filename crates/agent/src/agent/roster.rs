//! All agents of a run, found through handoffs, each under a key that is the same after a resume.

use indexmap::IndexMap;

use crate::{Agent, AgentError, Handoff, Result, handoff::Target};

/// The agents of a run. The key of an agent is its name. If several have the same name, the later ones are `name#2`,
/// `name#3`, in the order in which handoffs lead to them; the same program always produces the same keys.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    agents: IndexMap<String, Agent>,
}

impl Roster {
    pub(crate) fn of(root: &Agent) -> Self {
        let mut roster = Self { agents: IndexMap::new() };
        roster.add(root);
        let mut next = 0;
        while let Some((_, agent)) = roster.agents.get_index(next) {
            for handoff in agent.clone().parts().handoffs.iter() {
                if let Target::Agent(target) = &handoff.target {
                    roster.add(target);
                }
            }
            next += 1;
        }
        roster
    }

    fn add(&mut self, agent: &Agent) {
        if self.agents.values().any(|known| known.is(agent)) {
            return;
        }
        let mut key = agent.name().to_owned();
        let mut number = 1;
        while self.agents.contains_key(&key) {
            number += 1;
            key = format!("{}#{number}", agent.name());
        }
        self.agents.insert(key, agent.clone());
    }

    /// Key of the first agent.
    pub(crate) fn root(&self) -> String {
        self.agents.get_index(0).map(|(key, _)| key.clone()).unwrap_or_default()
    }

    pub(crate) fn agent(&self, key: &str) -> Result<&Agent> {
        self.agents.get(key).ok_or_else(|| {
            let known: Vec<&str> = self.agents.keys().map(String::as_str).collect();
            AgentError::Misuse(format!("there is no agent {key:?} here; there are {}", known.join(", ")))
        })
    }

    /// Key of the agent that a handoff leads to.
    pub(crate) fn target(&self, handoff: &Handoff) -> Result<String> {
        match &handoff.target {
            Target::Agent(agent) => Ok(self
                .agents
                .iter()
                .find(|(_, known)| known.is(agent))
                .map_or_else(|| agent.name().to_owned(), |(key, _)| key.clone())),
            Target::Named(name) => self.agent(name).map(|_| name.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_one_name_are_told_apart_and_cycles_end() {
        let first = Agent::new("twin").instructions("one").handoff(Handoff::to_named("root"));
        let second = Agent::new("twin").instructions("two");
        let root = Agent::new("root").handoff(first.clone()).handoff(second.clone()).handoff(first);
        let roster = Roster::of(&root);
        assert_eq!(Vec::from_iter(roster.agents.keys()), ["root", "twin", "twin#2"]);
        assert_eq!(roster.target(&Handoff::to(second)).expect("known"), "twin#2");
        assert_eq!(roster.target(&Handoff::to_named("root")).expect("known"), "root");
        assert!(roster.target(&Handoff::to_named("unknown")).is_err());
    }
}
