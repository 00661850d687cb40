//! `sandbar manifest`: what is wrong with a declared workspace, and what it declares.

use std::{
    error::Error,
    fs::File,
    io::{self, Read},
    path::Path,
};

use sandbar::{Format, Manifest, SandboxError};
use serde_json::{Value, json};

use crate::{
    args::{CheckArgs, ManifestTask, RenderArgs, SourceArgs},
    failure::Failure,
    render::{Render, Style, inert, inert_line},
};

/// One byte more than the longest text that is read.
const TEXT_LIMIT: u64 = (64 << 20) + 1;

/// The exit code when there is nothing to look at.
const USAGE: u8 = 2;

pub(crate) fn run(task: &ManifestTask, render: &Render) -> Result<u8, (Failure, u8)> {
    match task {
        ManifestTask::Check(args) => check(args, render),
        ManifestTask::Render(args) => show(args, render),
    }
}

/// The manifest of a file, sound, its sources beginning where the file is.
pub(crate) fn load(path: &Path) -> Result<Manifest, Failure> {
    let format = format_of(path, "--manifest").map_err(|failure| failure.next("name it .json, .yaml or .toml"))?;
    let text = text_of(path, "--manifest")?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Manifest::from_file(&text, format, directory).map_err(|error| {
        let shown = path.display();
        Failure::from(error).next(format!("`sandbar manifest check {shown}` lists all that is wrong"))
    })
}

fn check(args: &CheckArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    let (text, format) = read(&args.source).map_err(|failure| (failure, USAGE))?;
    let file = args.source.file.display().to_string();
    let (entries, faults) = match Manifest::from_text_unchecked(&text, format) {
        Ok(manifest) => (manifest.flatten().len(), manifest.faults()),
        Err(error) => (0, vec![error]),
    };
    let report = if args.json {
        let faults: Vec<Value> = faults.iter().map(document).collect();
        format!("{}\n", json!({"file": file, "sound": faults.is_empty(), "entries": entries, "faults": faults}))
    } else {
        describe(&file, entries, &faults, render)
    };
    let printed = render.result(report.as_bytes()).map_err(|failure| (failure, 1))?;
    Ok(if faults.is_empty() { printed } else { 1 })
}

fn describe(file: &str, entries: usize, faults: &[SandboxError], render: &Render) -> String {
    let file = inert_line(file);
    if faults.is_empty() {
        let count = if entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") };
        return format!("{file}: {}, {count}\n", render.paint(Style::Good, "sound"));
    }
    let lines = faults.iter().map(|fault| format!("{file}: {}\n", inert(&fault.full_message())));
    lines.collect()
}

/// A fault for programs.
fn document(fault: &SandboxError) -> Value {
    json!({"code": fault.code(), "path": place(fault), "message": fault.full_message(), "context": fault.context()})
}

/// Where in the manifest it is.
fn place(fault: &SandboxError) -> Value {
    let cause = fault.source().map(ToString::to_string);
    match cause.as_deref().and_then(|cause| cause.strip_prefix("in ")) {
        Some(place) => place.into(),
        None => {
            let mut facts = fault.context();
            facts.remove("path").or_else(|| facts.remove("what")).unwrap_or(Value::Null)
        }
    }
}

fn show(args: &RenderArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    let (text, format) = read(&args.source).map_err(|failure| (failure, USAGE))?;
    let text = shown(args, &text, format).map_err(|error| (Failure::from(error), 1))?;
    render.result(text.as_bytes()).map_err(|failure| (failure, 1))
}

fn shown(args: &RenderArgs, text: &str, format: Format) -> Result<String, SandboxError> {
    let manifest = Manifest::from_text_unchecked(text, format)?;
    manifest.check()?;
    let mut text = match args.format.map(Format::from) {
        None => inert(&manifest.describe(args.depth)),
        Some(Format::Json) => manifest.to_json()?,
        Some(Format::Yaml) => manifest.to_yaml()?,
        Some(Format::Toml) => manifest.to_toml()?,
    };
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn read(source: &SourceArgs) -> Result<(String, Format), Failure> {
    let format = match source.input_format {
        Some(format) => format.into(),
        None => format_of(&source.file, "the manifest").map_err(|failure| {
            failure.next("name it .json, .yaml or .toml, or say --input-format json, yaml or toml")
        })?,
    };
    Ok((text_of(&source.file, "the manifest")?, format))
}

fn format_of(path: &Path, what: &str) -> Result<Format, Failure> {
    Format::of_name(path)
        .ok_or_else(|| Failure::new(format!("cannot tell the format of {what} {}", path.display())).code("usage"))
}

fn text_of(path: &Path, what: &str) -> Result<String, Failure> {
    let refuse = || Failure::new(format!("cannot read {what} {}", path.display())).code("usage");
    let read = || {
        let mut text = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().take(TEXT_LIMIT).read_to_end(&mut text)?;
        } else {
            File::open(path)?.take(TEXT_LIMIT).read_to_end(&mut text)?;
        }
        io::Result::Ok(text)
    };
    let text = read().map_err(|error| refuse().because(error).next("give a file that exists and that you can read"))?;
    String::from_utf8(text).map_err(|error| refuse().because(error.utf8_error()).next("write it as UTF-8"))
}
