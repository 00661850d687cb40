//! The identity for file access. It stays set from one request to the next of the same user.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use super::files::{Answer, Fail};
use crate::{
    identity::User,
    sys::{files::set_fs_identity, process::die_with_parent, process::set_groups},
};

/// The identity under which the server accesses files. Changing it costs as much as many requests do, and requests of
/// one user often arrive together.
#[derive(Default)]
pub(super) struct Guise {
    worn: RefCell<Option<Rc<User>>>,
    /// Whether the identity stays set after an operation, because more requests may follow.
    held: Cell<bool>,
    /// Whether the supplementary groups are not the server's own.
    grouped: Cell<bool>,
}

impl Guise {
    /// Runs `act` with the file access of this user; without a user, with the server's own, which is then the only
    /// user.
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

    /// Keeps an identity set until another one, or the server's own, is needed.
    pub(super) fn hold(&self) {
        self.held.set(true);
    }

    /// Ends `hold` and restores the server's own identity.
    pub(super) fn release(&self) {
        self.held.set(false);
        self.shed();
    }

    /// Restores the server's own identity.
    pub(super) fn shed(&self) {
        if self.worn.take().is_some() {
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
