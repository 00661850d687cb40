//! Checks of archive members before a program on a machine unpacks them.

use std::collections::HashSet;

use crate::{
    MachineError, Result,
    tar::{Kind, Member},
};

/// Maximum number of symbolic links in one archive: their paths are stored.
const LINK_LIMIT: usize = 200_000;

/// Checks the members of one archive, in order. It stores the paths of symbolic links, because a member below a link would be
/// written to the link's target.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    links: HashSet<Vec<u8>>,
    existing: HashSet<Vec<u8>>,
}

impl Rules {
    /// Rules for a directory that already contains symbolic links at these relative paths.
    pub(crate) fn with_links(existing: HashSet<Vec<u8>>) -> Self {
        Self { links: HashSet::new(), existing }
    }

    /// The member as it may be unpacked: with a plain relative path and without set-id bits. `None` for the entry of the root.
    pub(crate) fn check(&mut self, mut member: Member) -> Result<Option<Member>> {
        if let Kind::Other(_) = member.kind {
            return Err(refused(&member.path, "is not a file, directory or link"));
        }
        let Some(path) = relative(&member.path)? else {
            let root = member.kind == Kind::Dir;
            return if root { Ok(None) } else { Err(refused(&member.path, "has no name")) };
        };
        self.no_link_above(&path)?;
        let replaces_link = self.links.contains(&path) || (member.kind == Kind::Dir && self.existing.contains(&path));
        if replaces_link {
            return Err(refused(&path, "was a symbolic link before"));
        }
        match member.kind {
            Kind::HardLink => member.link = self.hard_link(&member)?,
            Kind::Symlink => self.add_link(&member, &path)?,
            Kind::File | Kind::Dir | Kind::Other(_) => member.link.clear(),
        }
        member.path = path;
        member.mode &= 0o777;
        Ok(Some(member))
    }

    fn hard_link(&self, member: &Member) -> Result<Vec<u8>> {
        let outside = || refused(&member.path, "is a hard link to something outside the archive");
        let link = relative(&member.link)?.ok_or_else(outside)?;
        self.no_link_above(&link)?;
        if self.links.contains(&link) || self.existing.contains(&link) {
            return Err(refused(&member.path, "is a hard link to a symbolic link"));
        }
        Ok(link)
    }

    fn add_link(&mut self, member: &Member, path: &[u8]) -> Result<()> {
        if member.link.is_empty() || member.link.contains(&0) {
            return Err(refused(path, "is a symbolic link to nothing"));
        }
        if self.links.len() >= LINK_LIMIT {
            let reason = format!("more than {LINK_LIMIT} symbolic links");
            return Err(MachineError::Exhausted { what: "the archive".to_owned(), reason });
        }
        self.links.insert(path.to_vec());
        Ok(())
    }

    fn no_link_above(&self, path: &[u8]) -> Result<()> {
        let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (at, _) in slashes {
            if self.links.contains(&path[..at]) || self.existing.contains(&path[..at]) {
                return Err(refused(path, "is below a symbolic link"));
            }
        }
        Ok(())
    }
}

/// A member's path without `.` and empty parts; `None` if no part is left.
pub(crate) fn relative(path: &[u8]) -> Result<Option<Vec<u8>>> {
    if path.starts_with(b"/") {
        return Err(refused(path, "is absolute"));
    }
    if path.contains(&0) || path.len() > 4095 {
        return Err(refused(path, "contains a NUL byte or is longer than 4095 bytes"));
    }
    let mut parts = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return Err(refused(path, "leaves the directory it is unpacked in")),
            name => parts.push(name),
        }
    }
    Ok(if parts.is_empty() { None } else { Some(parts.join(&b'/')) })
}

