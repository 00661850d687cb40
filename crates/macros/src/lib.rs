//! The `#[tool]` attribute: a tool for an agent, out of an async function.

mod docs;
mod expand;
mod options;
mod signature;

use proc_macro::TokenStream;
use proc_macro2::TokenTree;
use quote::ToTokens as _;
use syn::{Error, Item, parse_macro_input};

use self::{options::Options, signature::Signature};

/// Makes a tool of an async function.
///
/// The function's name becomes a value that is the tool. Its doc comment is the description, and its arguments are the
/// tool's: each must be `Deserialize` and `JsonSchema`, and may have a doc comment of its own, which is its description
/// (or a line such as ``- `city`: where`` below the heading `# Arguments`). An argument may be `&str`. The first one may
/// be `&ToolContext` or `ToolContext`, which the model never sees. Whatever is `IntoToolOutput` can be returned, a
/// `Result` of it too. The function itself can still be called: as `name::direct(…)`.
///
/// | option | meaning |
/// |---|---|
/// | `name = "…"` | what the model calls it, if not the function's name |
/// | `description = "…"` | what it is good for, if not the doc comment |
/// | `needs_approval` | a person must agree to each call |
/// | `timeout = "5s"` | how long a call may take: a number with `ms`, `s`, `m` or `h` |
/// | `lenient` | the schema is advice only: for arguments that have no strict form, such as maps |
/// | `crate = "…"` | the path of the crate that this attribute came from, if it was renamed |
#[proc_macro_attribute]
pub fn tool(options: TokenStream, item: TokenStream) -> TokenStream {
    made(options, item, "::sandbar_agent")
}

/// Makes a tool of an async function: `#[tool] async fn weather(city: String) -> String`.
///
/// What the model sees is the function's name, its documentation, and its arguments with theirs. An argument is any type that is
/// `Deserialize` and has a schema (derive `serde::Deserialize` and `schemars::JsonSchema` for your own); an `Option` may be left
/// out; a first argument `call: &ToolContext` is not the model's. The answer is text, a number, `Json<T>` for anything that is
/// `Serialize`, parts with pictures, nothing, or one of these in an `Option` or a `Result`, whose error the model reads. Options:
/// `name = "…"`, `timeout = "5s"`, `needs_approval`.
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

/// The first token of an item after its attributes, so that an error does not point at all of it.
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
