//! The users and groups a machine shall know.

use std::collections::HashSet;

use crate::{MachineError, Result};

/// The one user that every machine has.
const AGENT: &str = "agent";
/// More users, groups or members of a group are refused.
const MOST: usize = 1024;

/// A group and its members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountGroup {
    /// Its name.
    pub name: String,
    /// Who is in it; members that are not listed as users are made too.
    pub members: Vec<String>,
}

/// The users and groups a machine shall know beside those it has anyway. A machine takes names it knows as they are, and
/// gives the others numbers in the order they are named in, a group of their own name and a private home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// The users.
    pub users: Vec<String>,
    /// The groups.
    pub groups: Vec<AccountGroup>,
}

impl Accounts {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty()
    }

    /// The same with one more user.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.users.push(name.into());
        self
    }

    /// The same with one more group.
    #[must_use]
    pub fn group<M: Into<String>>(mut self, name: impl Into<String>, members: impl IntoIterator<Item = M>) -> Self {
        self.groups.push(AccountGroup { name: name.into(), members: members.into_iter().map(Into::into).collect() });
        self
    }

    /// The first name that is more than the one user every machine has, `agent`.
    #[must_use]
    pub fn more_than_one(&self) -> Option<&str> {
        let groups = self.groups.iter().flat_map(|group| std::iter::once(&group.name).chain(&group.members));
        self.users.iter().chain(groups).map(String::as_str).find(|name| *name != AGENT)
    }

    /// Refuses, for a client whose machines have one user, whatever takes more; with what is missing and what to do.
    ///
    /// # Errors
    /// [`MachineError::Users`], or as [`check`](Self::check).
    pub fn check_alone(&self, missing: &str, fix: &str) -> Result<()> {
        self.check()?;
        match self.more_than_one() {
            Some(_) => Err(MachineError::Users { missing: missing.to_owned(), fix: fix.to_owned() }),
            None => Ok(()),
        }
    }

    /// Refuses names that no account can have, groups that are named twice, and more than 1024 of anything.
    ///
    /// # Errors
    /// [`MachineError::Invalid`], naming the fault.
    pub fn check(&self) -> Result<()> {
        let too_many = |what: &str| Err(MachineError::invalid(what, format!("are more than {MOST}")));
        if self.users.len() > MOST {
            return too_many("users");
        }
        if self.groups.len() > MOST || self.groups.iter().any(|group| group.members.len() > MOST) {
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

/// Whether a machine has this user only if it is given: every machine has `agent`, and a number needs no account.
#[must_use]
pub fn takes_an_account(user: &str) -> bool {
    user != AGENT && user.parse::<u16>().is_err()
}

/// Why a name cannot be one of an account, if it cannot.
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
    fn accounts_are_judged_before_anything_is_made() {
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
        let many = Accounts { users: vec!["a".to_owned(); MOST + 1], groups: Vec::new() };
        assert!(many.check().unwrap_err().to_string().contains("1024"));
    }
}
