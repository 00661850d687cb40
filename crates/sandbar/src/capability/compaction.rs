//! Long conversations: the model's server shortens them where it can; where it cannot, they are summed up here.

mod summary;

use async_trait::async_trait;
use sandbar_agent::{ModelSettings, Wire};
use sandbar_sandbox::SandboxError;
use serde_json::json;

use self::summary::Summarise;
use super::{Capability, Gear, Workplace, context_window};

/// When nothing is known of the model.
const USUAL_THRESHOLD: u64 = 240_000;

/// How much of the window may be full, in thousandths.
const USUAL_SHARE: u64 = 900;

/// When a conversation is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompactionPolicy {
    /// At this many tokens.
    Static {
        /// How many.
        threshold: u64,
    },
    /// When this much of the model's window is full.
    Dynamic {
        /// The model's window, in tokens; looked up by the model's name if not given.
        window: Option<u64>,
        /// How much of it, in thousandths.
        share: u64,
    },
}

impl CompactionPolicy {
    /// The tokens at which a conversation with this model is too long.
    #[must_use]
    pub fn threshold(self, model: &str) -> u64 {
        match self {
            Self::Static { threshold } => threshold,
            Self::Dynamic { window, share } => match window.or_else(|| context_window(model)) {
                None => USUAL_THRESHOLD,
                Some(window) => {
                    let part = u128::from(window) * u128::from(share.min(1000)) / 1000;
                    u64::try_from(part).unwrap_or(u64::MAX)
                }
            },
        }
    }
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self::Dynamic { window: None, share: USUAL_SHARE }
    }
}

/// Keeps long conversations within what the model can read. A server that compacts by itself is asked to do so at the
/// threshold; for any other model the conversation is summed up by the model itself, and from then on the model sees the
/// last words of the user, the summary, and what came after. The run's own record stays whole either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    policy: CompactionPolicy,
}

impl Compaction {
    /// At nine tenths of the model's window, or at 240,000 tokens if that is not known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At some other point.
    #[must_use]
    pub fn policy(mut self, policy: CompactionPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// At this many tokens.
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

    async fn equip(&self, place: &Workplace) -> Result<Gear, SandboxError> {
        let threshold = self.policy.threshold(place.model().name());
        Ok(match place.model().wire() {
            Wire::Responses => {
                let mut settings = ModelSettings::new();
                settings.context_management = Some(json!([{"type": "compaction", "compact_threshold": threshold}]));
                Gear::new().settings(settings)
            }
            Wire::Chat => Gear::new().lens(Summarise { threshold }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_follows_the_model() {
        let usual = CompactionPolicy::default();
        for (policy, model, threshold) in [
            (usual, "gpt-5.5", 942_818),
            (usual, "gpt-5", 360_000),
            (usual, "qwen3:8b", 240_000),
            (CompactionPolicy::Static { threshold: 7 }, "gpt-5", 7),
            (CompactionPolicy::Dynamic { window: Some(1000), share: 500 }, "gpt-5", 500),
            (CompactionPolicy::Dynamic { window: Some(u64::MAX), share: u64::MAX }, "x", u64::MAX),
        ] {
            assert_eq!(policy.threshold(model), threshold, "{policy:?} {model}");
        }
    }
}
