//! Whose files are opened and changed at the moment: one identity, kept on from one request to the next of the same user.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::files::{Answer, Fail};
use crate::{
    identity::User,
    sys::{files::set_fs_identity, process::die_with_parent, process::set_groups},
};

/// The identity the server wears. Changing it costs as much as many a request does, and requests come in crowds.
#[derive(Default)]
pub(super) struct Guise {
    worn: RefCell<Option<Rc<User>>>,
    /// Whether requests are being taken that may all be one user's.
    held: Cell<bool>,
    /// Whether the groups beside the first are somebody else's.
    grouped: Cell<bool>,
}

impl Guise {
    /// Opens and changes files as this user while `act` runs; without one, as the server itself, which then is the only
    /// user there is.
    pub(super) fn wear<T>(&self, user: Option<&Rc<User>>, act: impl FnOnce() -> Answer<T>) -> Answer<T> {
        let Some(user) = user else { return act() };
        let is_on = self.worn.borrow().as_ref().is_some_and(|worn| Rc::ptr_eq(worn, user) || worn == user);
        if !is_on {
            self.change(user)?;
            *self.worn.borrow_mut() = Some(user.clone());
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
            // Groups that would not go are tried again before anything is done for somebody else.
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
        // The kernel forgets whose death this process follows whenever it changes identity.
        let _bound_again = die_with_parent();
        Ok(())
    }
}
