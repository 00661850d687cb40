//! Descriptions of a tool and its arguments, read from doc comments.

use proc_macro2::Span;
use syn::{Attribute, Expr, Lit, Meta, spanned::Spanned as _};

/// Descriptions in the doc comment of a function.
#[derive(Debug, Default)]
pub(crate) struct Docs {
    /// Description of the tool.
    pub(crate) description: String,
    /// Descriptions of arguments, by name, from the list below `# Arguments`.
    pub(crate) arguments: Vec<Listed>,
}

/// An argument in the list.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) text: String,
    pub(crate) span: Span,
}

impl Docs {
    pub(crate) fn read(attributes: &[Attribute]) -> Self {
        let mut docs = Self::default();
        let mut listing = false;
        let mut description: Vec<String> = Vec::new();
        for (line, span) in lines(attributes) {
            if let Some(heading) = line.trim_start().strip_prefix('#') {
                let heading = heading.trim_start_matches('#').trim().to_ascii_lowercase();
                listing = matches!(heading.as_str(), "arguments" | "args" | "parameters");
                if listing {
                    continue;
                }
            }
            if listing {
                docs.list(&line, span);
            } else {
                description.push(line);
            }
        }
        docs.description = joined(&description);
        docs
    }

    /// Adds a line below the heading: it starts an entry, or continues the last one.
    fn list(&mut self, line: &str, span: Span) {
        if let Some((name, text)) = entry(line) {
            self.arguments.push(Listed { name: name.to_owned(), text: text.to_owned(), span });
        } else if let Some(last) = self.arguments.last_mut()
            && !line.trim().is_empty()
        {
            last.text = format!("{} {}", last.text, line.trim());
        }
    }
}

/// Parses an entry such as ``- `city`: where`` or ``* `city` - where``.
fn entry(line: &str) -> Option<(&str, &str)> {
    let rest = line.trim_start().strip_prefix(['-', '*'])?.trim_start().strip_prefix('`')?;
    let (name, text) = rest.split_once('`')?;
    Some((name, text.trim_start_matches([' ', ':', '-', '–', '—']).trim_end()))
}

/// Text of a doc comment.
pub(crate) fn text(attributes: &[Attribute]) -> String {
    let lines: Vec<String> = lines(attributes).map(|(line, _)| line).collect();
    joined(&lines)
}

pub(crate) fn is_doc(attribute: &Attribute) -> bool {
    attribute.path().is_ident("doc")
}

/// Lines of a doc comment, without the leading space.
fn lines(attributes: &[Attribute]) -> impl Iterator<Item = (String, Span)> {
    let texts = attributes.iter().filter(|attribute| is_doc(attribute)).filter_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(text) = &literal.lit else { return None };
        Some((text.value(), attribute.span()))
    });
    texts.flat_map(|(text, span)| {
        let lines: Vec<String> =
            text.split('\n').map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned()).collect();
        lines.into_iter().map(move |line| (line, span))
    })
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use syn::{ItemFn, parse_quote};

    use super::*;

    #[test]
    fn a_list_of_arguments_is_not_part_of_the_description() {
        let function: ItemFn = parse_quote! {
            /// Finds a thing.
            ///
            /// Slowly.
            /// # Arguments
            /// * `what` - the thing,
            ///   whatever it is
            /// - `near`: where
            ///
            /// # Errors
            /// None.
            async fn find() {}
        };
        let docs = Docs::read(&function.attrs);
        assert_eq!(docs.description, "Finds a thing.\n\nSlowly.\n# Errors\nNone.");
        let listed: Vec<(&str, &str)> =
            docs.arguments.iter().map(|listed| (listed.name.as_str(), listed.text.as_str())).collect();
        assert_eq!(listed, [("what", "the thing, whatever it is"), ("near", "where")]);
    }
}
