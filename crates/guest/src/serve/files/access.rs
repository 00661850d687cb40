//! Access to files as the user that a request names.

use std::{
    cell::{Cell, RefCell},
    os::fd::AsFd,
    rc::Rc,
};

use sandbar_guest::protocol::At;

use super::{Answer, Fail, Files, give_dir};
use crate::{
    identity::{User, Users},
    sys::{
        files::set_fs_identity,
        process::{die_with_parent, set_groups},
        security::Token,
    },
};

/// The users of the machine, and the identity under which the server accesses files. The identity stays set from one
/// request to the next of the same user: changing it costs as much as many requests do, and requests of one user often
/// arrive together.
pub(crate) struct FileAccess {
    users: Users,
    token: Token,
    current: RefCell<Option<Rc<User>>>,
    /// Whether the identity stays set after an operation, because more requests may follow.
    held: Cell<bool>,
    /// Whether the supplementary groups are not the server's own.
    grouped: Cell<bool>,
}

impl FileAccess {
    pub(crate) fn new(users: Users, token: Token) -> Self {
        Self { users, token, current: RefCell::default(), held: Cell::default(), grouped: Cell::default() }
    }

    pub(crate) fn files(&self) -> Files {
        Files(self.token)
    }

    /// The user that a file operation names; `None` if the server itself is the only user.
    pub(crate) fn user_of(&self, at: &At) -> Answer<Option<Rc<User>>> {
        self.find(at.user.as_deref(), at.group.as_deref())
    }

    pub(crate) fn find(&self, user: Option<&[u8]>, group: Option<&[u8]>) -> Answer<Option<Rc<User>>> {
        // The account files are read as the server itself.
        let found = self.users.find(user, group, || self.reset());
        found.map_err(|(kind, message)| Fail::of(kind, message))
    }

    /// Runs a file operation as the user that it names.
    pub(crate) fn run<T>(&self, at: &At, act: impl FnOnce(Files) -> Answer<T>) -> Answer<T> {
        let user = self.user_of(at)?;
        self.run_as(user.as_ref(), || act(self.files()))
    }

    /// Creates a directory and its missing parents.
    pub(crate) fn make_dir(&self, at: &At) -> Answer<()> {
        let user = self.user_of(at)?;
        self.run_as(user.as_ref(), || {
            let dir = self.files().make_dir(at)?;
            let group = at.group.as_ref().and(user.as_ref());
            group.map_or(Ok(()), |user| give_dir(dir.as_fd(), user.gid))
        })
    }

    /// Runs `act` with the file access of this user; without a user, with the server's own, which is then the only
    /// user.
    pub(crate) fn run_as<T>(&self, user: Option<&Rc<User>>, act: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let Some(user) = user else { return act() };
        let is_set = self.current.borrow().as_ref().is_some_and(|set| Rc::ptr_eq(set, user) || set == user);
        if !is_set {
            self.change(user)?;
            *self.current.borrow_mut() = Some(user.clone());
        }
        let answer = act();
        if !self.held.get() {
            self.reset();
        }
        answer
    }

    /// Keeps an identity set until another one, or the server's own, is needed.
    pub(crate) fn hold(&self) {
        self.held.set(true);
    }

    /// Ends `hold` and restores the server's own identity.
    pub(crate) fn release(&self) {
        self.held.set(false);
        self.reset();
    }

    /// Restores the server's own identity.
    pub(crate) fn reset(&self) {
        if self.current.take().is_some() {
            // If the groups cannot be reset, the next change of identity tries again before it acts.
            let _tried_again = self.change(&User::default());
            set_fs_identity(0, 0);
        }
    }

    fn change(&self, user: &User) -> Answer<()> {
        if self.grouped.get() || !user.groups.is_empty() {
            self.grouped.set(true);
            set_groups(&user.groups).map_err(Fail::from)?;
            self.grouped.set(!user.groups.is_empty());
        }
        set_fs_identity(user.uid, user.gid);
        // The kernel clears the parent-death signal on every change of identity.
        let _bound_again = die_with_parent();
        Ok(())
    }
}
