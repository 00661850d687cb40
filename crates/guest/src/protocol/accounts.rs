//! Users and groups to add to a machine's account files.

use super::{WireError, wire::Wire};

/// Most users, groups, or members of one group.
pub const MAX_ACCOUNTS: usize = 1024;

/// A group and its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountGroup {
    /// Name of the group.
    pub name: String,
    /// Members; a member that is not a user yet is created.
    pub members: Vec<String>,
}

/// Users and groups that a machine must have. An existing name is used as it is; new ones get numbers in the order in
/// which they are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Users, each with a group of the same name.
    pub users: Vec<String>,
    /// Groups.
    pub groups: Vec<AccountGroup>,
}

impl Accounts {
    /// Whether these accounts need more than the one user that every machine has.
    #[must_use]
    pub fn need_many(&self) -> bool {
        let groups = self.groups.iter().map(|group| group.name.as_str());
        self.all_users().into_iter().chain(groups).any(|name| name != "agent")
    }

    /// Every user by name, members of groups included, in the order of first mention.
    #[must_use]
    pub fn all_users(&self) -> Vec<&str> {
        let mut seen = std::collections::HashSet::new();
        let members = self.groups.iter().flat_map(|group| &group.members);
        self.users.iter().chain(members).map(String::as_str).filter(|name| seen.insert(*name)).collect()
    }
}

impl Wire<'_> for Accounts {
    fn write(&self, to: &mut Vec<u8>) {
        self.users.write(to);
        self.groups.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self { users: names(from)?, groups: bounded(Wire::read(from)?)? })
    }
}

impl Wire<'_> for AccountGroup {
    fn write(&self, to: &mut Vec<u8>) {
        self.name.write(to);
        self.members.write(to);
    }

    fn read(from: &mut &[u8]) -> Result<Self, WireError> {
        Ok(Self { name: name(Wire::read(from)?)?, members: names(from)? })
    }
}

fn names(from: &mut &[u8]) -> Result<Vec<String>, WireError> {
    bounded(Vec::<Vec<u8>>::read(from)?)?.into_iter().map(name).collect()
}

fn bounded<T>(list: Vec<T>) -> Result<Vec<T>, WireError> {
    if list.len() > MAX_ACCOUNTS { Err(WireError("there are too many accounts")) } else { Ok(list) }
}

/// A name becomes a field of files with colon-separated lines, and the name of a directory.
fn name(bytes: Vec<u8>) -> Result<String, WireError> {
    let bad = Err(WireError("a name cannot be an account's"));
    let Ok(name) = String::from_utf8(bytes) else { return bad };
    let strange = |c: char| c.is_control() || c.is_whitespace() || ":/,\\".contains(c);
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || name.len() > 32 || name.starts_with(['-', '.']) || name.contains(strange) {
        return bad;
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::wire;

    fn round(users: &[&str], groups: &[(&str, &[&str])]) -> Result<Accounts, WireError> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let group = |(name, members): &(&str, &[&str])| AccountGroup { name: (*name).into(), members: owned(members) };
        let accounts = Accounts { users: owned(users), groups: groups.iter().map(group).collect() };
        let read: Accounts = wire::decode(&wire::encode(&accounts))?;
        assert_eq!(read, accounts);
        Ok(read)
    }

    #[test]
    fn members_are_users_too_and_no_user_is_named_twice() {
        let read = round(&["ada", "bob"], &[("staff", &["bob", "eve"]), ("empty", &[])]).unwrap();
        assert_eq!(read.all_users(), ["ada", "bob", "eve"]);
        assert!(read.need_many() && !round(&["agent"], &[("agent", &["agent"])]).unwrap().need_many());
    }

    #[test]
    fn names_that_would_confuse_an_account_file_are_refused() {
        let long = "a".repeat(33);
        for bad in ["", "a:b", "a\nroot", "..", ".", "a/b", "-a", "1000", "a b", "a,b", long.as_str()] {
            assert!(round(&[bad], &[]).is_err(), "{bad:?} as a user");
            assert!(round(&[], &[(bad, &[])]).is_err(), "{bad:?} as a group");
            assert!(round(&[], &[("g", &[bad])]).is_err(), "{bad:?} as a member");
        }
        let many = vec!["a"; MAX_ACCOUNTS + 1];
        assert!(round(&many, &[]).is_err());
    }
}
