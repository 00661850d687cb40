//! The part that tar and zip share: checks and counts members, and writes a clean tar stream.

use std::num::NonZeroU64;

use sandbar_machine::tar::{Kind, Member, end, padding};

use super::{
    ArchiveLimits, Policy, Summary, broken,
    out::Out,
    rules::{Rules, Verdict, shown},
};
use crate::{Result, SandboxError};

/// Bytes of an archive that may be something else than content: a fixed amount, and this much for each member.
const OVERHEAD: u64 = 4 << 20;
const OVERHEAD_EACH: u64 = 16 << 10;

/// Checks, counts and writes members.
#[derive(Debug)]
pub(super) struct Cleaner {
    archive: String,
    limits: ArchiveLimits,
    rules: Rules,
    out: Out,
    summary: Summary,
    member_count: u64,
    extracted: u64,
    overhead: u64,
    /// Bytes that remain of the current member, and the number of padding zeros after it.
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
            member_count: 0,
            extracted: 0,
            overhead: 0,
            open: None,
        }
    }

    pub(super) fn archive(&self) -> &str {
        &self.archive
    }

    /// Fails if this many members are over the limit. Called before they are read.
    pub(super) fn expect_members(&self, count: u64) -> Result<()> {
        self.expect("the number of members", self.limits.max_members, count)
    }

    /// Fails if this many bytes of content are over the limit. Called before they are decompressed.
    pub(super) fn expect_bytes(&self, total: u64) -> Result<()> {
        self.expect("the content", self.limits.max_extracted_bytes, total)
    }

    fn expect(&self, what: &str, limit: Option<NonZeroU64>, actual: u64) -> Result<()> {
        match limit {
            Some(limit) if actual > limit.get() => {
                Err(SandboxError::limit_exceeded(format!("{what} of {}", self.archive), limit.get(), actual))
            }
            _ => Ok(()),
        }
    }

    /// Counts bytes that are not content. Without this limit, endless headers would take endless time.
    pub(super) fn overhead(&mut self, bytes: u64) -> Result<()> {
        self.overhead = self.overhead.saturating_add(bytes);
        let limit = OVERHEAD_EACH.saturating_mul(self.member_count).saturating_add(OVERHEAD);
        if self.overhead > limit {
            let what = format!("the size of the headers and padding of {}", self.archive);
            return Err(SandboxError::limit_exceeded(what, limit, self.overhead));
        }
        self.out.put(&[])
    }

    /// Starts a member.
    pub(super) fn begin(&mut self, member: &Member) -> Result<()> {
        self.member_count += 1;
        self.expect_members(self.member_count)?;
        let verdict = self.rules.judge(member)?;
        let cost = if let Verdict::Keep(_, bytes) = verdict { bytes } else { member.size };
        self.extracted = self.extracted.saturating_add(cost);
        self.expect_bytes(self.extracted)?;
        self.open = None;
        let Verdict::Keep(cleaned, bytes) = verdict else { return self.out.put(&[]) };
        self.summary.members += 1;
        self.summary.bytes += bytes;
        if cleaned.kind == Kind::File {
            self.open = Some((cleaned.size, padding(cleaned.size)));
        }
        self.out.put(&cleaned.encode())
    }

    /// Writes a piece of the current member's content.
    pub(super) fn data(&mut self, bytes: &[u8]) -> Result<()> {
        let Some((left, _)) = &mut self.open else { return self.out.put(&[]) };
        *left = left
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| broken(&self.archive, "has a member whose size is not the announced one"))?;
        self.out.put(bytes)
    }

    /// Ends the current member.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.open.take() {
            Some((0, zeros)) => self.out.put(&[0; 512][..zeros]),
            Some(_) => Err(broken(&self.archive, "has a member whose size is not the announced one")),
            None => Ok(()),
        }
    }

    /// Ends the archive.
    pub(super) fn finish(&mut self) -> Result<Summary> {
        self.rules.finish()?;
        self.out.put(&end())?;
        self.out.flush()?;
        Ok(self.summary)
    }

    /// Tells the reader of the stream why it ends early.
    pub(super) fn fail(self, error: &SandboxError) {
        let reason = error.full_message();
        self.out.fail(sandbar_machine::MachineError::invalid(self.archive, reason));
    }

    /// Error about one member.
    pub(super) fn refuse(&self, member: &[u8], reason: impl Into<String>) -> SandboxError {
        SandboxError::archive_refused(&self.archive, shown(member), reason)
    }
}
