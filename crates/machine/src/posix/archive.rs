//! Packing and unpacking with the machine's `tar`; every member of the stream is checked here too.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use bytes::Bytes;
use futures::{StreamExt, stream};

use super::{
    LISTING_LIMIT, make_dir, plain, prune, remove,
    run::{Call, Events},
    script,
};
use crate::{
    ByteStream, Machine, MachineError, MachinePath, Result, Target,
    tar::{Kind, Member, MemberFilter, malformed},
    tarcheck::{Rules, relative},
};

/// Maximum length of the path that `mktemp` prints; longer than any path.
const PATH_LIMIT: usize = 8 << 10;

/// Returns the member to pass on, `None` to leave it out, or an error to refuse the archive.
type Check = Box<dyn FnMut(Member) -> Result<Option<Member>> + Send>;

/// [`Files::pack`](crate::Files::pack) through `tar`. FIFOs, sockets and devices are left out.
///
/// # Errors
/// Those of the machine, from this call or from the stream.
pub async fn pack<M: Machine + ?Sized>(machine: &M, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
    let call = Call::new("pack", root, script::PACK)?.arg(&root.path).args(&prune(skip));
    let events = Events::new(call.start(machine).await?);
    let mut packing = Packing { call, events, filter: MemberFilter::new(leave_out(skip)), finished: false };
    // If the root does not exist, this call fails and not the stream.
    let Some(first) = packing.next().await? else { return Err(malformed("is empty")) };
    let rest = stream::try_unfold(Some(packing), |packing| async move {
        let Some(mut packing) = packing else { return Ok(None) };
        let piece = packing.next().await?;
        Ok::<_, MachineError>(piece.map(|piece| (piece, Some(packing))))
    });
    Ok(Box::pin(stream::iter([Ok(first)]).chain(rest)))
}

struct Packing {
    call: Call,
    events: Events,
    filter: MemberFilter<Check>,
    finished: bool,
}

impl Packing {
    /// The next piece of the archive. The last piece is the end of the archive, sent only if the script succeeded.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.finished {
            return Ok(None);
        }
        while let Some(piece) = self.events.next().await? {
            let passed = self.filter.push(&piece)?;
            if !passed.is_empty() {
                return Ok(Some(passed));
            }
        }
        self.finished = true;
        self.call.check(&self.events)?;
        self.filter.finish().map(Some)
    }
}

/// Leaves out the skipped paths, the root itself, and FIFOs, sockets and devices.
fn leave_out(skip: &[OsString]) -> Check {
    let skip: HashSet<Vec<u8>> = skip.iter().map(|skip| plain(skip).to_vec()).collect();
    Box::new(move |mut member| {
        let Some(path) = relative(&member.path)? else { return Ok(None) };
        let skipped = |path: &[u8]| ancestors(path).any(|above| skip.contains(above));
        if skipped(&path) || matches!(member.kind, Kind::Other(_)) {
            return Ok(None);
        }
        if member.kind == Kind::HardLink {
            member.link = relative(&member.link)?
                .filter(|link| !skipped(link))
                .ok_or_else(|| malformed("has a hard link to a path that is left out"))?;
        }
        member.path = path;
        Ok(Some(member))
    })
}

/// A path and every directory above it.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([path.len()]).map(|end| &path[..end])
}

/// [`Files::unpack`](crate::Files::unpack) through `tar`. Members before a refused member stay unpacked.
///
/// # Errors
/// [`MachineError::Invalid`] for a member that would be written outside the directory; those of the machine.
pub async fn unpack<M: Machine + ?Sized>(machine: &M, root: &Target, tar: ByteStream) -> Result<()> {
    make_dir(machine, root).await?;
    let mut rules = Rules::with_links(links(machine, root).await?);
    let check: Check = Box::new(move |member| rules.check(member));
    let checked = filtered(tar, MemberFilter::new(check));
    match machine.features().stdin {
        true => unpack_input(machine, root, checked).await,
        false => unpack_file(machine, root, checked).await,
    }
}

/// The members that pass the filter. The end of the archive follows only if the whole archive was read without an error.
fn filtered(tar: ByteStream, filter: MemberFilter<Check>) -> ByteStream {
    let rest = stream::try_unfold(Some((tar, filter)), |state| async move {
        let Some((mut tar, mut filter)) = state else { return Ok(None) };
        while let Some(piece) = tar.next().await {
            let passed = filter.push(&piece?)?;
            if !passed.is_empty() {
                return Ok(Some((passed, Some((tar, filter)))));
            }
        }
        Ok::<_, MachineError>(Some((filter.finish()?, None)))
    });
    Box::pin(rest)
}

async fn unpack_input<M: Machine + ?Sized>(machine: &M, root: &Target, mut tar: ByteStream) -> Result<()> {
    let call = Call::new("unpack", root, script::UNPACK)?.arg(&root.path).stdin();
    let mut events = Events::new(call.start(machine).await?);
    let stdin = events.take_stdin().ok_or(MachineError::Unsupported("give a command input"))?;
    let feed = async {
        while let Some(piece) = tar.next().await {
            if stdin.send(piece?).await.is_err() {
                // `tar` ended before its input; its exit says why.
                return Ok(());
            }
        }
        drop(stdin);
        Ok(())
    };
    let drain = async {
        while let Some(_ignored) = events.next().await? {}
        Ok(())
    };
    // A script that ends before its input has failed. An error ends both futures, and dropping the process kills it.
    {
        tokio::pin!(drain);
        tokio::select! {
            fed = feed => {
                fed?;
                drain.await?;
            }
            drained = &mut drain => drained?,
        }
    }
    call.check(&events)
}

/// As [`unpack_input`], for a machine without standard input: the archive is written to a temporary file on the machine.
async fn unpack_file<M: Machine + ?Sized>(machine: &M, root: &Target, tar: ByteStream) -> Result<()> {
    let printed = Call::new("unpack", root, script::SPOOL)?.run(machine, PATH_LIMIT).await?;
    let name = printed.strip_suffix(b"\n").unwrap_or(&printed);
    let spool = MachinePath::new(OsStr::from_bytes(name))?;
    let file = Target { user: root.user.clone(), ..Target::from(&spool) };
    let unpacked = async {
        machine.write(&file, tar).await?;
        Call::new("unpack", root, script::UNPACK_FILE)?.arg(&root.path).arg(&spool).run(machine, LISTING_LIMIT).await
    };
    let outcome = unpacked.await;
    if outcome.is_err() {
        let _first_error_is_returned = remove(machine, &file).await;
    }
    outcome.map(|_ignored| ())
}

async fn links<M: Machine + ?Sized>(machine: &M, root: &Target) -> Result<HashSet<Vec<u8>>> {
    let call = Call::new("unpack", root, script::LINKS)?.arg(&root.path);
    let listing = call.run(machine, LISTING_LIMIT).await?;
    let paths = listing.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(b"./"));
    Ok(paths.map(<[u8]>::to_vec).collect())
}
