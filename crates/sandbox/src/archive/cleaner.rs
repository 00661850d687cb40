//! What both kinds of archive go through: members in, judged and counted, and a clean tar stream out.

use sandbar_machine::tar::{Kind, Member, end, padding};

use super::{
    ArchiveLimits, Policy, Summary, broken,
    out::Out,
    rules::{Rules, Verdict, shown},
};
use crate::{Result, SandboxError};

/// What an archive may spend on other things than content: a start, and this much for each member.
const OVERHEAD: u64 = 4 << 20;
const OVERHEAD_EACH: u64 = 16 << 10;

/// Judges, counts and writes.
#[derive(Debug)]
pub(super) struct Cleaner {
    archive: String,
    limits: ArchiveLimits,
    rules: Rules,
    out: Out,
    summary: Summary,
    seen: u64,
    extracted: u64,
    overhead: u64,
    /// What is left of the member that is being passed on, and how many zeros follow it.
    open: Option<(u64, usize)>,
}

impl Cleaner {
    pub(super) fn new(archive: &str, limits: &ArchiveLimits, policy: &Policy, out: Out) -> Self {
        Self {
            archive: archive.to_owned(),
            limits: *limits,
            rules: Rules::new(archive, limits, policy),
            out,
            summary: Summary::default(),
            seen: 0,
            extracted: 0,
            overhead: 0,
            open: None,
        }
    }

    pub(super) fn archive(&self) -> &str {
        &self.archive
    }

    /// Refuses so many members, before they are looked at.
    pub(super) fn expect_members(&self, count: u64) -> Result<()> {
        match self.limits.max_members {
            Some(limit) if count > limit.get() => {
                let what = format!("the number of members of {}", self.archive);
                Err(SandboxError::limit_exceeded(what, limit.get(), count))
            }
            _ => Ok(()),
        }
    }

    /// Refuses so many bytes of content, before they are made.
    pub(super) fn expect_bytes(&self, total: u64) -> Result<()> {
        match self.limits.max_extracted_bytes {
            Some(limit) if total > limit.get() => {
                let what = format!("the content of {}", self.archive);
                Err(SandboxError::limit_exceeded(what, limit.get(), total))
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes that are not content. Without this, headers without end would cost time without end.
    pub(super) fn overhead(&mut self, bytes: u64) -> Result<()> {
        self.overhead = self.overhead.saturating_add(bytes);
        let limit = OVERHEAD_EACH.saturating_mul(self.seen).saturating_add(OVERHEAD);
        if self.overhead > limit {
            let what = format!("what is between the members of {}", self.archive);
            return Err(SandboxError::limit_exceeded(what, limit, self.overhead));
        }
        self.out.put(&[])
    }

    /// A member begins.
    pub(super) fn begin(&mut self, member: &Member) -> Result<()> {
        self.seen += 1;
        self.expect_members(self.seen)?;
        let verdict = self.rules.judge(member)?;
        let cost = if let Verdict::Keep(_, bytes) = verdict { bytes } else { member.size };
        self.extracted = self.extracted.saturating_add(cost);
        self.expect_bytes(self.extracted)?;
        self.open = None;
        let Verdict::Keep(kept, bytes) = verdict else { return self.out.put(&[]) };
        self.summary.members += 1;
        self.summary.bytes += bytes;
        if kept.kind == Kind::File {
            self.open = Some((kept.size, padding(kept.size)));
        }
        self.out.put(&kept.encode())
    }

    /// Some of its content.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((left, _)) = &mut self.open else { return self.out.put(&[]) };
        *left = left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| broken(&self.archive, "says one size and has another"))?;
        self.out.put(bytes)
    }

    /// It is complete.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.open.take() {
            Some((0, zeros)) => self.out.put(&[0; 512][..zeros]),
            Some(_) => Err(broken(&self.archive, "says one size and has another")),
            None => Ok(()),
        }
    }

    /// The archive is complete.
    pub(super) fn finish(&mut self) -> Result<Summary> {
        self.rules.finish()?;
        self.out.put(&end())?;
        self.out.flush()?;
        Ok(self.summary)
    }

    /// Tells whoever reads the stream why it ends early.
    pub(super) fn fail(self, error: &SandboxError) {
        let reason = error.full_message();
        self.out.fail(sandbar_machine::MachineError::invalid(self.archive, reason));
    }

    /// An error about one member.
    pub(super) fn refuse(&self, member: &[u8], reason: impl Into<String>) -> SandboxError {
        SandboxError::archive_refused(&self.archive, shown(member), reason)
    }
}
