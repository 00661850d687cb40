//! Tests of the error messages of the attribute, compared with recorded compiler output; they run without a compiler.
//!
//! `crates/agent/tests/tool_macro.rs` runs the compiler and also checks the positions, which takes minutes.

#![allow(clippy::expect_used, reason = "a test")]

use std::{fs, path::Path};

use proc_macro2::TokenStream;
use syn::{Attribute, Item, Meta};

use super::expanded;

/// The options of `#[tool]`, removed from an item; `None` for an item without the attribute.
fn take_tool(item: &mut Item) -> Option<TokenStream> {
    let attributes: &mut Vec<Attribute> = match item {
        Item::Fn(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        _ => return None,
    };
    let index = attributes.iter().position(|attribute| attribute.path().is_ident("tool"))?;
    match attributes.remove(index).meta {
        Meta::List(list) => Some(list.tokens),
        _ => Some(TokenStream::new()),
    }
}

/// All error messages of the attribute for the tools of a file, in order.
fn messages(source: &str) -> Vec<String> {
    let file = syn::parse_file(source).expect("the file is Rust");
    let wrong = file.items.into_iter().filter_map(|mut item| {
        let options = take_tool(&mut item)?;
        expanded(options, item, "::sandbar_agent").err()
    });
    wrong.flat_map(|error| error.into_iter().map(|one| one.to_string()).collect::<Vec<_>>()).collect()
}

#[test]
fn the_attribute_says_what_the_compiler_was_seen_to_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("crates").join("agent/tests/ui");
    let mut by_the_attribute = 0;
    for entry in fs::read_dir(&folder).expect("the cases") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let said = messages(&fs::read_to_string(&path).expect("the case"));
        if said.is_empty() {
            // Only the compiler finds the errors in these files: they are about types.
            continue;
        }
        by_the_attribute += 1;
        let seen = fs::read_to_string(path.with_extension("stderr")).expect("what the compiler said");
        let seen: Vec<&str> = seen.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
        assert_eq!(said, seen, "{}", path.display());
    }
    assert!(by_the_attribute >= 9, "{by_the_attribute} cases");
}
