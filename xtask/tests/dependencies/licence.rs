//! An SPDX expression, as `license` in a manifest has it: whether a list of allowed licences satisfies it.

use std::iter::Peekable;

/// Whether a program may be linked whose licence is this expression. A text that is no expression is not allowed.
pub(crate) fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    // Old manifests separate alternatives by a slash.
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let answer = alternatives(&mut words, allowed);
    answer.unwrap_or(false) && words.next().is_none()
}

fn alternatives<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> Option<bool> {
    let mut answer = all_of(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        answer |= all_of(words, allowed)?;
    }
    Some(answer)
}

fn all_of<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> Option<bool> {
    let mut answer = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        answer &= one(words, allowed)?;
    }
    Some(answer)
}

fn one<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>, allowed: &[&str]) -> Option<bool> {
    let word = words.next()?;
    if word == "(" {
        let answer = alternatives(words, allowed);
        return words.next_if_eq(&")").and(answer);
    }
    let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
    let name = exception.map_or_else(|| word.to_owned(), |exception| format!("{word} WITH {exception}"));
    Some(allowed.contains(&name.as_str()))
}

#[test]
fn an_expression_is_satisfied_by_what_is_allowed() {
    let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "GPL-3.0/MIT",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        "((MIT OR GPL-3.0) AND Unicode-3.0) OR GPL-3.0",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in [
        "",
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT GPL-3.0",
        "MIT OR",
        "(MIT",
        "MIT WITH LLVM-exception",
        "GPL-3.0 OR (MIT AND GPL-3.0)",
        "MIT AND (GPL-3.0 OR ISC) AND MIT",
    ] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
