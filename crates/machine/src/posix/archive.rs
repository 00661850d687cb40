//! Trees in and out of a machine as tar streams, through the machine's `tar` and past our own eyes.

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
    tar::{Kind, Member, Sieve, malformed},
    tarcheck::{Rules, relative},
};

/// Longer than any path.
const PATH_LIMIT: usize = 8 << 10;

type Judge = Box<dyn FnMut(Member) -> Result<Option<Member>> + Send>;

/// [`Files::pack`](crate::Files::pack) through `tar`. FIFOs, sockets and devices are left out.
///
/// # Errors
/// Those of the machine, at once or in the stream.
pub async fn pack<M: Machine + ?Sized>(machine: &M, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
    let call = Call::new("pack", root, script::PACK)?.arg(&root.path).args(&prune(skip));
    let events = Events::new(call.start(machine).await?);
    let mut packing = Packing { call, events, sieve: Sieve::new(leave_out(skip)), finished: false };
    // A root that is not there should be this call's error, not the stream's.
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
    sieve: Sieve<Judge>,
    finished: bool,
}

impl Packing {
    /// The next piece of the archive; the last one is its end, sent only if the script succeeded.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if self.finished {
            return Ok(None);
        }
        while let Some(piece) = self.events.next().await? {
            let passed = self.sieve.push(&piece)?;
            if !passed.is_empty() {
                return Ok(Some(passed));
            }
        }
        self.finished = true;
        self.call.check(&self.events)?;
        self.sieve.finish().map(Some)
    }
}

/// Leaves out what is skipped, the root itself, and what no archive should carry.
fn leave_out(skip: &[OsString]) -> Judge {
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
                .ok_or_else(|| malformed("has a hard link to something that was to be left out"))?;
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

/// [`Files::unpack`](crate::Files::unpack) through `tar`. What came before a refused member stays unpacked.
///
/// # Errors
/// [`MachineError::Invalid`] for a member that would land elsewhere; those of the machine.
pub async fn unpack<M: Machine + ?Sized>(machine: &M, root: &Target, tar: ByteStream) -> Result<()> {
    make_dir(machine, root).await?;
    let mut rules = Rules::with_links(links(machine, root).await?);
    let judge: Judge = Box::new(move |member| rules.judge(member));
    let judged = sieved(tar, Sieve::new(judge));
    match machine.features().stdin {
        true => unpack_input(machine, root, judged).await,
        false => unpack_file(machine, root, judged).await,
    }
}

/// What of an archive passes; its end comes only once all of it was judged.
fn sieved(tar: ByteStream, sieve: Sieve<Judge>) -> ByteStream {
    let rest = stream::try_unfold(Some((tar, sieve)), |state| async move {
        let Some((mut tar, mut sieve)) = state else { return Ok(None) };
        while let Some(piece) = tar.next().await {
            let passed = sieve.push(&piece?)?;
            if !passed.is_empty() {
                return Ok(Some((passed, Some((tar, sieve)))));
            }
        }
        Ok::<_, MachineError>(Some((sieve.finish()?, None)))
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
                // It ended before its input did; its exit says why.
                return Ok(());
            }
        }
        drop(stdin);
        Ok(())
    };
    let drain = async {
        while let Some(_noise) = events.next().await? {}
        Ok(())
    };
    // A script that ends before the feed has failed. An error ends both: dropping the process kills it.
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

/// The same where commands have no input: by way of a temporary file on the machine.
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
        let _lesser = remove(machine, &file).await;
    }
    outcome.map(|_noise| ())
}

async fn links<M: Machine + ?Sized>(machine: &M, root: &Target) -> Result<HashSet<Vec<u8>>> {
    let call = Call::new("unpack", root, script::LINKS)?.arg(&root.path);
    let listing = call.run(machine, LISTING_LIMIT).await?;
    let paths = listing.split(|byte| *byte == 0).filter_map(|path| path.strip_prefix(b"./"));
    Ok(paths.map(<[u8]>::to_vec).collect())
}
