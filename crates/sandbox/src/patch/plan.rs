//! What a patch makes of its files, decided from their contents alone.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;
use sandbar_machine::{MachinePath, Stamp, Target};

use super::{
    Change, Content, Done, Ending, Hunk, Operation, Patch, PatchOptions, Profile,
    files::Sites,
    place::{Rules, patch as put_hunks},
    search::Work,
    text::Text,
};
use crate::{PathFault, Result, SandboxError};

/// The permissions of a file that did not exist.
const NEW_FILE: u32 = 0o644;

/// Everything that is to be written.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) done: Vec<Done>,
    pub(super) delta: Vec<Change>,
    /// How the file of each change looked when it was read.
    pub(super) seen: Vec<Option<Stamp>>,
    /// The directories that have to be made, parents first.
    pub(super) made: Vec<Target>,
}

/// Performs every operation on what was read.
pub(super) fn plan(sites: Sites, patch: &Patch, options: &PatchOptions) -> Result<Planned> {
    plan_within(sites, patch, options, Work::default())
}

pub(super) fn plan_within(sites: Sites, patch: &Patch, options: &PatchOptions, work: Work) -> Result<Planned> {
    let now = sites.all.iter().map(|site| site.content.clone()).collect();
    let mut plan = Plan { sites, now, open: None, options, work };
    let done = patch.operations.iter().map(|operation| plan.perform(operation)).collect::<Result<_>>()?;
    plan.shut()?;
    plan.check_nesting()?;
    Ok(plan.finish(done))
}

/// The files as they will be.
struct Plan<'p> {
    sites: Sites,
    now: Vec<Option<Content>>,
    /// The file that was changed last, still taken apart; its bytes in `now` are old. Only one, because lines take several
    /// times the space of the text.
    open: Option<Open>,
    options: &'p PatchOptions,
    work: Work,
}

struct Open {
    at: usize,
    text: Text,
}

impl Plan<'_> {
    fn perform(&mut self, operation: &Operation) -> Result<Done> {
        match operation {
            Operation::Create { path, lines, ending } => {
                let at = self.site(path)?;
                let bytes = self.created(path, lines, *ending)?;
                self.work.copy(bytes.len())?;
                let mode = self.now[at].as_ref().map_or(NEW_FILE, |content| content.mode);
                self.check(at, path, bytes.len())?;
                self.put(at, Some(Content { bytes, mode }));
                Ok(Done::Created(path.clone()))
            }
            Operation::Update { path, move_to, hunks, ending } => {
                let at = self.site(path)?;
                let rules =
                    Rules { profile: self.options.profile, path, ending: *ending, mask: self.options.mask.as_ref() };
                let size = self.update(at, hunks, rules)?;
                let Some(to) = move_to else {
                    self.check(at, path, size)?;
                    return Ok(Done::Updated(path.clone()));
                };
                let goal = self.site(to)?;
                self.check(goal, to, size)?;
                self.rename(at, goal);
                Ok(Done::Moved(path.clone(), to.clone()))
            }
            Operation::Delete { path } => {
                let at = self.site(path)?;
                self.existing(at, path)?;
                self.put(at, None);
                Ok(Done::Deleted(path.clone()))
            }
        }
    }

    fn site(&self, path: &str) -> Result<usize> {
        let known = self.sites.by_name.get(path).copied();
        known.ok_or_else(|| SandboxError::apply_patch_invalid_path(path, PathFault::Malformed))
    }

    fn existing(&self, at: usize, path: &str) -> Result<&Content> {
        self.now[at].as_ref().ok_or_else(|| SandboxError::apply_patch_file_not_found(path))
    }

    /// Changes a file in place, and says how large it is then.
    fn update(&mut self, at: usize, hunks: &[Hunk], rules: Rules<'_>) -> Result<usize> {
        let size = self.existing(at, rules.path)?.bytes.len();
        if hunks.is_empty() {
            return Ok(self.open.as_ref().filter(|open| open.at == at).map_or(size, |open| open.text.size()));
        }
        let mut text = match self.open.take_if(|open| open.at == at) {
            Some(open) => open.text,
            None => {
                self.shut()?;
                self.work.split(size)?;
                let text = String::from_utf8(self.existing(at, rules.path)?.bytes.to_vec())
                    .map_err(|error| SandboxError::apply_patch_decode_error(rules.path).because(error.utf8_error()))?;
                Text::new(text)
            }
        };
        put_hunks(&mut text, hunks, rules, &mut self.work)?;
        let size = text.size();
        self.open = Some(Open { at, text });
        Ok(size)
    }

    /// Puts the text together that is still taken apart.
    fn shut(&mut self) -> Result<()> {
        let Some(Open { at, text }) = self.open.take() else { return Ok(()) };
        self.work.copy(text.size())?;
        if let Some(content) = &mut self.now[at] {
            content.bytes = Bytes::from(text.to_string());
        }
        Ok(())
    }

    fn put(&mut self, at: usize, content: Option<Content>) {
        self.open.take_if(|open| open.at == at);
        self.now[at] = content;
    }

    fn rename(&mut self, at: usize, goal: usize) {
        if at == goal {
            return;
        }
        let open = self.open.take_if(|open| open.at == at);
        let content = self.now[at].take();
        self.put(goal, content);
        if let Some(Open { text, .. }) = open {
            self.open = Some(Open { at: goal, text });
        }
    }

    /// Refuses a file that cannot be there, or not be so large.
    fn check(&self, at: usize, path: &str, size: usize) -> Result<()> {
        if self.sites.all[at].blocked {
            return Err(SandboxError::apply_patch_invalid_path(path, PathFault::Duplicate));
        }
        let (limit, actual) = (self.options.limits.file, size as u64);
        if actual > limit {
            return Err(SandboxError::limit_exceeded(format!("{path} in bytes"), limit, actual));
        }
        Ok(())
    }

    fn created(&self, path: &str, lines: &[String], ending: Ending) -> Result<Bytes> {
        let text = match self.options.profile {
            Profile::Codex => lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect(),
            Profile::Sdk if lines.is_empty() => {
                let reason = format!("Add File {path} has no lines; every line of a new file begins with +");
                return Err(SandboxError::apply_patch_invalid_diff(path, reason));
            }
            Profile::Sdk => lines.join(ending.as_str()),
        };
        Ok(text.into())
    }

    /// No file may end up below another file.
    fn check_nesting(&self) -> Result<()> {
        let present = self.sites.all.iter().zip(&self.now).filter(|(_, now)| now.is_some());
        let files: HashSet<&MachinePath> = present.clone().map(|(site, _)| &site.target.path).collect();
        for (site, _) in present.filter(|(site, _)| site.content.is_none()) {
            if site.missing.iter().any(|dir| files.contains(dir)) {
                return Err(SandboxError::apply_patch_invalid_path(&*site.written, PathFault::Duplicate));
            }
        }
        Ok(())
    }

    /// What changes, and which directories that makes.
    fn finish(self, done: Vec<Done>) -> Planned {
        let mut made = BTreeMap::new();
        let (mut delta, mut seen) = (Vec::new(), Vec::new());
        for (site, after) in self.sites.all.into_iter().zip(self.now) {
            if site.content == after {
                continue;
            }
            let target = |dir: MachinePath| (dir.clone(), Target { path: dir, ..site.target.clone() });
            made.extend(site.missing.into_iter().map(target));
            seen.push(site.seen);
            delta.push(Change { path: site.written, target: site.target, before: site.content, after });
        }
        Planned { done, delta, seen, made: made.into_values().collect() }
    }
}
