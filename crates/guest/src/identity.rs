//! Who a command or file operation runs as.

use sandbar_guest::protocol::FailKind;

/// The user every machine has.
pub(crate) const AGENT: u32 = 1000;

/// A user of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Which users a machine can switch between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// Only the one the guest itself runs as.
    One,
    /// All that are mapped; the guest runs as the machine's root.
    Many,
}

impl Users {
    /// The user to switch to, `None` meaning that no switch is needed.
    pub(crate) fn find(self, name: Option<&[u8]>) -> Result<Option<User>, (FailKind, String)> {
        let default = User { uid: AGENT, gid: AGENT };
        match (self, name) {
            (Self::One, None | Some(b"agent" | b"1000")) => Ok(None),
            (Self::One, Some(name)) => {
                let name = String::from_utf8_lossy(name);
                Err((FailKind::User, format!("user {name:?}: this machine has only one user, agent")))
            }
            (Self::Many, None) => Ok(Some(default)),
            (Self::Many, Some(name)) => lookup(name).map(Some),
        }
    }
}

/// Finds a user by number, or by name in the machine's own `/etc/passwd`.
fn lookup(name: &[u8]) -> Result<User, (FailKind, String)> {
    let text = std::str::from_utf8(name).unwrap_or_default();
    if let Ok(uid) = text.parse::<u16>() {
        return Ok(User { uid: u32::from(uid), gid: u32::from(uid) });
    }
    // The file is the machine's: read a bounded part of it, and believe nothing but numbers in range.
    let passwd = read_start("/etc/passwd");
    passwd
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let same = fields.next()? == text && !text.is_empty();
            let uid = fields.nth(1)?.parse::<u16>().ok()?;
            let gid = fields.next()?.parse::<u16>().ok()?;
            same.then_some(User { uid: u32::from(uid), gid: u32::from(gid) })
        })
        .next()
        .ok_or_else(|| {
            (FailKind::User, format!("user {:?} does not exist on the machine", String::from_utf8_lossy(name)))
        })
}

fn read_start(path: &str) -> String {
    use std::io::Read;
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(256 * 1024).read_to_end(&mut text));
    if read.is_ok() { String::from_utf8_lossy(&text).into_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_with_one_user_has_no_other() {
        assert_eq!(Users::One.find(None), Ok(None));
        assert_eq!(Users::One.find(Some(b"agent")), Ok(None));
        assert!(Users::One.find(Some(b"root")).is_err());
    }

    #[test]
    fn numbers_out_of_the_mapped_range_are_refused() {
        assert!(Users::Many.find(Some(b"70000")).is_err());
        assert_eq!(Users::Many.find(Some(b"2000")), Ok(Some(User { uid: 2000, gid: 2000 })));
    }
}
