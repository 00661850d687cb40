//! Which facts of an operation an event contains: never a secret, and at most a fixed size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Event, Subject};
use crate::{Op, SecretStore};

/// Maximum size of all facts of one event in bytes, and of one message in characters.
const FACTS: usize = 64 << 10;
const MESSAGE: usize = 8000;

/// Which parts of an operation an event contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayloadPolicy {
    /// Whether the output of commands is included.
    pub include_exec_output: bool,
    /// Maximum length of standard output, in characters.
    pub max_stdout_chars: usize,
    /// Maximum length of standard error, in characters.
    pub max_stderr_chars: usize,
    /// Whether the size of written files is included.
    pub include_write_len: bool,
}

impl Default for PayloadPolicy {
    fn default() -> Self {
        Self { include_exec_output: false, max_stdout_chars: 8000, max_stderr_chars: 8000, include_write_len: true }
    }
}

/// Overrides of a policy for one operation or one sink. A field that is `None` overrides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayloadOverride {
    /// Whether the output of commands is included.
    pub include_exec_output: Option<bool>,
    /// Maximum length of standard output, in characters.
    pub max_stdout_chars: Option<usize>,
    /// Maximum length of standard error, in characters.
    pub max_stderr_chars: Option<usize>,
    /// Whether the size of written files is included.
    pub include_write_len: Option<bool>,
}

impl PayloadOverride {
    /// Applies the overrides to a policy.
    #[must_use]
    pub fn over(self, policy: PayloadPolicy) -> PayloadPolicy {
        PayloadPolicy {
            include_exec_output: self.include_exec_output.unwrap_or(policy.include_exec_output),
            max_stdout_chars: self.max_stdout_chars.unwrap_or(policy.max_stdout_chars),
            max_stderr_chars: self.max_stderr_chars.unwrap_or(policy.max_stderr_chars),
            include_write_len: self.include_write_len.unwrap_or(policy.include_write_len),
        }
    }
}

impl PayloadPolicy {
    /// The event without what this policy excludes; `None` if nothing is excluded.
    pub(super) fn narrowed(self, event: &Event) -> Option<Event> {
        let limit = |limit| if self.include_exec_output { limit } else { 0 };
        let longer =
            |text: &Option<String>, limit| text.as_deref().is_some_and(|text| text.char_indices().nth(limit).is_some());
        let quiet = !self.include_exec_output && (event.stdout.is_some() || event.stderr.is_some());
        let cut =
            longer(&event.stdout, limit(self.max_stdout_chars)) || longer(&event.stderr, limit(self.max_stderr_chars));
        let sized =
            !self.include_write_len && event.op == Subject::Operation(Op::Write) && event.data.contains_key("bytes");
        if !(quiet || cut || sized) {
            return None;
        }
        let mut event = event.clone();
        if sized {
            event.data.remove("bytes");
        }
        let cut =
            |text: Option<String>, limit| text.filter(|_| self.include_exec_output).map(|text| clip(&text, limit));
        event.stdout = cut(event.stdout.take(), self.max_stdout_chars);
        event.stderr = cut(event.stderr.take(), self.max_stderr_chars);
        Some(event)
    }
}

/// The policies of all operations and sinks, and the secrets that are hidden in every event.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) policy: PayloadPolicy,
    pub(super) per_op: BTreeMap<Op, PayloadOverride>,
    /// The overrides of the sinks.
    pub(super) sinks: Vec<PayloadOverride>,
    pub(super) secrets: SecretStore,
}

impl Payload {
    /// The policy for one operation and one sink.
    pub(super) fn policy(&self, op: Op, sink: PayloadOverride) -> PayloadPolicy {
        let usual = self.per_op.get(&op).map_or(self.policy, |own| own.over(self.policy));
        sink.over(usual)
    }

