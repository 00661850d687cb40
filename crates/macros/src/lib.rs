//! The attribute `#[tool]`, which turns an async function into a tool of an agent.

mod docs;
mod expand;
mod options;
mod signature;

use proc_macro::TokenStream;
use proc_macro2::TokenTree;
use quote::ToTokens as _;
use syn::{Error, Item, parse_macro_input};

use self::{options::Options, signature::Signature};

/// Turns an async function into a tool.
///
/// The name of the function becomes a value that is the tool. The doc comment of the function is the description of the
/// tool. The arguments of the function are those of the tool: each type must implement `Deserialize` and `JsonSchema`. The
/// description of an argument is its doc comment, or a line such as ``- `city`: where`` below the heading `# Arguments`. An
/// argument can be a `&str`. The first argument can be `&ToolContext` or `ToolContext`, which the model does not see. The
/// return type must implement `IntoToolOutput`, as a `Result` does. The function itself can be called as `name::direct(…)`.
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | name of the tool, instead of the name of the function |
/// | `description = "…"` | description of the tool, instead of the doc comment |
/// | `needs_approval` | every call needs the approval of a person |
/// | `timeout = "5s"` | timeout of a call: a number with `ms`, `s`, `m` or `h` |
/// | `lenient` | the schema is not enforced, for arguments that have no strict form, such as maps |
/// | `crate = "…"` | path of the crate that exports this attribute, if the crate was renamed |
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    made(options, item, "::sandbar_agent")
}

/// Turns an async function into a tool: `#[tool] async fn weather(city: String) -> String`.
///
/// The model sees the name of the function, its arguments, and the doc comments of both. The type of an argument must have a
/// schema and implement `Deserialize` (derive `serde::Deserialize` and `schemars::JsonSchema` for your own types). The model
/// may omit an `Option`. A first argument `call: &ToolContext` is hidden from the model. The output is text, a number,
/// `Json<T>` for a type that implements `Serialize`, parts with images, `()`, or one of these in an `Option` or a `Result`,
/// whose error the model reads. Options: `name = "…"`, `timeout = "5s"`, `needs_approval`.
#[proc_macro_attribute]
pub fn sandbar_tool(options: TokenStream, item: TokenStream) -> TokenStream {
    made(options, item, "::sandbar")
}

fn made(options: TokenStream, item: TokenStream, from: &str) -> TokenStream {
    let item = parse_macro_input!(item as Item);
    expanded(options.into(), item, from).unwrap_or_else(Error::into_compile_error).into()
}

fn expanded(options: proc_macro2::TokenStream, item: Item, from: &str) -> Result<proc_macro2::TokenStream, Error> {
    let options = Options::parse(options, from)?;
    let Item::Fn(function) = item else {
        return Err(Error::new_spanned(opening(&item), "a tool is made of an `async fn`"));
    };
    let signature = Signature::read(&function)?;
    expand::tool(&options, function, signature)
}

/// The first token of an item after its attributes, so that an error does not underline the whole item.
fn opening(item: &Item) -> proc_macro2::TokenStream {
    let mut tokens = item.to_token_stream().into_iter();
    let mut next = tokens.next();
    while matches!(&next, Some(TokenTree::Punct(mark)) if mark.as_char() == '#') {
        tokens.next();
        next = tokens.next();
    }
    next.into_iter().collect()
}

#[cfg(test)]
mod tests;