fn refused(path: &[u8], reason: &str) -> MachineError {
    MachineError::invalid(format!("archive member {:?}", String::from_utf8_lossy(path)), reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::{MemberFilter, Reader, end, padding};

    /// Type, path and link target of a member.
    type TestMember<'a> = (Kind, &'a [u8], &'a [u8]);

    fn archive(members: &[TestMember<'_>]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, path, link) in members {
            let mut member = Member::new(*kind, path, 0o644);
            member.link = link.to_vec();
            out.extend_from_slice(&member.encode());
        }
        out.extend_from_slice(&end());
        out
    }

    fn check(tar: &[u8], piece: usize) -> Result<Vec<u8>> {
        let mut rules = Rules::default();
        let mut filter = MemberFilter::new(|member| rules.check(member));
        let mut out = Vec::new();
        for piece in tar.chunks(piece) {
            out.extend_from_slice(&filter.push(piece)?);
        }
        out.extend_from_slice(&filter.finish()?);
        Ok(out)
    }

    #[test]
    fn hostile_members_are_refused() {
        let hostile: &[&[TestMember<'_>]] = &[
            &[(Kind::File, b"../x", b"")],
            &[(Kind::File, b"a/../../x", b"")],
            &[(Kind::File, b"/etc/passwd", b"")],
            &[(Kind::Symlink, b"l", b"/etc"), (Kind::File, b"l/passwd", b"")],
            &[(Kind::Symlink, b"l", b"/etc/passwd"), (Kind::File, b"./l", b"")],
            &[(Kind::Symlink, b"l", b"/etc"), (Kind::Dir, b"l", b"")],
            &[(Kind::HardLink, b"h", b"/etc/passwd")],
            &[(Kind::HardLink, b"h", b"../passwd")],
            &[(Kind::Symlink, b"l", b"/etc/passwd"), (Kind::HardLink, b"h", b"l")],
            &[(Kind::Other(b'3'), b"null", b"")],
            &[(Kind::Other(b'4'), b"disk", b"")],
            &[(Kind::Other(b'6'), b"pipe", b"")],
            &[(Kind::Other(b'S'), b"sparse", b"")],
            &[(Kind::Symlink, b"l", b"")],
        ];
        for members in hostile {
            for piece in [1, 512, 100_000] {
                let refused = check(&archive(members), piece).unwrap_err();
                assert_eq!(refused.code(), "invalid", "{members:?}");
            }
        }
    }

    #[test]
    fn set_id_bits_are_stripped() {
        let member = Member::new(Kind::File, b"tool", 0o6755);
        assert_eq!(Rules::default().check(member).unwrap().unwrap().mode, 0o755);
    }

    #[test]
    fn long_names_and_contents_pass_unchanged_in_pieces_of_any_size() {
        let long = [b"d/".as_slice(), &[b'\xff'; 300]].concat();
        let mut member = Member::new(Kind::File, &long, 0o600);
        member.size = 700;
        let mut tar = member.encode().to_vec();
        tar.extend_from_slice(&[b'z'; 700]);
        tar.resize(tar.len() + padding(700), 0);
        tar.extend_from_slice(&end());
        for piece in [1, 7, 512, 1000, 100_000] {
            assert_eq!(check(&tar, piece).unwrap(), tar);
        }
    }

    #[test]
    fn the_path_of_a_pax_record_is_checked() {
        let record = b"16 path=../evil\n";
        let mut header = Member::new(Kind::Other(b'x'), b"pax", 0o644);
        header.size = record.len() as u64;
        let mut tar = header.encode().to_vec();
        tar.extend_from_slice(record);
        tar.resize(tar.len() + padding(header.size), 0);
        tar.extend_from_slice(&archive(&[(Kind::File, b"good", b"")]));
        assert_eq!(check(&tar, 512).unwrap_err().code(), "invalid");
    }

    #[test]
    fn a_truncated_or_damaged_archive_is_refused() {
        let whole = archive(&[(Kind::File, b"a", b"")]);
        assert!(check(&whole[..600], 512).is_err());
        assert!(check(&whole[..512], 512).is_err());
        for at in [0, 101, 125, 150, 156] {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x15;
            assert!(check(&damaged, 512).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_refused_before_it_is_read() {
        let mut header = Member::new(Kind::Other(b'L'), b"././@LongLink", 0o644);
        header.size = 1 << 40;
        assert!(Reader::new().push(&header.encode()).is_err());
    }
}
