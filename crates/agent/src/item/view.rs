//! What an item is: borrowed, typed views of the JSON that came.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Item;

/// What an item is. Known kinds that lack what they need are [`View::Malformed`], unknown ones [`View::Other`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum View<'a> {
    /// Somebody says something.
    Message(Message<'a>),
    /// The model thinks.
    Reasoning(&'a Item),
    /// The model wants a function called.
    FunctionCall(FunctionCall<'a>),
    /// The model wants a freeform tool called.
    CustomCall(CustomCall<'a>),
    /// A call is answered.
    Answer(&'a Item),
    /// What came before is in here, for the model's eyes only.
    Compaction(&'a Item),
    /// A known kind without what it needs; the text names what is missing.
    Malformed(&'static str),
    /// Any other kind.
    Other(&'a str),
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A person, or whoever asks.
    User,
    /// The model.
    Assistant,
    /// Whoever built the agent.
    Developer,
    /// The same, in older words.
    System,
}

/// A message and who says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message<'a> {
    /// Who.
    pub role: Role,
    content: &'a Value,
}

impl<'a> Message<'a> {
    /// All text in it, joined.
    #[must_use]
    pub fn text(&self) -> String {
        match self.content {
            Value::String(text) => text.clone(),
            _ => self.parts("text").collect(),
        }
    }

    /// What the model said instead of an answer.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let refusal: String = self.parts("refusal").collect();
        (!refusal.is_empty()).then_some(refusal)
    }

    fn parts(&self, field: &'static str) -> impl Iterator<Item = &'a str> + use<'a> {
        let parts = self.content.as_array().map(Vec::as_slice).unwrap_or_default();
        parts.iter().filter_map(move |part| part.get(field)?.as_str())
    }
}

/// A call of a function with JSON arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionCall<'a> {
    /// Which call.
    pub call_id: &'a str,
    /// Which function.
    pub name: &'a str,
    /// A JSON object, as text, as the model wrote it: not checked.
    pub arguments: &'a str,
    /// The group of tools it belongs to, if it is in one.
    pub namespace: Option<&'a str>,
}

/// A call of a freeform tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomCall<'a> {
    /// Which call.
    pub call_id: &'a str,
    /// Which tool.
    pub name: &'a str,
    /// Whatever the model wrote.
    pub input: &'a str,
}

impl Item {
    /// What it is.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        match self.kind() {
            "message" => self.message().map_or(View::Malformed("a message needs a role and a content"), View::Message),
            "reasoning" => View::Reasoning(self),
            "compaction" => View::Compaction(self),
            "function_call" => self
                .function()
                .map_or(View::Malformed("a function_call needs call_id, name and arguments"), View::FunctionCall),
            "custom_tool_call" => self
                .custom()
                .map_or(View::Malformed("a custom_tool_call needs call_id, name and input"), View::CustomCall),
            "function_call_output" | "custom_tool_call_output" if self.call_id().is_none() => {
                View::Malformed("an answer needs the call_id of its call")
            }
            _ if self.is_answer() => View::Answer(self),
            other => View::Other(other),
        }
    }

    fn message(&self) -> Option<Message<'_>> {
        let role = match self.text_field("role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "developer" => Role::Developer,
            "system" => Role::System,
            _ => return None,
        };
        Some(Message { role, content: self.fields().get("content")? })
    }

    fn function(&self) -> Option<FunctionCall<'_>> {
        let [call_id, name, arguments] = ["call_id", "name", "arguments"].map(|field| self.text_field(field));
        Some(FunctionCall {
            call_id: call_id?,
            name: name?,
            arguments: arguments?,
            namespace: self.text_field("namespace"),
        })
    }

    fn custom(&self) -> Option<CustomCall<'_>> {
        let [call_id, name, input] = ["call_id", "name", "input"].map(|field| self.text_field(field));
        Some(CustomCall { call_id: call_id?, name: name?, input: input? })
    }
}

/// One part of a message or of a tool's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    InputText {
        /// What it says.
        text: String,
    },
    /// A picture.
    InputImage {
        /// Where it is: a URL, or a `data:` URL with the picture itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image_url: Option<String>,
        /// An uploaded file instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_id: Option<String>,
        /// `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A file.
    InputFile {
        /// The file itself, as base64 or a `data:` URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        /// Where it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_url: Option<String>,
        /// An uploaded file instead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_id: Option<String>,
        /// What it is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
}

impl Part {
    /// A text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::InputText { text: text.into() }
    }

    /// A picture by its URL.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::InputImage { image_url: Some(url.into()), file_id: None, detail: None }
    }

    /// A file by its content, as base64.
    pub fn file(filename: impl Into<String>, base64: impl Into<String>) -> Self {
        let (filename, file_data) = (Some(filename.into()), Some(base64.into()));
        Self::InputFile { file_data, file_url: None, file_id: None, filename }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_kind_without_what_it_needs_says_so() {
        for text in [
            r#"{"type":"function_call","call_id":"c"}"#,
            r#"{"type":"message","role":"robot","content":""}"#,
            r#"{"type":"custom_tool_call","name":"x","input":1}"#,
            r#"{"type":"function_call_output","output":""}"#,
        ] {
            let item: Item = serde_json::from_str(text).expect("an object");
            assert!(matches!(item.view(), View::Malformed(_)), "{text}: {:?}", item.view());
        }
    }

    #[test]
    fn a_refusal_is_not_text() {
        let text = r#"{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}"#;
        let item: Item = serde_json::from_str(text).expect("an object");
        let View::Message(message) = item.view() else { panic!("a message") };
        assert_eq!((message.text().as_str(), message.refusal().as_deref()), ("", Some("no")));
    }
}
