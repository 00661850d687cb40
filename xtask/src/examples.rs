//! Every example of the library, run as its own first lines say, and held to the output they show.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::program::{self, Failure, Result};

const FOLDERS: [&str; 2] = ["crates/sandbar/examples", "crates/runs/examples"];
/// What a header says before the command that runs it.
const RUN_WITH: &str = "Run with `cargo ";
/// What an example types, and when, is written down; a busy machine may be slower than that.
const TRIES: usize = 3;

pub(crate) fn run() -> Result {
    program::run(program::cargo().args(["build", "--quiet", "--workspace", "--all-features", "--examples"]))?;
    let mut examples = Vec::new();
    for folder in FOLDERS {
        let files = fs::read_dir(program::root().join(folder));
        let files = files.map_err(|error| Failure::new(format!("{folder}: {error}")))?;
        examples.extend(files.filter_map(|file| Some(file.ok()?.path())));
    }
    // A file, or a folder of several.
    examples.retain(|path| path.extension().is_some_and(|ending| ending == "rs") || path.is_dir());
    examples.sort();
    for path in examples {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        println!("example {name}");
        let source = if path.is_dir() { path.join("main.rs") } else { path.clone() };
        let text = fs::read_to_string(source).map_err(|error| Failure::new(format!("{name}: {error}")))?;
        let header = header(&text);
        let mut checked = check(&path, &header);
        for _ in 1..TRIES {
            let Err(why) = &checked else { break };
            println!("example {name} is tried again: {}", why.message);
            checked = check(&path, &header);
        }
        checked.map_err(|why| Failure::new(format!("example {name}: {}", why.message)))?;
    }
    Ok(())
}

/// The text of the opening comment.
fn header(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line))).collect()
}

fn check(path: &Path, header: &str) -> Result {
    let words = arguments(header).ok_or_else(|| Failure::new(format!("its header has no \"{RUN_WITH}…`\"")))?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let arguments = own_arguments(&words, &name)
        .ok_or_else(|| Failure::new(format!("its header does not run it: cargo {}", words.join(" "))))?;
    let mut command = built(&name);
    program::without_proxies(&mut command).args(arguments).stderr(Stdio::inherit());
    let script = path.with_extension("json");
    let server = script.exists().then(|| Server::start(&script)).transpose()?;
    if let Some(server) = &server {
        command.env_remove("OPENAI_API_KEY").env("OPENAI_BASE_URL", &server.address);
    }
    let output = command.output().map_err(|error| Failure::new(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(Failure::new(format!("{}; it said:\n{said}", output.status)));
    }
    match shown(header) {
        Some(shown) if shown != said => Err(Failure::new(format!("its header shows\n{shown}but it printed\n{said}"))),
        None if said.is_empty() => Err(Failure::new("it printed nothing")),
        _ => Ok(()),
    }
}

/// An example as it was built beside the tests. `cargo run` would build it once more, with fewer features.
fn built(name: &str) -> Command {
    program::at_root(program::target().join("debug/examples").join(name))
}

/// What the example itself is given by a `cargo run` of it; `None` if the words run something else.
fn own_arguments<'a>(words: &'a [&'a str], name: &str) -> Option<&'a [&'a str]> {
    match words {
        ["run", "-p", "sandbar" | "sandbar-runs", "--example", which] if *which == name => Some(&[]),
        ["run", "-p", "sandbar" | "sandbar-runs", "--example", which, "--", rest @ ..] if *which == name => Some(rest),
        _ => None,
    }
}

/// What comes after `cargo` in the command that a header names.
fn arguments(header: &str) -> Option<Vec<&str>> {
    let (_, command) = header.split_once(RUN_WITH)?;
    let words: Vec<&str> = command.split_once('`')?.0.split_whitespace().collect();
    (!words.is_empty()).then_some(words)
}

/// The output that a header shows.
fn shown(header: &str) -> Option<&str> {
    let (_, text) = header.split_once("```text\n")?;
    Some(text.split_once("```")?.0)
}

/// A model server that plays the script beside an example, and ends with this value.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(script: &Path) -> Result<Self> {
        let mut command = built("serve");
        command.arg(script);
        let mut process = command.stdout(Stdio::piped()).spawn().map_err(|error| Failure::new(error.to_string()))?;
        let mut address = String::new();
        let read = process.stdout.take().map(|output| BufReader::new(output).read_line(&mut address));
        let server = Self { process, address: address.trim_end().to_owned() };
        match read {
            Some(Ok(1..)) => Ok(server),
            _ => Err(Failure::new("the server of its script did not start")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_how_to_run_it_and_what_it_prints() {
        let text = "//! It greets.\n//!\n//! Run with `cargo run -p x --example greet -- you`. It prints:\n//!\n\
                    //! ```text\n//! hello\n//!\n//! you\n//! ```\n\nuse x;\n//! ```text\n";
        let header = header(text);
        assert_eq!(arguments(&header), Some(vec!["run", "-p", "x", "--example", "greet", "--", "you"]));
        let words = ["run", "-p", "sandbar", "--example", "greet", "--", "you"];
        assert_eq!(own_arguments(&words, "greet"), Some(["you"].as_slice()));
        assert_eq!(own_arguments(&words[..5], "greet"), Some([].as_slice()));
        assert_eq!(own_arguments(&words, "part"), None);
        assert_eq!(shown(&header), Some("hello\n\nyou\n"));
        assert_eq!(arguments("It greets.\n"), None);
        assert_eq!(shown("It greets.\n"), None);
    }
}
