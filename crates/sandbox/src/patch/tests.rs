//! The engine against tables, against a machine that fails, and against chance.

mod chance;
mod grammar;
mod interrupted;
mod profiles;
mod python;
mod watched;
mod whole;

use std::future::Future;

use sandbar_machine::{Machine, MachinePath, MemoryMachine, Target, collect, once};

use super::{Applied, Ending, Patch, PatchOptions, Profile, apply, place, search::Work, text};
use crate::{Paths, Result, SandboxError};

const BOTH: [Profile; 2] = [Profile::Codex, Profile::Sdk];

fn wait<T>(what: impl Future<Output = T> + Send) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(what)
}

fn paths() -> Paths {
    Paths::new(MachinePath::workspace())
}

fn at(path: &str) -> Target {
    Target::from(MachinePath::workspace().join(path).unwrap())
}

fn with(profile: Profile) -> PatchOptions {
    PatchOptions { profile, ..PatchOptions::default() }
}

/// A machine with these files, and in its workspace nothing else.
fn machine(files: &[(&str, &[u8])]) -> MemoryMachine {
    let machine = MemoryMachine::new();
    for (path, content) in files {
        wait(machine.write(&at(path), once(content.to_vec()))).unwrap();
    }
    machine
}

/// Everything below the workspace: path, mode, content; directories end with a slash.
fn tree(machine: &dyn Machine) -> Vec<(String, u32, Vec<u8>)> {
    wait(async {
        let root = Target::from(MachinePath::workspace());
        let mut found = Vec::new();
        for item in machine.scan(&root, &sandbar_machine::ScanOptions::default()).await.unwrap().entries {
            let path = item.path.into_string().unwrap();
            let content = match item.entry.kind {
                sandbar_machine::EntryKind::File => {
                    collect(machine.read(&at(&path)).await.unwrap(), 1 << 30).await.unwrap().to_vec()
                }
                other => format!("{other:?}").into_bytes(),
            };
            found.push((path, item.entry.mode, content));
        }
        found
    })
}

fn run(machine: &dyn Machine, text: &str, profile: Profile) -> Result<Applied> {
    let patch = Patch::parse(text)?;
    wait(apply(machine, &paths(), &patch, &with(profile)))
}

fn enveloped(sections: &str) -> String {
    format!("*** Begin Patch\n{sections}\n*** End Patch\n")
}

/// The text of a file after one update section, or the message.
fn updated(profile: Profile, content: &str, body: &str) -> Result<String, String> {
    worked(profile, content, body, &mut Work::default())
}

fn worked(profile: Profile, content: &str, body: &str, work: &mut Work) -> Result<String, String> {
    let text = enveloped(&format!("*** Update File: f\n{body}"));
    let mut update = || -> Result<String> {
        let patch = Patch::parse(&text)?;
        let super::Operation::Update { hunks, ending, .. } = &patch.operations[0] else { panic!("{text}") };
        let rules = place::Rules { profile, path: "f", ending: *ending, mask: None };
        let mut file = text::Text::new(content.to_owned());
        place::patch(&mut file, hunks, rules, work)?;
        Ok(file.to_string())
    };
    update().map_err(|error| error.to_string())
}

fn code_of<T: std::fmt::Debug>(result: Result<T>) -> (&'static str, String) {
    let error: SandboxError = result.unwrap_err();
    (error.code(), error.to_string())
}

#[test]
fn an_ending_is_saved_by_its_name() {
    assert_eq!(
        serde_json::to_string(&(Profile::Codex, Profile::Sdk, Ending::CrLf)).unwrap(),
        r#"["codex","sdk","cr_lf"]"#
    );
}
