//! The capability to shorten long conversations: on the model's server if it supports that, otherwise with a summary.

mod summary;

use async_trait::async_trait;
use sandbar_agent::{ModelSettings, Wire};
use sandbar_sandbox::SandboxError;
use serde_json::json;

use self::summary::Summarise;
use super::{AgentSession, Capability, CapabilityKit, context_window};

/// Threshold, in tokens, for a model whose context window is unknown.
const DEFAULT_THRESHOLD: u64 = 240_000;

/// Share of the context window that may be full, in thousandths.
const DEFAULT_SHARE: u64 = 900;

/// Size at which a conversation is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionPolicy {
    /// A fixed number of tokens.
    Static {
        /// Number of tokens.
        threshold: u64,
    },
    /// A share of the context window of the model.
    Dynamic {
        /// Context window of the model, in tokens; `None` looks it up by the name of the model.
        window: Option<u64>,
        /// Share of the context window, in thousandths.
        share: u64,
    },
}

impl CompactionPolicy {
    /// Number of tokens above which a conversation with this model is shortened.
    #[must_use]
    pub fn threshold(self, model: &str) -> u64 {
        match self {
            Self::Static { threshold } => threshold,
            Self::Dynamic { window, share } => match window.or_else(|| context_window(model)) {
                None => DEFAULT_THRESHOLD,
                Some(window) => {
                    let tokens = u128::from(window) * u128::from(share.min(1000)) / 1000;
                    u64::try_from(tokens).unwrap_or(u64::MAX)
                }
            },
        }
    }
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self::Dynamic { window: None, share: DEFAULT_SHARE }
    }
}

/// Keeps long conversations within the context window of the model. A server with the Responses API compacts the
/// conversation at the threshold. For any other server, the model itself writes a summary; later requests contain the last
/// messages of the user, the summary, and the items after it. The transcript of the run stays complete in both cases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    policy: CompactionPolicy,
}

impl Compaction {
    /// Compaction at nine tenths of the model's context window, or at 240,000 tokens if the window is unknown.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: CompactionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Sets a fixed threshold in tokens.
    #[must_use]
    pub fn threshold(self, threshold: u64) -> Self {
        self.policy(CompactionPolicy::Static { threshold })
    }
}

#[async_trait]
impl Capability for Compaction {
    fn kind(&self) -> &str {
        "compaction"
    }

    async fn equip(&self, agent_session: &AgentSession) -> Result<CapabilityKit, SandboxError> {
        let threshold = self.policy.threshold(agent_session.model().name());
        Ok(match agent_session.model().wire() {
            Wire::Responses => {
                let mut settings = ModelSettings::new();
                settings.context_management = Some(json!([{"type": "compaction", "compact_threshold": threshold}]));
                CapabilityKit::new().settings(settings)
            }
            Wire::Chat => CapabilityKit::new().input_transform(Summarise { threshold }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_the_model() {
        let default = CompactionPolicy::default();
        for (policy, model, threshold) in [
            (default, "gpt-5.5", 942_818),
            (default, "gpt-5", 360_000),
            (default, "qwen3:8b", 240_000),
            (CompactionPolicy::Static { threshold: 7 }, "gpt-5", 7),
            (CompactionPolicy::Dynamic { window: Some(1000), share: 500 }, "gpt-5", 500),
            (CompactionPolicy::Dynamic { window: Some(u64::MAX), share: u64::MAX }, "x", u64::MAX),
        ] {
            assert_eq!(policy.threshold(model), threshold, "{policy:?} {model}");
        }
    }
}
