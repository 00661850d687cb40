//! What of an operation's facts is told: never a secret, and never without end.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Event, Subject};
use crate::{Op, SecretStore};

/// What all facts of one event may take up, and what one message may.
const FACTS: usize = 64 << 10;
const MESSAGE: usize = 8000;

/// What of a command's output and a file's size is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayloadPolicy {
    /// Whether the output of commands is told.
    pub include_exec_output: bool,
    /// How much of standard output, in characters.
    pub max_stdout_chars: usize,
    /// How much of standard error, in characters.
    pub max_stderr_chars: usize,
    /// Whether the size of what is written is told.
    pub include_write_len: bool,
}

impl Default for PayloadPolicy {
    fn default() -> Self {
        Self { include_exec_output: false, max_stdout_chars: 8000, max_stderr_chars: 8000, include_write_len: true }
    }
}

/// What of a policy is different somewhere: for one operation, or for one sink. What is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PayloadOverride {
    /// Whether the output of commands is told.
    pub include_exec_output: Option<bool>,
    /// How much of standard output, in characters.
    pub max_stdout_chars: Option<usize>,
    /// How much of standard error, in characters.
    pub max_stderr_chars: Option<usize>,
    /// Whether the size of what is written is told.
    pub include_write_len: Option<bool>,
}

impl PayloadOverride {
    /// The policy with what is different here.
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
    /// The event as far as this policy tells it; `None` when that is all of it.
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
        let told =
            |text: Option<String>, limit| text.filter(|_| self.include_exec_output).map(|text| clip(&text, limit));
        event.stdout = told(event.stdout.take(), self.max_stdout_chars);
        event.stderr = told(event.stderr.take(), self.max_stderr_chars);
        Some(event)
    }
}

/// What is told of each operation to each sink, and the secrets that are hidden in all of it.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) policy: PayloadPolicy,
    pub(super) per_op: BTreeMap<Op, PayloadOverride>,
    /// What the sinks themselves say, each once.
    pub(super) sinks: Vec<PayloadOverride>,
    pub(super) secrets: SecretStore,
}

impl Payload {
    /// What one sink is told of an operation.
    pub(super) fn policy(&self, op: Op, sink: PayloadOverride) -> PayloadPolicy {
        let usual = self.per_op.get(&op).map_or(self.policy, |own| own.over(self.policy));
        sink.over(usual)
    }

    /// Facts as they may be told to somebody.
    pub(super) fn facts(&self, data: Value) -> Map<String, Value> {
        let mut left = FACTS;
        match data {
            Value::Object(facts) => self.object(facts, &mut left),
            Value::Null => Map::new(),
            other => Map::from_iter([("value".to_owned(), self.tame(other, &mut left))]),
        }
    }

    /// An error's words as they may be told.
    pub(super) fn message(&self, text: &str) -> String {
        clip(&self.secrets.redact(text), MESSAGE)
    }

    /// Output as it may be told to the sink that is told most; `None` when nobody is told any.
    pub(super) fn output(&self, op: Op, bytes: &[u8], limit: fn(&PayloadPolicy) -> usize) -> Option<String> {
        let policies = self.sinks.iter().map(|sink| self.policy(op, *sink));
        let most = policies.filter(|policy| policy.include_exec_output).map(|policy| limit(&policy)).max()?;
        // Hidden before it is cut, as a cut could leave half a secret.
        Some(clip(&self.secrets.redact(&String::from_utf8_lossy(bytes)), most))
    }

    fn tame(&self, value: Value, left: &mut usize) -> Value {
        match value {
            Value::String(text) => {
                let text = clip(&self.secrets.redact(&text), *left);
                *left = left.saturating_sub(text.len());
                Value::String(text)
            }
            Value::Array(items) => {
                let kept = items.into_iter().map_while(|item| (spend(left, 8)).then(|| self.tame(item, left)));
                Value::Array(kept.collect())
            }
            Value::Object(facts) => Value::Object(self.object(facts, left)),
            plain => plain,
        }
    }

    fn object(&self, facts: Map<String, Value>, left: &mut usize) -> Map<String, Value> {
        let kept = facts.into_iter().map_while(|(key, value)| {
            spend(left, key.len() + 8).then(|| {
                let value = self.tame(value, left);
                (key, value)
            })
        });
        kept.collect()
    }
}

/// Takes from what is left, and says whether there was anything.
fn spend(left: &mut usize, cost: usize) -> bool {
    let some = *left > 0;
    *left = left.saturating_sub(cost);
    some
}

/// The first characters, with a sign that there were more.
fn clip(text: &str, limit: usize) -> String {
    if text.char_indices().nth(limit).is_none() {
        return text.to_owned();
    }
    text.chars().take(limit.saturating_sub(1)).chain(['…']).take(limit).collect()
}

/// About how much memory a value takes.
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
        // Cut after seven characters, the value would still be recognised.
        assert_eq!(stdout(&payload, b"xxhunter22").as_deref(), Some("xx[secre…"));
    }

    #[test]
    fn facts_are_bounded_and_what_is_no_object_gets_a_name() {
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
    fn the_sink_has_the_last_word_then_the_operation_and_only_on_what_they_say() {
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
        assert_eq!(stdout(&payload, b"0123456789").as_deref(), Some("0123…"), "as much as anybody is told");
        payload.sinks.push(PayloadOverride { max_stdout_chars: Some(8), ..Default::default() });
        assert_eq!(stdout(&payload, b"0123456789").as_deref(), Some("0123456…"));
    }

    #[test]
    fn an_event_is_narrowed_only_where_it_must_be() {
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
