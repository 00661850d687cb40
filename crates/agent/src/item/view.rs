//! Typed views of items, borrowed from their JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Item;

/// Typed view of an item. An item of a known kind without a required field is [`View::Malformed`], an item of an unknown
/// kind is [`View::Other`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum View<'a> {
    /// A message of the user, the model or the developer.
    Message(Message<'a>),
    /// Reasoning of the model.
    Reasoning(&'a Item),
    /// A call of a function.
    FunctionCall(FunctionCall<'a>),
    /// A call of a freeform tool.
    CustomCall(CustomCall<'a>),
    /// The output of a call.
    Answer(&'a Item),
    /// A compaction of all earlier items, which only the model can read.
    Compaction(&'a Item),
    /// An item of a known kind without a required field; the text names the field.
    Malformed(&'static str),
    /// An item of another kind.
    Other(&'a str),
}

/// Role of the author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user of the agent.
    User,
    /// The model.
    Assistant,
    /// The developer of the agent.
    Developer,
    /// The developer of the agent; an older name of the role.
    System,
}

/// A message and its role.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Message<'a> {
    /// Role of the author.
    pub role: Role,
    content: &'a Value,
}

impl<'a> Message<'a> {
    /// Text of all parts, joined.
    #[must_use]
    pub fn text(&self) -> String {
        match self.content {
            Value::String(text) => text.clone(),
            _ => self.parts("text").collect(),
        }
    }

    /// Text with which the model refused to answer.
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
    /// Id of the call.
    pub call_id: &'a str,
    /// Name of the function.
    pub name: &'a str,
    /// Arguments as the model wrote them: the text of a JSON object, which is not checked.
    pub arguments: &'a str,
    /// Namespace of the tool, if it has one.
    pub namespace: Option<&'a str>,
}

/// A call of a freeform tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomCall<'a> {
    /// Id of the call.
    pub call_id: &'a str,
    /// Name of the tool.
    pub name: &'a str,
    /// Text that the model wrote.
    pub input: &'a str,
}

impl Item {
    /// Typed view of the item.
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

/// One part of a message or of a tool output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Text.
    InputText {
        /// The text.
        text: String,
    },
    /// An image.
    InputImage {
        /// URL of the image, or a `data:` URL that contains it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image_url: Option<String>,
        /// Id of an uploaded file, instead of the content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_id: Option<String>,
        /// Resolution that the model sees: `low`, `high` or `auto`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A file.
    InputFile {
        /// Content of the file, as base64 or a `data:` URL.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_data: Option<String>,
        /// URL of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_url: Option<String>,
        /// Id of an uploaded file, instead of the content.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_id: Option<String>,
        /// Name of the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        filename: Option<String>,
    },
}

impl Part {
    /// A part with a text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::InputText { text: text.into() }
    }

    /// A part with an image by its URL.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::InputImage { image_url: Some(url.into()), file_id: None, detail: None }
    }

    /// A part with a file by its content, as base64.
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
