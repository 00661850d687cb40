//! The machine's users and groups, indexed by name and by number.

use std::{collections::HashMap, fs::File, io::Read, rc::Rc};

use sandbar_guest::account_files::{group_line, passwd_line};

use super::User;

/// Most bytes read of an account file.
const MOST: u64 = 1 << 20;

/// Index of the machine's users and groups.
#[derive(Debug, Default)]
pub(crate) struct Book {
    by_name: HashMap<String, Rc<User>>,
    by_number: HashMap<u32, Rc<User>>,
    groups: HashMap<String, u32>,
}

impl Book {
    /// Reads the account files. Commands may have changed them: only names and numbers in range are used.
    pub(crate) fn open() -> Self {
        Self::parse(&read_start("/etc/passwd"), &read_start("/etc/group"))
    }

    fn parse(passwd: &str, group: &str) -> Self {
        let mut book = Self::default();
        let mut member_of: HashMap<&str, Vec<u32>> = HashMap::new();
        for (name, gid, members) in group.lines().filter_map(group_line) {
            book.groups.entry(name.to_owned()).or_insert(gid);
            for member in members.filter(|member| !member.is_empty()) {
                member_of.entry(member).or_default().push(gid);
            }
        }
        for (name, uid, gid, home) in passwd.lines().filter_map(passwd_line) {
            let mut groups = member_of.get(name).cloned().unwrap_or_default();
            groups.retain(|other| *other != gid);
            groups.sort_unstable();
            groups.dedup();
            let user = Rc::new(User { uid, gid, groups, name: name.to_owned(), home: home.to_owned() });
            book.by_number.entry(uid).or_insert_with(|| user.clone());
            book.by_name.entry(name.to_owned()).or_insert(user);
        }
        book
    }

    /// A user by name.
    pub(crate) fn user(&self, name: &str) -> Option<Rc<User>> {
        self.by_name.get(name).cloned()
    }

    /// A user by number.
    pub(crate) fn numbered(&self, uid: u32) -> Option<Rc<User>> {
        self.by_number.get(&uid).cloned()
    }

    /// A group's gid.
    pub(crate) fn group(&self, name: &str) -> Option<u32> {
        self.groups.get(name).copied()
    }
}

/// The beginning of a file; empty if it cannot be read.
fn read_start(path: &str) -> String {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST).read_to_end(&mut text));
    if read.is_ok() { String::from_utf8_lossy(&text).into_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_in_the_groups_that_name_them() {
        let book = Book::parse(
            "agent:x:1000:1000:agent:/home/agent:/bin/sh\nada:x:1001:1001::/home/ada:/bin/sh\n\
             bob:x:1002:1002::/home/bob:/bin/sh\neve:x:1003:1003::/home/eve:/bin/sh\n",
            "ada:x:1001:bob\nbob:x:1002:\nstaff:x:1004:bob,eve,agent\n",
        );
        let of = |name: &str| book.user(name).map(|user| (user.uid, user.gid, user.groups.clone())).unwrap();
        assert_eq!(of("ada"), (1001, 1001, vec![]));
        assert_eq!(of("bob"), (1002, 1002, vec![1001, 1004]));
        assert_eq!(of("agent"), (1000, 1000, vec![1004]));
        assert_eq!((book.group("staff"), book.group("nobody")), (Some(1004), None));
        assert_eq!(book.numbered(1003).unwrap().home, "/home/eve");
    }

    #[test]
    fn malformed_lines_are_ignored() {
        let book = Book::parse("a\nb:x\nc:x:70000:1:c:/:\n:x:5:5::/:\nd:x:-1:0::/:\nok:x:7:8", "g:x:99999:\nh:x:3");
        assert!(["a", "b", "c", "", "d"].iter().all(|name| book.user(name).is_none()));
        assert_eq!(book.user("ok").map(|user| (user.uid, user.gid, user.home.clone())), Some((7, 8, "/".to_owned())));
        assert_eq!((book.group("g"), book.group("h")), (None, Some(3)));
    }
}
