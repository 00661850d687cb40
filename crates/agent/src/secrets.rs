//! The seam to the secrets that a run knows: hidden in what tools answer, and referred to by name in what is saved.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{AgentError, BoxError, Part, Result, ToolOutput};

/// The secrets that a run knows. An [`Environment`](crate::Environment) has them.
///
/// Hiding them is a net against accidents, not a wall: a tool that has a value can write it in a form that is not known.
pub trait KnownSecrets: Send + Sync + fmt::Debug {
    /// The text without the values of these secrets.
    fn hide<'t>(&self, text: &'t str) -> Cow<'t, str>;

    /// Hides values in a text that comes in pieces, wherever those are cut.
    fn stream(&self) -> Box<dyn HidingStream>;

    /// The text with references in the place of values, and the names they refer to; nothing if it holds no value. A
    /// reference needs the mark, so that no text can forge one.
    fn seal(&self, text: &str, mark: &str) -> Option<(String, BTreeSet<String>)>;

    /// The text with values in the place of the references that carry this mark; nothing if there are none.
    ///
    /// # Errors
    /// The name of a secret that is not known.
    fn fill(&self, text: &str, mark: &str) -> Result<Option<String>, String>;
}

/// Hides values in a text that comes in pieces.
pub trait HidingStream: Send {
    /// Adds a piece, and gives what can be shown by now.
    fn push(&mut self, piece: &str) -> String;

    /// What is left at the end.
    fn finish(&mut self) -> String;
}

/// What a call tells while it is made, without secret values.
pub(crate) type Hiding = Option<Arc<Mutex<Box<dyn HidingStream>>>>;

/// Passes a piece through, or what is left at the end.
pub(crate) fn pass(hiding: &Hiding, piece: Option<String>) -> Option<String> {
    let shown = match hiding {
        None => piece?,
        Some(stream) => {
            let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
            match piece {
                Some(piece) => stream.push(&piece),
                None => stream.finish(),
            }
        }
    };
    (!shown.is_empty()).then_some(shown)
}

/// What a saved run says about the references in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    /// What a reference carries that stands for a value; anything else that looks like one is text.
    pub(crate) mark: String,
    pub(crate) names: BTreeSet<String>,
}

/// What a tool answered, without secret values.
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

/// An error of a tool that ends the run: the error itself, or its words if they hold a value.
pub(crate) fn hidden_error(secrets: &dyn KnownSecrets, error: BoxError) -> BoxError {
    let mut words = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        words.push(error.to_string());
        cause = error.source();
    }
    if words.iter().all(|text| matches!(secrets.hide(text), Cow::Borrowed(_))) {
        return error;
    }
    secrets.hide(&words.join(": ")).into_owned().into()
}

/// Does something with each text of a value; the names of fields stay.
pub(crate) fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(values) => values.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(fields) => fields.values_mut().for_each(|value| each_text(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Puts references in the place of values; nothing if there are none.
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
    // What the run says cannot contain its own digest, so nothing in it can have been written to look like a reference.
    let mut unmarked = value.clone();
    with_mark(&mut unmarked, "");
    let digest = Sha256::digest(unmarked.to_string());
    let mark: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    with_mark(value, &mark);
    (!names.is_empty()).then_some(Seal { mark, names })
}

/// Puts values in the place of references.
///
/// # Errors
/// `secret_not_given` with the names of secrets that are not known.
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
