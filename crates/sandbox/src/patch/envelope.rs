//! The freeform patch: `*** Begin Patch`, file sections, `*** End Patch`.

use super::{
    Ending, Operation,
    body::{ADD, BEGIN, DELETE, END, Lines, MOVE, UPDATE, added, hunks},
    invocation::heredoc,
    text::patch_lines,
};
use crate::{PathFault, Result, SandboxError};

/// Reads the whole text.
pub(super) fn parse(text: &str) -> Result<Vec<Operation>> {
    let ending = Ending::of_first(text);
    let unwrapped = heredoc(text.trim());
    let text = unwrapped.as_deref().unwrap_or(text);
    let all = patch_lines(text);
    let first = all.iter().position(|line| !line.trim().is_empty());
    let last = all.iter().rposition(|line| !line.trim().is_empty());
    let (Some(first), Some(last)) = (first, last) else { return Err(malformed("The patch is empty")) };
    if all[first].trim() != BEGIN {
        return Err(malformed("The first line of the patch must be '*** Begin Patch'"));
    }
    if first == last || all[last].trim() != END {
        return Err(malformed("The last line of the patch must be '*** End Patch'"));
    }
    let mut lines = Lines::new(&all[first + 1..last], first + 1);
    let mut operations = Vec::new();
    loop {
        lines.skip_blank();
        let Some(header) = lines.peek() else { break };
        operations.push(section(header.trim(), &mut lines, ending)?);
    }
    if operations.is_empty() {
        return Err(malformed("The patch changes no file"));
    }
    Ok(operations)
}

fn malformed(reason: impl Into<String>) -> SandboxError {
    SandboxError::apply_patch_invalid_diff("", reason)
}

/// One file's section, its header being the next line.
fn section(header: &str, lines: &mut Lines<'_>, ending: Ending) -> Result<Operation> {
    let number = lines.number();
    lines.skip();
    if let Some(path) = header.strip_prefix(ADD) {
        let path = named(path)?;
        let lines = added(lines, &path)?;
        return Ok(Operation::Create { path, lines, ending });
    }
    if let Some(path) = header.strip_prefix(DELETE) {
        return Ok(Operation::Delete { path: named(path)? });
    }
    let Some(path) = header.strip_prefix(UPDATE) else {
        let headers = "'*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'";
        let reason = format!("line {number}: '{header}' is not a valid hunk header. Valid hunk headers: {headers}");
        return Err(malformed(reason));
    };
    let path = named(path)?;
    let mut move_to = None;
    if let Some(to) = lines.peek().and_then(|line| line.trim().strip_prefix(MOVE)) {
        move_to = Some(named(to)?);
        lines.skip();
    }
    let hunks = hunks(lines, &path)?;
    if hunks.is_empty() && move_to.is_none() {
        let reason = format!("line {number}: Update file hunk for path '{path}' is empty");
        return Err(SandboxError::apply_patch_invalid_diff(path, reason));
    }
    Ok(Operation::Update { path, move_to, hunks, ending })
}

/// What stands after a header's colon.
pub(super) fn named(path: &str) -> Result<String> {
    match path.trim() {
        "" => Err(SandboxError::apply_patch_invalid_path("", PathFault::Empty)),
        path => Ok(path.to_owned()),
    }
}
