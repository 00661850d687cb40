//! `sandbar session cp`: files and directories between a session and the host.

use sandbar::sandbox::archive::Links;
use sandbar_runs::{
    CancellationToken, Error, ErrorKind,
    transfer::{self, TransferOptions, TransferReport},
};
use serde_json::json;

use super::Sessions;
use crate::{
    args::{CopyArgs, values::CopyPath},
    failure::Failure,
    machine::{
        plan,
        provision::{Halt, unless_signalled, until_signalled},
    },
    render::Render,
    streams::signals::{self, Signals},
};

/// Maximum number of names in a message.
const NAMED: usize = 3;

pub(super) async fn run(args: CopyArgs, sessions: &Sessions, render: &Render) -> Result<u8, Failure> {
    let json = args.json;
    match copy(args, sessions).await {
        Ok((session, report)) => show(&report, json.then_some(&*session), render),
        Err(Halt::Signal(signal)) => Ok(signals::code(signal)),
        Err(Halt::Failed(failure)) => Err(*failure),
    }
}

/// Copies, and returns the id of the session with the report.
async fn copy(args: CopyArgs, sessions: &Sessions) -> Result<(String, TransferReport), Halt> {
    let cancel = CancellationToken::new();
    let options = TransferOptions::default()
        .links(if args.keep_links { Links::KeepAll } else { Links::KeepInside })
        .max_bytes(args.max_bytes)
        .git(plan::git_access(args.git))
        .cancel(cancel.clone());
    let ((CopyPath::Session(path), _) | (_, CopyPath::Session(path))) = (&args.from, &args.to) else {
        return Err(Failure::new("a copy needs a path of a session").into());
    };
    let mut signals = Signals::listen()?;
    let session = unless_signalled(sessions.attach(&path.session), &mut signals).await?;
    let work = async {
        let copied = match (&args.from, &args.to) {
            (CopyPath::Host(from), _) => transfer::copy_in(&session, from, &path.path, &options).await,
            (_, CopyPath::Host(to)) => transfer::copy_out(&session, &path.path, to, &options).await,
            // Refused by `Args::read`.
            _ => Ok(TransferReport::default()),
        };
        copied.map_err(failure)
    };
    let report = until_signalled(work, &cancel, &mut signals).await?;
    Ok((session.id().to_owned(), report))
}

/// The error of a copy, with the options that help.
fn failure(error: Error) -> Failure {
    let next = match (error.code(), error.kind()) {
        ("archive_refused", _) => Some("copy its files one by one, or copy its links with --keep-links".to_owned()),
        ("limit_exceeded", _) => Some("raise --max-bytes, or copy it in parts".to_owned()),
        (_, ErrorKind::NotWritten) => error.advice().map(|advice| format!("{advice}, or add --git rw")),
        _ => None,
    };
    let failure = Failure::from(error);
    match next {
        Some(next) => failure.next(next),
        None => failure,
    }
}

/// Reports a copy; as JSON if the id of the session is given.
fn show(report: &TransferReport, session: Option<&str>, render: &Render) -> Result<u8, Failure> {
    let TransferReport { left_out, leftovers, repositories, .. } = report;
    repositories.iter().for_each(|finding| render.note(finding));
    if let Some(session) = session {
        let left_out: Vec<_> = left_out.iter().chain(leftovers).collect();
        return render.result(format!("{}\n", json!({"id": session, "left_out": left_out})).as_bytes());
    }
    if let Some(names) = named(left_out) {
        let count = left_out.len();
        render.note(&format!("left out {count} of the entries, which are not files, directories or links: {names}"));
    }
    if let Some(names) = named(leftovers) {
        render.note(&format!("left out {names}: leftovers of an interrupted sandbar command"));
    }
    Ok(0)
}

fn named(names: &[String]) -> Option<String> {
    let first = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    (!names.is_empty()).then(|| format!("{first}{more}"))
}
