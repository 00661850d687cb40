//! Usage of model calls in tokens: per request and in total.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// Tokens and requests. Adding single requests keeps one entry for each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Number of requests, including failed ones.
    pub requests: u64,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens that were read from a cache.
    pub cached_tokens: u64,
    /// Input tokens that were written to a cache.
    pub cache_write_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Output tokens of reasoning.
    pub reasoning_tokens: u64,
    /// Total tokens, as the server counts them.
    pub total_tokens: u64,
    /// One entry per request that used tokens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<RequestUsage>,
}

/// Usage of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RequestUsage {
    /// Name of the model.
    pub model: String,
    /// Input tokens.
    pub input_tokens: u64,
    /// Input tokens that were read from a cache.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Output tokens of reasoning.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Adds the usage of one request to `model`.
    pub fn add_request(&mut self, model: &str, used: &Self) {
        if used.total_tokens > 0 || used.input_tokens > 0 || used.output_tokens > 0 {
            self.entries.push(RequestUsage {
                model: model.to_owned(),
                input_tokens: used.input_tokens,
                cached_tokens: used.cached_tokens,
                output_tokens: used.output_tokens,
                reasoning_tokens: used.reasoning_tokens,
            });
        }
        self.add_totals(used);
    }

    /// Adds the usage of a nested run.
    pub fn add(&mut self, used: &Self) {
        self.entries.extend(used.entries.iter().cloned());
        self.add_totals(used);
    }

    /// Usage in a reply. It is informational: a format that cannot be read does not fail the reply.
    pub(crate) fn from_wire(usage: &Value) -> Self {
        Option::<WireUsage>::deserialize(usage).ok().flatten().map(Self::from).unwrap_or_default()
    }

    /// Difference between this usage and an earlier one.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            input_tokens: self.input_tokens.saturating_sub(before.input_tokens),
            cached_tokens: self.cached_tokens.saturating_sub(before.cached_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(before.cache_write_tokens),
            output_tokens: self.output_tokens.saturating_sub(before.output_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(before.reasoning_tokens),
            total_tokens: self.total_tokens.saturating_sub(before.total_tokens),
            entries: self.entries.get(before.entries.len()..).unwrap_or_default().to_vec(),
        }
    }

    fn add_totals(&mut self, used: &Self) {
        for (sum, more) in [
            (&mut self.requests, used.requests),
            (&mut self.input_tokens, used.input_tokens),
            (&mut self.cached_tokens, used.cached_tokens),
            (&mut self.cache_write_tokens, used.cache_write_tokens),
            (&mut self.output_tokens, used.output_tokens),
            (&mut self.reasoning_tokens, used.reasoning_tokens),
            (&mut self.total_tokens, used.total_tokens),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Usage in the format of a Responses server; every field can be missing or null.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    #[serde(deserialize_with = "or_default")]
    input_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    output_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    total_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    input_tokens_details: Details,
    #[serde(deserialize_with = "or_default")]
    output_tokens_details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    #[serde(deserialize_with = "or_default")]
    cached_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    cache_write_tokens: u64,
    #[serde(deserialize_with = "or_default")]
    reasoning_tokens: u64,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        Self {
            requests: 1,
            input_tokens: wire.input_tokens,
            cached_tokens: wire.input_tokens_details.cached_tokens,
            cache_write_tokens: wire.input_tokens_details.cache_write_tokens,
            output_tokens: wire.output_tokens,
            reasoning_tokens: wire.output_tokens_details.reasoning_tokens,
            total_tokens: wire.total_tokens.max(wire.input_tokens.saturating_add(wire.output_tokens)),
            entries: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_may_leave_out_or_null_any_part() {
        for text in ["{}", r#"{"input_tokens":null,"input_tokens_details":null}"#] {
            let usage = Usage::from(serde_json::from_str::<WireUsage>(text).expect("usage"));
            assert_eq!(usage, Usage { requests: 1, ..Usage::default() });
        }
        let text = r#"{"input_tokens":5,"output_tokens":2,"total_tokens":7,"input_tokens_details":{"cached_tokens":3},"output_tokens_details":{"reasoning_tokens":1}}"#;
        let usage = Usage::from(serde_json::from_str::<WireUsage>(text).expect("usage"));
        assert_eq!((usage.cached_tokens, usage.reasoning_tokens, usage.total_tokens), (3, 1, 7));
    }

    #[test]
    fn only_requests_that_used_tokens_have_an_entry() {
        let mut sum = Usage::default();
        sum.add_request("m", &Usage { requests: 1, ..Usage::default() });
        sum.add_request("m", &Usage { requests: 1, input_tokens: 4, total_tokens: 4, ..Usage::default() });
        assert_eq!((sum.requests, sum.entries.len(), sum.total_tokens), (2, 1, 4));
    }
}
