//! Users and groups to create on a machine.

use std::collections::HashSet;

use crate::{MachineError, Result};

/// Default user, which every machine has.
const AGENT: &str = "agent";
/// Maximum number of users, of groups, and of members of one group.
const MAX_ACCOUNTS: usize = 1024;

/// A group and its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountGroup {
    /// Name of the group.
    pub name: String,
    /// Names of the users in the group. A member that is not in [`Accounts::users`] is created too.
    pub members: Vec<String>,
}

/// Users and groups to create on a machine, in addition to those it already has.
///
/// A name that the machine already knows is used as it is. Every other user gets a uid in the order of the list, a group of
/// the same name, and a private home directory `/home/NAME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Names of the users.
    pub users: Vec<String>,
    /// Groups with their members.
    pub groups: Vec<AccountGroup>,
}

impl Accounts {
    /// Whether there are neither users nor groups.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// Adds a user.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.users.push(name.into());
        self
    }

    /// Adds a group with these members.
    #[must_use]
    pub fn group<M: Into<String>>(mut self, name: impl Into<String>, members: impl IntoIterator<Item = M>) -> Self {
        self.groups.push(AccountGroup { name: name.into(), members: members.into_iter().map(Into::into).collect() });
        self
    }

    /// The first user, group or member other than `agent`, the user that every machine has.
    #[must_use]
    pub fn more_than_one(&self) -> Option<&str> {
        let groups = self.groups.iter().flat_map(|group| std::iter::once(&group.name).chain(&group.members));
        self.users.iter().chain(groups).map(String::as_str).find(|name| *name != AGENT)
    }

    /// For a client whose machines have one user: refuses every account other than `agent`. The error says what is `missing`
    /// and how to `fix` it.
    ///
    /// # Errors
    /// [`MachineError::Users`] if there is another account; those of [`check`](Self::check).
    pub fn check_alone(&self, missing: &str, fix: &str) -> Result<()> {
        self.check()?;
        match self.more_than_one() {
            Some(_) => Err(MachineError::Users { missing: missing.to_owned(), fix: fix.to_owned() }),
            None => Ok(()),
        }
    }

    /// Refuses invalid account names, duplicate groups, and more than 1024 users, groups or members of a group.
    ///
    /// # Errors
    /// [`MachineError::Invalid`] that names the account and the fault.
    pub fn check(&self) -> Result<()> {
        let too_many = |what: &str| Err(MachineError::invalid(what, format!("are more than {MAX_ACCOUNTS}")));
        if self.users.len() > MAX_ACCOUNTS {
            return too_many("users");
        }
        if self.groups.len() > MAX_ACCOUNTS || self.groups.iter().any(|group| group.members.len() > MAX_ACCOUNTS) {
            return too_many("groups or members");
        }
        let groups = self.groups.iter().flat_map(|group| std::iter::once(&group.name).chain(&group.members));
        for name in self.users.iter().chain(groups) {
            if let Some(fault) = account_name_fault(name) {
                return Err(MachineError::invalid(format!("account {name:?}"), fault));
            }
        }
        let mut seen = HashSet::new();
        match self.groups.iter().find(|group| !seen.insert(&group.name)) {
            Some(group) => Err(MachineError::invalid(format!("group {:?}", group.name), "is named twice")),
            None => Ok(()),
        }
    }
}

/// Whether this user exists only if [`Accounts`] lists it: every machine has `agent`, and a numeric uid needs no account.
#[must_use]
pub fn takes_an_account(user: &str) -> bool {
    user != AGENT && user.parse::<u16>().is_err()
}

/// Why this is not a valid account name; `None` if it is valid.
#[must_use]
pub fn account_name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("a name is empty");
    }
    if name.len() > 32 {
        return Some("a name is longer than 32 bytes");
    }
    let strange = |c: char| c.is_control() || c.is_whitespace() || ":/,\\".contains(c);
    if name.starts_with(['-', '.']) || name.contains(strange) {
        return Some("a name may not begin with `-` or `.` nor contain `:`, `/`, `,`, `\\` or blanks");
    }
    if name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some("a name may not be a number");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_checked_before_anything_is_created() {
        let fine = Accounts::default().user("ada").user("_x-1.y$").group("staff", ["ada", "bob"]);
        assert!(fine.check().is_ok());
        assert_eq!(fine.more_than_one(), Some("ada"));
        assert_eq!(Accounts::default().user("agent").group("agent", ["agent"]).more_than_one(), None);
        for bad in ["", "-a", "..", ".a", "a:b", "a b", "a/b", "a\nb", "1000", &"a".repeat(33)] {
            assert!(Accounts::default().user(bad).check().is_err(), "{bad:?}");
            assert!(Accounts::default().group(bad, [""; 0]).check().is_err(), "{bad:?}");
            assert!(Accounts::default().group("g", [bad]).check().is_err(), "{bad:?}");
        }
        assert_eq!(
            ["agent", "0", "1000", "ada", "1000x", ""].map(takes_an_account),
            [false, false, false, true, true, true]
        );
        assert!(Accounts::default().group("g", ["a"]).group("g", ["b"]).check().is_err());
        let many = Accounts { users: vec!["a".to_owned(); MAX_ACCOUNTS + 1], groups: Vec::new() };
        assert!(many.check().unwrap_err().to_string().contains("1024"));
    }
}
