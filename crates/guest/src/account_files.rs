//! The account files `/etc/passwd` and `/etc/group`: parses their lines and adds accounts.

use std::collections::{HashMap, HashSet};

use crate::protocol::Accounts;

/// uid and gid of the user that every machine has.
pub const AGENT: u32 = 1000;
/// Lowest number for a new account.
const FIRST: u16 = 1001;
/// Highest number for a new account: 65534 is `nobody`.
const LAST: u16 = 65533;

/// Name, uid, gid and home of a line of `/etc/passwd`; `None` if the line is malformed or an id is above 65535.
#[must_use]
pub fn passwd_line(line: &str) -> Option<(&str, u32, u32, &str)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let uid = fields.nth(1)?.parse::<u16>().ok()?;
    let gid = fields.next()?.parse::<u16>().ok()?;
    let home = fields.nth(1).filter(|home| home.starts_with('/')).unwrap_or("/");
    Some((name, u32::from(uid), u32::from(gid), home))
}

/// Name, gid and members of a line of `/etc/group`; `None` as for a user.
#[must_use]
pub fn group_line(line: &str) -> Option<(&str, u32, std::str::Split<'_, char>)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    let gid = fields.nth(1)?.parse::<u16>().ok()?;
    Some((name, u32::from(gid), fields.next().unwrap_or_default().split(',')))
}

/// Contents of extended account files.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Contents of `/etc/passwd`.
    pub passwd: String,
    /// Contents of `/etc/group`.
    pub group: String,
    /// Added users with their uid and gid.
    pub made: Vec<(String, u32, u32)>,
}

/// Adds accounts. Existing ones stay unchanged; new ones get the free numbers from 1001 on, in the order in which they
/// are named. `None` if no numbers are left.
#[must_use]
pub fn add(passwd: &str, group: &str, accounts: &Accounts) -> Option<Written> {
    let mut users: HashSet<String> = HashSet::new();
    let mut taken: HashSet<u32> = HashSet::new();
    for (name, uid, gid, _) in passwd.lines().filter_map(passwd_line) {
        users.insert(name.to_owned());
        taken.extend([uid, gid]);
    }
    let mut rows: Vec<Row> = group.lines().map(Row::of).collect();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        if let Some((name, gid)) = &row.named {
            places.entry(name.clone()).or_insert(place);
            taken.insert(*gid);
        }
    }
    let mut free = (FIRST..=LAST).map(u32::from).filter(|number| !taken.contains(number));
    let mut passwd = ended(passwd);
    let mut made = Vec::new();
    for name in accounts.all_users() {
        if !users.insert(name.to_owned()) {
            continue;
        }
        let agents = Some(AGENT).filter(|agent| name == "agent" && !taken.contains(agent));
        let uid = agents.or_else(|| free.next())?;
        let gid = match places.get(name).and_then(|place| rows.get(*place)?.named.as_ref()) {
            Some((_, gid)) => *gid,
            None => {
                places.insert(name.to_owned(), rows.len());
                rows.push(Row::new(name, uid));
                uid
            }
        };
        passwd.push_str(&format!("{name}:x:{uid}:{gid}:{name}:/home/{name}:/bin/sh\n"));
        made.push((name.to_owned(), uid, gid));
    }
    for wanted in &accounts.groups {
        let place = match places.get(&wanted.name) {
            Some(place) => *place,
            None => {
                places.insert(wanted.name.clone(), rows.len());
                rows.push(Row::new(&wanted.name, free.next()?));
                rows.len() - 1
            }
        };
        if let Some(row) = rows.get_mut(place) {
            row.join(&wanted.members);
        }
    }
    let group = rows.into_iter().map(|row| row.text + "\n").collect();
    Some(Written { passwd, group, made })
}

fn ended(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// A line of the group file.
struct Row {
    text: String,
    named: Option<(String, u32)>,
}

impl Row {
    fn of(line: &str) -> Self {
        Self { text: line.to_owned(), named: group_line(line).map(|(name, gid, _)| (name.to_owned(), gid)) }
    }

    fn new(name: &str, gid: u32) -> Self {
        Self { text: format!("{name}:x:{gid}:"), named: Some((name.to_owned(), gid)) }
    }

    fn join(&mut self, members: &[String]) {
        let listed = self.text.splitn(4, ':').nth(3).unwrap_or_default();
        let mut known: HashSet<String> =
            listed.split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect();
        if self.text.matches(':').count() < 3 {
            self.text.push(':');
        }
        for member in members {
            let first = known.is_empty();
            if known.insert(member.clone()) {
                self.text.push_str(if first { "" } else { "," });
                self.text.push_str(member);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::AccountGroup;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nagent:x:1000:\n";

    fn accounts(users: &[&str], groups: &[(&str, &[&str])]) -> Accounts {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let group = |(name, members): &(&str, &[&str])| AccountGroup { name: (*name).into(), members: owned(members) };
        Accounts { users: owned(users), groups: groups.iter().map(group).collect() }
    }

    #[test]
    fn accounts_get_numbers_in_the_order_they_are_named_in() {
        let wanted = accounts(&["ada", "agent", "bob"], &[("staff", &["bob", "eve", "agent"]), ("ada", &["bob"])]);
        let written = add(PASSWD, GROUP, &wanted).unwrap();
        assert_eq!(
            written.passwd.strip_prefix(PASSWD).unwrap(),
            "ada:x:1001:1001:ada:/home/ada:/bin/sh\nbob:x:1002:1002:bob:/home/bob:/bin/sh\n\
             eve:x:1003:1003:eve:/home/eve:/bin/sh\n"
        );
        assert_eq!(
            written.group.strip_prefix(GROUP).unwrap(),
            "ada:x:1001:bob\nbob:x:1002:\neve:x:1003:\nstaff:x:1004:bob,eve,agent\n"
        );
    }

    #[test]
    fn what_an_image_has_already_stays() {
        let passwd = "root:x:0:0::/root:/bin/ash\nada:x:1001:100:Ada:/srv/ada:/bin/ash";
        let group = "users:x:100:games\nbob:x:1002:\nodd\n";
        let written = add(passwd, group, &accounts(&["ada", "bob"], &[("users", &["ada", "bob"])])).unwrap();
        assert_eq!(written.passwd, format!("{passwd}\nbob:x:1003:1002:bob:/home/bob:/bin/sh\n"));
        assert_eq!(written.group, "users:x:100:games,ada,bob\nbob:x:1002:\nodd\n");
        assert_eq!(written.made, [("bob".to_owned(), 1003, 1002)]);
        let again = add(&written.passwd, &written.group, &accounts(&["bob"], &[])).unwrap();
        assert_eq!((again.passwd, again.made), (written.passwd, vec![]));
    }

    #[test]
    fn there_are_only_so_many_numbers() {
        let full: String = (FIRST..=LAST).map(|number| format!("u{number}:x:{number}:\n")).collect();
        assert_eq!(add("", &full, &accounts(&["ada"], &[])), None);
    }
}
