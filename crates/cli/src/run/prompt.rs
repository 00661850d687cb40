//! What the agent is asked to do: an argument, or standard input.

use std::io::{self, IsTerminal, Read};

use crate::failure::Failure;

/// The longest prompt.
const LIMIT: u64 = 1 << 20;

/// Several words are one prompt, for those who leave the quotes out.
pub(super) fn read(words: &[String]) -> Result<String, Failure> {
    let given = (!words.is_empty()).then(|| words.join(" "));
    let missing = |what: &str| {
        Failure::new(what).next("say what to do: sandbar run \"fix the failing test\" --workspace .").code("usage")
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
        return Err(Failure::new("the prompt is longer than 1 MiB").next("put it into a file of the workspace"));
    }
    Ok(text)
}