    /// The facts without secrets, cut to the maximum size.
    pub(super) fn facts(&self, data: Value) -> Map<String, Value> {
        let mut left = FACTS;
        match data {
            Value::Object(facts) => self.object(facts, &mut left),
            Value::Null => Map::new(),
            other => Map::from_iter([("value".to_owned(), self.sanitize(other, &mut left))]),
        }
    }

    /// An error message without secrets, cut to the maximum size.
    pub(super) fn message(&self, text: &str) -> String {
        clip(&self.secrets.redact(text), MESSAGE)
    }

    /// Output without secrets, cut for the sink with the highest limit; `None` if no sink includes output.
    pub(super) fn output(&self, op: Op, bytes: &[u8], limit: fn(&PayloadPolicy) -> usize) -> Option<String> {
        let policies = self.sinks.iter().map(|sink| self.policy(op, *sink));
        let most = policies.filter(|policy| policy.include_exec_output).map(|policy| limit(&policy)).max()?;
        // Hide before cutting: a cut could leave half a secret.
        Some(clip(&self.secrets.redact(&String::from_utf8_lossy(bytes)), most))
    }

    fn sanitize(&self, value: Value, left: &mut usize) -> Value {
        match value {
            Value::String(text) => {
                let text = clip(&self.secrets.redact(&text), *left);
                *left = left.saturating_sub(text.len());
                Value::String(text)
            }
            Value::Array(items) => {
                let kept = items.into_iter().map_while(|item| (spend(left, 8)).then(|| self.sanitize(item, left)));
                Value::Array(kept.collect())
            }
            Value::Object(facts) => Value::Object(self.object(facts, left)),
            plain => plain,
        }
    }

    fn object(&self, facts: Map<String, Value>, left: &mut usize) -> Map<String, Value> {
        let kept = facts.into_iter().map_while(|(key, value)| {
            spend(left, key.len() + 8).then(|| {
                let value = self.sanitize(value, left);
                (key, value)
            })
        });
        kept.collect()
    }
}

/// Subtracts a cost from the remaining budget; whether there was budget left before.
fn spend(left: &mut usize, cost: usize) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(cost);
    some
}

/// The first characters, with an ellipsis if there are more.
fn clip(text: &str, limit: usize) -> String {
    if text.char_indices().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).take(limit).collect()
}

