//! The options of the attribute.

use proc_macro2::TokenStream;
use syn::{Error, LitStr, Path, Result, meta::ParseNestedMeta, parse::Parser as _};

const KNOWN: &str = "`name`, `description`, `needs_approval`, `timeout`, `lenient` and `crate`";

/// Options in the parentheses of the attribute.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<LitStr>,
    pub(crate) needs_approval: bool,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) lenient: bool,
    /// Path of the crate that the generated code uses.
    pub(crate) from: Path,
}

impl Options {
    pub(crate) fn parse(tokens: TokenStream, from: &str) -> Result<Self> {
        let mut options = Self {
            name: None,
            description: None,
            needs_approval: false,
            timeout_ms: None,
            lenient: false,
            from: syn::parse_str(from)?,
        };
        let mut seen: Vec<String> = Vec::new();
        let parser = syn::meta::parser(|meta| {
            let option = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            if seen.contains(&option) {
                return Err(meta.error(format!("the option `{option}` is repeated")));
            }
            options.take(&option, &meta)?;
            seen.push(option);
            Ok(())
        });
        parser.parse2(tokens)?;
        Ok(options)
    }

    fn take(&mut self, option: &str, meta: &ParseNestedMeta<'_>) -> Result<()> {
        match option {
            "name" => {
                let name = text(meta)?;
                check_name(&name)?;
                self.name = Some(name);
            }
            "description" => {
                let description = text(meta)?;
                if description.value().trim().is_empty() {
                    return Err(Error::new(description.span(), "the description is empty"));
                }
                self.description = Some(description);
            }
            "timeout" => self.timeout_ms = Some(milliseconds(&text(meta)?)?),
            "crate" => self.from = text(meta)?.parse_with(Path::parse_mod_style)?,
            "needs_approval" => self.needs_approval = flag(meta)?,
            "lenient" => self.lenient = flag(meta)?,
            _ => return Err(meta.error(format!("there is no such option; there are {KNOWN}"))),
        }
        Ok(())
    }
}

fn text(meta: &ParseNestedMeta<'_>) -> Result<LitStr> {
    meta.value()?.parse()
}

fn flag(meta: &ParseNestedMeta<'_>) -> Result<bool> {
    if meta.input.is_empty() || meta.input.peek(syn::Token![,]) {
        return Ok(true);
    }
    Err(meta.error("this option takes no value"))
}

/// Whether servers accept this name for a function.
pub(crate) fn check_name(name: &LitStr) -> Result<()> {
    let text = name.value();
    let fits = (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if fits {
        return Ok(());
    }
    Err(Error::new(name.span(), "a tool's name is 1 to 64 of the characters a-z, A-Z, 0-9, `_` and `-`"))
}

fn milliseconds(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let digits = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(digits);
    let factor = match unit.trim() {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number: Option<u64> = number.parse().ok().filter(|number| *number > 0);
    let both = number.zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    both.ok_or_else(|| Error::new(text.span(), "a timeout is a number and `ms`, `s`, `m` or `h`, such as \"5s\""))
}

#[cfg(test)]
mod tests {
    use proc_macro2::Span;

    use super::*;

    #[test]
    fn timeouts_are_numbers_with_a_unit() {
        for (text, expected) in [
            ("5s", Some(5_000)),
            ("250 ms", Some(250)),
            ("2m", Some(120_000)),
            ("1h", Some(3_600_000)),
            ("0s", None),
            ("5", None),
            ("s", None),
            ("-5s", None),
            ("5 days", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(milliseconds(&LitStr::new(text, Span::call_site())).ok(), expected, "{text}");
        }
    }

    #[test]
    fn names_are_those_that_servers_take() {
        for (name, fits) in
            [("a", true), ("read_file-2", true), ("", false), ("a b", false), ("ü", false), (&"a".repeat(65), false)]
        {
            assert_eq!(check_name(&LitStr::new(name, Span::call_site())).is_ok(), fits, "{name}");
        }
    }
}
