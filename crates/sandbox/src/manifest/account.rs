//! The users and groups a machine shall know.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

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

/// Why a name cannot be one of an account, if it cannot.
pub(crate) fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("a name is empty");
    }
    if name.len() > 32 {
        return Some("a name is longer than 32 bytes");
    }
    let strange = |c: char| c.is_control() || c.is_whitespace() || ":/,\\".contains(c);
    if name.starts_with('-') || name.contains(strange) {
        return Some("a name may not begin with `-` nor contain `:`, `/`, `,`, `\\` or blanks");
    }
    None
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
    fn names_that_would_confuse_an_account_database_are_refused() {
        for (name, fine) in
            [("ada", true), ("_x-1.y$", true), ("", false), ("-a", false), ("a:b", false), ("a b", false)]
        {
            assert_eq!(name_fault(name).is_none(), fine, "{name}");
        }
        assert!(name_fault(&"a".repeat(33)).is_some());
    }
}
