//! The user that a command or file operation runs as.

mod book;

use std::{cell::RefCell, rc::Rc};

use rustix::process::{getgid, getuid};
pub(crate) use sandbar_guest::account_files::AGENT;
use sandbar_guest::protocol::FailKind;

use self::book::Book;

/// A user of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups.
    pub(crate) groups: Vec<u32>,
    pub(crate) name: String,
    pub(crate) home: String,
}

impl User {
    fn unnamed(uid: u32) -> Self {
        Self { uid, gid: uid, groups: Vec::new(), name: uid.to_string(), home: "/".to_owned() }
    }

    /// The same user with another primary group.
    fn within(&self, gid: u32) -> Self {
        let mut groups = self.groups.clone();
        groups.push(self.gid);
        groups.retain(|other| *other != gid);
        Self { gid, groups, ..self.clone() }
    }
}

/// The users that a machine can switch between.
#[derive(Debug)]
pub(crate) enum Users {
    /// Only the user that the guest itself runs as.
    One,
    /// All users; the guest runs as the machine's root. A request without a user means the agent.
    Many(RefCell<Book>, Agent),
}

/// uid and gid of the user that every machine has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent(pub(crate) u32, pub(crate) u32);

/// Why a user or group was not found.
pub(crate) type Unknown = (FailKind, String);

impl Users {
    /// All users of the machine's account files.
    pub(crate) fn many(agent: Agent) -> Self {
        Self::Many(RefCell::new(Book::open()), agent)
    }

    /// The user to switch to; `None` if no switch is needed. `refresh` runs before the account files are read again,
    /// which happens for an unknown name.
    pub(crate) fn find(
        &self,
        name: Option<&[u8]>,
        group: Option<&[u8]>,
        refresh: impl Fn(),
    ) -> Result<Option<Rc<User>>, Unknown> {
        let Self::Many(book, agent) = self else { return only_one(name, group).map(|()| None) };
        let mut user = Self::look(book, *agent, name, &refresh)?;
        if let Some(group) = group {
            let gid = Self::group(book, group, &refresh)?;
            if gid != user.gid {
                user = Rc::new(user.within(gid));
            }
        }
        Ok(Some(user))
    }

    fn look(
        book: &RefCell<Book>,
        Agent(uid, gid): Agent,
        name: Option<&[u8]>,
        refresh: &impl Fn(),
    ) -> Result<Rc<User>, Unknown> {
        let Some(name) = name else {
            let (name, home) = ("agent".to_owned(), "/home/agent".to_owned());
            let known = book.borrow().user("agent").filter(|agent| agent.uid == uid);
            return Ok(known.unwrap_or_else(|| Rc::new(User { uid, gid, groups: Vec::new(), name, home })));
        };
        let text = std::str::from_utf8(name).unwrap_or_default();
        if let Ok(uid) = text.parse::<u16>().map(u32::from) {
            return Ok(book.borrow().numbered(uid).unwrap_or_else(|| Rc::new(User::unnamed(uid))));
        }
        let found = again(book, refresh, |book| book.user(text));
        found.ok_or_else(|| missing("user", name))
    }

    fn group(book: &RefCell<Book>, name: &[u8], refresh: &impl Fn()) -> Result<u32, Unknown> {
        let text = std::str::from_utf8(name).unwrap_or_default();
        match text.parse::<u16>() {
            Ok(gid) => Ok(u32::from(gid)),
            Err(_) => again(book, refresh, |book| book.group(text)).ok_or_else(|| missing("group", name)),
        }
    }
}

/// Looks a name up, and if it is missing, once more after the account files are read again: it may have been added
/// since.
fn again<T>(book: &RefCell<Book>, refresh: &impl Fn(), look: impl Fn(&Book) -> Option<T>) -> Option<T> {
    let found = look(&book.borrow());
    if found.is_some() {
        return found;
    }
    refresh();
    *book.borrow_mut() = Book::open();
    look(&book.borrow())
}

fn missing(what: &str, name: &[u8]) -> Unknown {
    (
        FailKind::User,
        format!(
            "{:?} is no {what} of this machine, whose users and groups are named when it is made",
            String::from_utf8_lossy(name)
        ),
    )
}

fn only_one(user: Option<&[u8]>, group: Option<&[u8]>) -> Result<(), Unknown> {
    // In a container, `agent` is the container's user.
    let (own_user, own_group) = (getuid().as_raw().to_string(), getgid().as_raw().to_string());
    for (what, name, own) in [("user", user, own_user), ("group", group, own_group)] {
        if let Some(name) = name.filter(|name| *name != b"agent" && *name != own.as_bytes()) {
            let name = String::from_utf8_lossy(name);
            let next = "others are named when it is made, by a manifest or --user NAME";
            return Err((
                FailKind::User,
                format!("{name:?} is no {what} of this machine, which has one, agent; {next}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(users: &Users, name: Option<&str>, group: Option<&str>) -> Result<Option<Rc<User>>, Unknown> {
        users.find(name.map(str::as_bytes), group.map(str::as_bytes), || {})
    }

    #[test]
    fn a_machine_with_one_user_has_no_other() {
        assert_eq!(find(&Users::One, None, None), Ok(None));
        assert_eq!(find(&Users::One, Some("agent"), Some("agent")), Ok(None));
        assert!(find(&Users::One, Some("root"), None).is_err());
        assert!(find(&Users::One, None, Some("root")).is_err());
    }

    #[test]
    fn numbers_out_of_the_mapped_range_are_refused() {
        let many = Users::Many(RefCell::default(), Agent(AGENT, AGENT));
        assert!(find(&many, Some("70000"), None).is_err());
        assert!(find(&many, None, Some("70000")).is_err());
        let found = find(&many, Some("2000"), None).unwrap().unwrap();
        assert_eq!((found.uid, found.gid, found.groups.len()), (2000, 2000, 0));
    }

    #[test]
    fn a_user_with_another_primary_group_stays_in_its_own() {
        let many = Users::Many(RefCell::default(), Agent(AGENT, AGENT));
        let found = find(&many, None, Some("3000")).unwrap().unwrap();
        assert_eq!((found.uid, found.gid, found.groups.as_slice()), (AGENT, 3000, [AGENT].as_slice()));
    }
}
