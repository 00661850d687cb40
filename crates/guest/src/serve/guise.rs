//! Whose files are opened and changed at the moment: one identity, kept on from one request to the next of the same user.

use std::cell::Cell;

use super::files::Answer;
use crate::{
    identity::{User, Users},
    sys::{files::set_fs_identity, process::die_with_parent},
};

/// The identity the server wears. Changing it costs as much as many a request does, and requests come in crowds.
pub(super) struct Guise {
    users: Users,
    worn: Cell<Option<User>>,
    /// Whether requests are being taken that may all be one user's.
    held: Cell<bool>,
}

impl Guise {
    pub(super) fn new(users: Users) -> Self {
        Self { users, worn: Cell::new(None), held: Cell::new(false) }
    }

    /// Opens and changes files as this user while `act` runs.
    pub(super) fn wear<T>(&self, user: Option<User>, act: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let Some(user) = user.filter(|_| self.users == Users::Many) else { return act() };
        if self.worn.get() != Some(user) {
            self.change(user);
            self.worn.set(Some(user));
        }
        let answer = act();
        if !self.held.get() {
            self.shed();
        }
        answer
    }

    /// From now on an identity stays on until another is needed, or the server's own.
    pub(super) fn hold(&self) {
        self.held.set(true);
    }

    /// No more requests for now.
    pub(super) fn release(&self) {
        self.held.set(false);
        self.shed();
    }

    /// The server is itself again.
    pub(super) fn shed(&self) {
        if self.worn.take().is_some() {
            self.change(User { uid: 0, gid: 0 });
        }
    }

    fn change(&self, user: User) {
        set_fs_identity(user.uid, user.gid);
        // The kernel forgets whose death this process follows whenever it changes identity.
        let _bound_again = die_with_parent();
    }
}
