//! The prompt: from the arguments, or from standard input.

use std::io::{self, IsTerminal, Read};

use crate::failure::Failure;

/// Maximum length of a prompt.
const LIMIT: u64 = 1 << 20;

/// Reads the prompt. Several arguments are one prompt, so that quotes are optional.
pub(super) fn read(words: &[String]) -> Result<String, Failure> {
    let given = (!words.is_empty()).then(|| words.join(" "));
    let missing = |what: &str| {
        Failure::new(what).next("pass a prompt: sandbar run \"fix the failing test\" --workspace .").code("usage")
    };
    let text = match given.as_deref() {
        Some("-") => typed()?,
        Some(text) => text.to_owned(),
        None if !io::stdin().is_terminal() => typed()?,
        None => return Err(missing("there is no prompt")),
    };
    if text.trim().is_empty() {
        return Err(missing("the prompt is empty"));
    }
    Ok(text)
}

fn typed() -> Result<String, Failure> {
    let mut text = String::new();
    let read = io::stdin().lock().take(LIMIT + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::new("cannot read the prompt from standard input").because(error))?;
    if text.len() as u64 > LIMIT {
        return Err(Failure::new("the prompt is longer than 1 MiB").next("write it to a file of the workspace"));
    }
    Ok(text)
}
