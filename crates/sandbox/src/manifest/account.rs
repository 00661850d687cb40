//! The users and groups a machine shall know.

use std::collections::{BTreeSet, HashMap, HashSet};

use sandbar_machine::{AccountGroup, Accounts};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::{Manifest, Result as SandboxResult, SandboxError};

/// A user, known by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct User {
    /// The name.
    pub name: String,
}

impl User {
    /// A user of this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }
}

/// A group and its members.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Group {
    /// The name.
    pub name: String,
    /// The members; those that the manifest does not list as users are made too.
    pub users: Vec<User>,
}

impl Group {
    /// A group without members.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), users: Vec::new() }
    }

    /// The same group with one more member.
    #[must_use]
    pub fn user(mut self, name: impl Into<String>) -> Self {
        self.users.push(User::new(name));
        self
    }
}

/// Whose group an entry belongs to: a group, or a user's own one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum EntryGroup {
    /// A group.
    Group(Group),
    /// The private group of a user.
    User(User),
}

impl EntryGroup {
    /// The name that the group has on the machine.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Group(group) => &group.name,
            Self::User(user) => &user.name,
        }
    }
}

impl From<&str> for EntryGroup {
    fn from(name: &str) -> Self {
        Self::User(User::new(name))
    }
}

impl From<Group> for EntryGroup {
    fn from(group: Group) -> Self {
        Self::Group(group)
    }
}

impl From<User> for EntryGroup {
    fn from(user: User) -> Self {
        Self::User(user)
    }
}

/// What every form of an account has in common.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    name: String,
    users: Option<Vec<User>>,
}

fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(name) => Ok(Fields { name, users: None }),
        fields @ Value::Object(_) => serde_json::from_value(fields).map_err(D::Error::custom),
        _ => Err(D::Error::custom("an account is a name, or an object with `name`")),
    }
}

impl<'de> Deserialize<'de> for User {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields { name, users } = fields(deserializer)?;
        if users.is_some() {
            return Err(D::Error::custom("a user has no `users`, only a `name`"));
        }
        Ok(Self { name })
    }
}

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields { name, users } = fields(deserializer)?;
        Ok(Self { name, users: users.unwrap_or_default() })
    }
}

impl<'de> Deserialize<'de> for EntryGroup {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Fields { name, users } = fields(deserializer)?;
        Ok(match users {
            Some(users) => Self::Group(Group { name, users }),
            None => Self::User(User { name }),
        })
    }
}

/// The accounts that a machine needs for a manifest: its users and groups, and those that its entries declare.
///
/// # Errors
/// `account_unavailable` for an entry whose group is not declared.
pub(crate) fn wanted(manifest: &Manifest) -> SandboxResult<Accounts> {
    let mut groups: Vec<Group> = manifest.groups.clone();
    let entries = manifest.flatten();
    let owners: Vec<&EntryGroup> = entries.iter().filter_map(|(_, entry)| entry.attributes().group.as_ref()).collect();
    let mut places: HashMap<String, usize> =
        groups.iter().enumerate().map(|(place, group)| (group.name.clone(), place)).collect();
    for owner in &owners {
        let EntryGroup::Group(group) = owner else { continue };
        let place = *places.entry(group.name.clone()).or_insert_with(|| {
            groups.push(Group::new(&group.name));
            groups.len() - 1
        });
        if let Some(known) = groups.get_mut(place) {
            let seen: HashSet<String> = known.users.iter().map(|user| user.name.clone()).collect();
            known.users.extend(group.users.iter().filter(|user| !seen.contains(&user.name)).cloned());
        }
    }
    let name = |user: &User| user.name.clone();
    let accounts = Accounts {
        users: manifest.users.iter().map(name).collect(),
        groups: groups
            .into_iter()
            .map(|group| AccountGroup { name: group.name, members: group.users.iter().map(name).collect() })
            .collect(),
    };
    let known = known_owners(manifest);
    match owners.into_iter().find(|owner| !known.contains(owner.name())) {
        Some(owner) => Err(SandboxError::account_unavailable(owner.name(), UNDECLARED)),
        None => Ok(accounts),
    }
}

/// Why an entry cannot have its group.
pub(crate) const UNDECLARED: &str = "an entry belongs to it, but the manifest declares no such group or user";

/// The names that entries of a manifest may belong to.
pub(crate) fn known_owners(manifest: &Manifest) -> HashSet<&str> {
    let groups = manifest.all_groups().into_iter().map(|group| group.name.as_str());
    groups.chain(manifest.all_users()).chain(["agent"]).collect()
}

impl Manifest {
    /// Every group there is: those of its own, and those that entries bring.
    #[must_use]
    pub fn all_groups(&self) -> Vec<&Group> {
        let brought = self.flatten().into_iter().filter_map(|(_, entry)| match &entry.attributes().group {
            Some(EntryGroup::Group(group)) => Some(group),
            _ => None,
        });
        self.groups.iter().chain(brought).collect()
    }

    /// The name of every user there is: those of its own, and the members of all groups.
    #[must_use]
    pub fn all_users(&self) -> BTreeSet<&str> {
        let members = self.all_groups().into_iter().flat_map(|group| &group.users);
        self.users.iter().chain(members).map(|user| user.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accounts_are_names_or_objects() {
        assert_eq!(serde_json::from_value::<User>(json!("ada")).unwrap(), User::new("ada"));
        assert_eq!(serde_json::from_value::<User>(json!({"name": "ada"})).unwrap(), User::new("ada"));
        let group = Group::new("staff").user("ada");
        assert_eq!(serde_json::from_value::<Group>(json!({"name": "staff", "users": ["ada"]})).unwrap(), group);
        assert_eq!(serde_json::from_value::<Group>(json!("staff")).unwrap(), Group::new("staff"));
        for bad in [json!({"name": "a", "uid": 1}), json!({}), json!(1), json!({"name": "a", "users": []})] {
            assert!(serde_json::from_value::<User>(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_entry_belongs_to_a_group_or_to_a_users_own() {
        for group in [EntryGroup::from("ada"), EntryGroup::from(Group::new("staff").user("ada"))] {
            let saved = serde_json::to_value(&group).unwrap();
            assert_eq!(serde_json::from_value::<EntryGroup>(saved).unwrap(), group);
        }
    }

    #[test]
    fn a_machine_must_know_every_account_that_a_manifest_names() {
        let staff = Group::new("staff").user("ada");
        let file = |group: EntryGroup| crate::File::new("x").group(group);
        let manifest = Manifest::new()
            .user(User::new("bob"))
            .group(staff.clone())
            .entry("a", file(EntryGroup::from("staff")))
            .entry("b", file(EntryGroup::from("bob")))
            .entry("c", file(Group::new("staff").user("eve").into()))
            .entry("d", file(Group::new("own").user("bob").into()))
            .entry("e", file(EntryGroup::from("agent")));
        let expected = Accounts::default().user("bob").group("staff", ["ada", "eve"]).group("own", ["bob"]);
        assert_eq!(wanted(&manifest).unwrap(), expected);
        let stray = manifest.entry("f", file(EntryGroup::from("nowhere")));
        let error = wanted(&stray).unwrap_err();
        assert_eq!(error.code(), "account_unavailable");
        assert!(error.to_string().contains("nowhere"), "{error}");
    }
}
