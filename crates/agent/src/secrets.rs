//! Secrets of a run: hidden in the outputs of tools, and replaced by references in saved runs.

use std::{borrow::Cow, collections::BTreeSet, fmt, sync::Arc};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AgentError, BoxError, Part, Result, ToolOutput};

/// Secrets of a run, provided by its [`RunEnvironment`](crate::RunEnvironment).
///
/// Hiding protects against accidents only: a tool that has a value can print it in a form that is not recognised.
pub trait KnownSecrets: Send + Sync + fmt::Debug {
    /// Hides the values of these secrets in a text.
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Hides values in a text that arrives in pieces, also where a value is split between two pieces.
    fn stream(&self) -> Box<dyn HidingStream>;

    /// Replaces values by references. Returns the text and the names of the secrets in it; `None` if the text has no value.
    /// Each reference contains the mark, so that a text cannot forge one.
    fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)>;

    /// Replaces references with this mark by values; `None` if there are none.
    ///
    /// # Errors
    /// The name of a secret that is unknown.
    fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String>;
}

/// Hides values in a text that arrives in pieces.
pub trait HidingStream: Send {
    /// Adds a piece, and returns the text that can be shown now.
    fn push(&mut self, piece: &str) -> String;

    /// Returns the text that was held back.
    fn finish(&mut self) -> String;
}

/// Hides secret values in the progress texts of a call.
pub(crate) type Hiding = Option<Arc<Mutex<Box<dyn HidingStream>>>>;

/// Passes a piece through the stream; `None` flushes the stream at the end.
pub(crate) fn pass(hiding: &Hiding, piece: Option<String>) -> Option<String> {
    let shown = match hiding {
        None => piece?,
        Some(stream) => {
            let mut stream = stream.lock();
            match piece {
                Some(piece) => stream.push(&piece),
                None => stream.finish(),
            }
        }
    };
    (!shown.is_empty()).then_some(shown)
}

/// What a saved run records about the references in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    /// Mark of the real references; anything else that looks like a reference is plain text.
    pub(crate) mark: String,
    pub(crate) names: BTreeSet<String>,
}

/// Output of a tool, without secret values.
pub(crate) fn hidden(secrets: &dyn KnownSecrets, output: ToolOutput) -> ToolOutput {
    let hide = |text: String| match secrets.hide(&text) {
        Cow::Owned(hidden) => hidden,
        Cow::Borrowed(_) => text,
    };
    match output {
        ToolOutput::Text(text) => ToolOutput::Text(hide(text)),
        ToolOutput::Failure(text) => ToolOutput::Failure(hide(text)),
        ToolOutput::Json(mut value) => {
            each_text(&mut value, &mut |text| *text = hide(std::mem::take(text)));
            ToolOutput::Json(value)
        }
        ToolOutput::Parts(parts) => {
            let parts = parts.into_iter().map(|part| match part {
                Part::InputText { text } => Part::InputText { text: hide(text) },
                other => other,
            });
            ToolOutput::Parts(parts.collect())
        }
    }
}

/// An error of a tool that ends the run: the error itself, or its message with values hidden if it contains any.
pub(crate) fn hidden_error(secrets: &dyn KnownSecrets, error: BoxError) -> BoxError {
    let mut messages = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        messages.push(error.to_string());
        cause = error.source();
    }
    if messages.iter().all(|text| matches!(secrets.hide(text), Cow::Borrowed(_))) {
        return error;
    }
    secrets.hide(&messages.join(": ")).into_owned().into()
}

/// Calls a function for each string in a value, but not for the names of fields.
pub(crate) fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(fields) => fields.values_mut().for_each(|value| each_text(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces secret values by references; `None` if there are none.
pub(crate) fn seal(secrets: &dyn KnownSecrets, value: &mut Value) -> Option<Seal> {
    use sha2::{Digest as _, Sha256};

    let mut names = BTreeSet::new();
    let mut with_mark = |value: &mut Value, mark: &str| {
        each_text(value, &mut |text| {
            if let Some((sealed, found)) = secrets.seal(text, mark) {
                *text = sealed;
                names.extend(found);
            }
        });
    };
    // The mark is a digest of the run. A text inside the run cannot contain that digest, so it cannot forge a reference.
    let mut unmarked = value.clone();
    with_mark(&mut unmarked, "");
    let digest = Sha256::digest(unmarked.to_string());
    let mark: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    with_mark(value, &mark);
    (!names.is_empty()).then_some(Seal { mark, names })
}

/// Replaces references by secret values.
///
/// # Errors
/// `secret_not_given` with the names of the unknown secrets.
pub(crate) fn fill(secrets: Option<&dyn KnownSecrets>, seal: &Seal, value: &mut Value) -> Result<()> {
    let Some(secrets) = secrets else { return Err(AgentError::SecretNotGiven(seal.names.iter().cloned().collect())) };
    let mut missing = BTreeSet::new();
    each_text(value, &mut |text| match secrets.fill(text, &seal.mark) {
        Ok(Some(filled)) => *text = filled,
        Ok(None) => {}
        Err(name) => drop(missing.insert(name)),
    });
    if missing.is_empty() { Ok(()) } else { Err(AgentError::SecretNotGiven(missing.into_iter().collect())) }
}