/// Approximate size of a value in memory, in bytes.
pub(super) fn weight(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(facts) => facts.iter().map(|(key, value)| key.len() + weight(value)).sum(),
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::Phase;

    fn payload(policy: PayloadPolicy) -> Payload {
        let secrets = SecretStore::new().with("TOKEN", "hunter22");
        Payload { policy, per_op: BTreeMap::new(), sinks: vec![PayloadOverride::default()], secrets }
    }

    fn stdout(payload: &Payload, bytes: &[u8]) -> Option<String> {
        payload.output(Op::Exec, bytes, |policy| policy.max_stdout_chars)
    }

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        let payload = payload(PayloadPolicy { include_exec_output: true, max_stdout_chars: 9, ..Default::default() });
        let facts =
            payload.facts(json!({"command": ["curl", "-H", "auth hunter22"], "deep": {"x": "hunter22"}, "n": 1}));
        assert_eq!(
            Value::Object(facts),
            json!({"command": ["curl", "-H", "auth [secret]"], "deep": {"x": "[secret]"}, "n": 1})
        );
        assert_eq!(payload.message("hunter22!"), "[secret]!");
        // If the cut came first, seven characters of the value would remain.
        assert_eq!(stdout(&payload, b"xxhunter22").as_deref(), Some("xx[secre…"));
    }

    #[test]
    fn facts_are_bounded_and_a_value_that_is_no_object_gets_a_name() {
        let payload = payload(PayloadPolicy::default());
        assert_eq!(Value::Object(payload.facts(json!({"bytes": 5}))), json!({"bytes": 5}));
        assert_eq!(Value::Object(payload.facts(json!("x"))), json!({"value": "x"}));
        assert!(payload.facts(Value::Null).is_empty());
        assert_eq!(stdout(&payload, b"x"), None);
        let table = [
            json!({"text": "x".repeat(1 << 20)}),
            json!({"many": vec!["word"; 1 << 20]}),
            json!({"empty": vec![""; 1 << 20]}),
            json!({"numbers": vec![1; 1 << 20]}),
            Value::Object((0..100_000).map(|at| (at.to_string(), json!([]))).collect()),
        ];
        for data in table {
            let facts = Value::Object(payload.facts(data));
            assert!(serde_json::to_string(&facts).unwrap().len() < 2 * FACTS);
            assert!(weight(&facts) < 16 * FACTS);
        }
    }

    #[test]
    fn a_sink_overrides_the_operation_which_overrides_the_general_policy() {
        let mut payload = payload(PayloadPolicy { max_stderr_chars: 1, ..Default::default() });
        let loud =
            PayloadOverride { include_exec_output: Some(true), max_stdout_chars: Some(20), ..Default::default() };
        let short = PayloadOverride { max_stdout_chars: Some(5), include_write_len: Some(false), ..Default::default() };
        payload.per_op.insert(Op::Exec, loud);
        let policy = |op, sink| payload.policy(op, sink);
        assert_eq!(policy(Op::Read, PayloadOverride::default()), payload.policy);
        let exec = policy(Op::Exec, short);
        let expected = PayloadPolicy {
            include_exec_output: true,
            max_stdout_chars: 5,
            max_stderr_chars: 1,
            include_write_len: false,
        };
        assert_eq!(exec, expected);
        payload.sinks = vec![short, PayloadOverride { include_exec_output: Some(false), ..Default::default() }];
        assert_eq!(
            stdout(&payload, b"0123456789").as_deref(),
            Some("0123…"),
            "the highest limit of a sink that includes output"
        );
        payload.sinks.push(PayloadOverride { max_stdout_chars: Some(8), ..Default::default() });
        assert_eq!(stdout(&payload, b"0123456789").as_deref(), Some("0123456…"));
    }

    #[test]
    fn an_event_is_narrowed_only_if_the_policy_excludes_a_part() {
        let mut event = Event::new("s", Subject::Operation(Op::Write), Phase::Finish, "span".to_owned());
        event.data = payload(PayloadPolicy::default()).facts(json!({"path": "a", "bytes": 5}));
        assert_eq!(PayloadPolicy::default().narrowed(&event), None);
        let narrowed = PayloadPolicy { include_write_len: false, ..Default::default() }.narrowed(&event).unwrap();
        assert_eq!(Value::Object(narrowed.data), json!({"path": "a"}));
        event.op = Subject::Operation(Op::Exec);
        assert_eq!(PayloadPolicy { include_write_len: false, ..Default::default() }.narrowed(&event), None);
        (event.stdout, event.stderr) = (Some("0123…".to_owned()), Some(String::new()));
        let policy = PayloadPolicy { include_exec_output: true, max_stdout_chars: 5, ..Default::default() };
        assert_eq!(policy.narrowed(&event), None);
        let narrowed = PayloadPolicy { max_stdout_chars: 3, ..policy }.narrowed(&event).unwrap();
        assert_eq!((narrowed.stdout.as_deref(), narrowed.stderr.as_deref()), (Some("01…"), Some("")));
        let narrowed = PayloadPolicy { include_exec_output: false, ..policy }.narrowed(&event).unwrap();
        assert_eq!((narrowed.stdout, narrowed.stderr), (None, None));
    }

    #[test]
    fn text_is_cut_between_characters() {
        for (text, limit, expected) in [("äöü", 3, "äöü"), ("äöü", 2, "ä…"), ("äöü", 1, "…"), ("ä", 0, ""), ("", 0, "")]
        {
            assert_eq!(clip(text, limit), expected);
        }
    }
}
