//! `sandbar manifest`: checks and shows manifests.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use sandbar::{
    MachinePath, Manifest, SandboxError,
    client::UnixLocal,
    sandbox::{Format, Outlook, Unchecked},
};
use sandbar_runs::without_number;
use serde_json::{Value, json};

use crate::{
    args::{CheckArgs, ManifestTask, RenderArgs, SourceArgs},
    failure::Failure,
    machine::plan,
    render::{Render, Style, inert, inert_line},
};

/// One byte more than the maximum length of a manifest.
const TEXT_LIMIT: u64 = (64 << 20) + 1;

/// Exit code if the manifest cannot be read.
const USAGE: u8 = 2;

pub(crate) fn run(task: &ManifestTask, render: &Render) -> Result<u8, (Failure, u8)> {
    match task {
        ManifestTask::Check(args) => check(args, render),
        ManifestTask::Render(args) => show(args, render),
    }
}

/// Loads and checks a manifest file; its sources are relative to the directory of the file.
pub(crate) fn load(path: &Path) -> Result<Manifest, Failure> {
    let shown = path.display();
    Manifest::load(path).map_err(|error| match error.code() {
        "local_file_read_error" => {
            let failure = Failure::from(error).saying(format!("cannot read --manifest {shown}")).code("usage");
            failure.next("name a file that exists and that you can read")
        }
        _ if Format::of_name(path).is_none() => {
            unknown_format(path, "--manifest").next("name it .json, .yaml or .toml")
        }
        _ => Failure::from(error).next(format!("`sandbar manifest check {shown}` lists all mistakes")),
    })
}

fn check(args: &CheckArgs, render: &Render) -> Result<u8, (Failure, u8)> {
    let (text, format) = read(&args.source).map_err(|failure| (failure, USAGE))?;
    let report = judge(args, &text, format).map_err(|failure| (failure, USAGE))?;
    let text = if args.json { report.document() } else { report.describe(render) };
    let printed = render.result(text.as_bytes()).map_err(|failure| (failure, 1))?;
    Ok(if report.faults.is_empty() { printed } else { 1 })
}

fn judge(args: &CheckArgs, text: &str, format: Format) -> Result<Report, Failure> {
    let file = args.source.file.display().to_string();
    let manifest = match format.manifest_unchecked(text) {
        Ok(manifest) => manifest,
        Err(error) => return Ok(Report { file, entries: 0, faults: vec![error], unchecked: Vec::new() }),
    };
    let directory = args.source.file.parent().filter(|_| args.source.file != Path::new("-"));
    let manifest = match directory {
        Some(parent) if parent.as_os_str().is_empty() => manifest.base_dir("."),
        Some(parent) => manifest.base_dir(parent),
        None => manifest,
    };
    let manifest = if args.allow_mounts { manifest.trust_mounts() } else { manifest };
    let manifest = plan::granting(manifest, &args.grants)?;
    let Outlook { faults: ahead, unchecked } = Outlook::of(&manifest);
    let faults = manifest.faults().into_iter().chain(ahead).chain(unfit(&manifest)).collect();
    Ok(Report { file, entries: manifest.flatten().len(), faults, unchecked })
}

/// Writable directories of a local machine without `--rootfs`.
const WRITABLE: &[&str] = &["/workspace", "/tmp", "/var/tmp", "/home/agent", "/dev/shm"];

/// Parts of the manifest that a local machine refuses.
fn unfit(manifest: &Manifest) -> Vec<SandboxError> {
    let mut faults = Vec::new();
    let granted = manifest.extra_path_grants.iter().map(|grant| grant.path.clone());
    let places = WRITABLE.iter().filter_map(|place| MachinePath::new(*place).ok());
    if manifest.root != MachinePath::root() && !places.chain(granted).any(|place| manifest.root.is_within(&place)) {
        let reason = format!("a local machine can create it only below {}", WRITABLE.join(", "));
        faults.push(SandboxError::unsupported_feature(manifest.root.to_string(), reason).because("in root"));
    }
    let Err(one) = UnixLocal::several_users() else { return faults };
    let users = manifest.users.iter().map(|user| ("users", &user.name)).enumerate();
    let groups = manifest.groups.iter().map(|group| ("groups", &group.name)).enumerate();
    for (index, (list, name)) in users.chain(groups).filter(|(_, (_, name))| *name != "agent") {
        faults.push(SandboxError::account_unavailable(name, one.to_string()).because(format!("in {list}[{index}]")));
    }
    faults
}

/// Result of a check.
struct Report {
    file: String,
    entries: usize,
    faults: Vec<SandboxError>,
    unchecked: Vec<Unchecked>,
}

impl Report {
    fn document(&self) -> String {
        let faults: Vec<Value> = self.faults.iter().map(document).collect();
        let (file, sound) = (&self.file, faults.is_empty());
        let report = json!({"file": file, "sound": sound, "entries": self.entries, "faults": faults,
            "not_checked": self.unchecked});
        format!("{report}\n")
    }

    fn describe(&self, render: &Render) -> String {
        let file = inert_line(&self.file);
        let faults = self.faults.iter().map(|fault| format!("{file}: {}\n", inert(&told(fault))));
        let mut text: String = faults.collect();
        if self.faults.is_empty() {
            let count = if self.entries == 1 { "1 entry".to_owned() } else { format!("{} entries", self.entries) };
            text = format!("{file}: {}, {count}\n", render.paint(Style::Good, "sound"));
        }
        for Unchecked { path, source } in &self.unchecked {
            let (path, source) = (inert_line(path), inert_line(source));
            text.push_str(&format!("{file}: {}: {source}: in {path}\n", render.paint(Style::Doubtful, "not checked")));
        }
        text
    }
}

fn told(fault: &SandboxError) -> String {
    let parts = std::iter::once(fault.to_string()).chain(fault.causes());
    parts.map(|part| without_number(&part).to_owned()).collect::<Vec<_>>().join(": ")
}

/// A mistake as JSON.
fn document(fault: &SandboxError) -> Value {
    json!({"code": fault.code(), "path": place(fault), "message": told(fault), "context": fault.context()})
}

/// Position of the mistake in the manifest.
fn place(fault: &SandboxError) -> Value {
    let causes = fault.causes();
    match causes.last().and_then(|cause| cause.strip_prefix("in ")) {
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
    let manifest = format.manifest(text)?;
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
        None => Format::of_name(&source.file).ok_or_else(|| {
            let next = "add --input-format json, yaml or toml";
            if source.file == Path::new("-") {
                return Failure::new("cannot tell the format of standard input").code("usage").next(next);
            }
            unknown_format(&source.file, "the manifest").next(format!("name it .json, .yaml or .toml, or {next}"))
        })?,
    };
    Ok((text_of(&source.file)?, format))
}

fn unknown_format(path: &Path, what: &str) -> Failure {
    Failure::new(format!("cannot tell the format of {what} {}", path.display())).code("usage")
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let refuse = || Failure::new(format!("cannot read the manifest {}", path.display())).code("usage");
    let read = || {
        let mut text = Vec::new();
        if path == Path::new("-") {
            io::stdin().lock().take(TEXT_LIMIT).read_to_end(&mut text)?;
        } else {
            File::open(path)?.take(TEXT_LIMIT).read_to_end(&mut text)?;
        }
        io::Result::Ok(text)
    };
    let text = read().map_err(|error| refuse().because(error).next("name a file that exists and that you can read"))?;
    String::from_utf8(text).map_err(|error| refuse().because(error.utf8_error()).next("save it as UTF-8"))
}
