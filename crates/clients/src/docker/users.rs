//! The user that commands run as: uid and gid, looked up in the image's accounts if given as a name.

use bollard::{errors::Error, query_parameters::DownloadFromContainerOptions};
use futures::TryStreamExt;
use sandbar_guest::{
    account_files::{AGENT, add},
    protocol::Accounts as LaunchAccounts,
};
use sandbar_machine::{
    MachineError, Result,
    tar::{self, Kind},
};

use super::engine::Engine;

/// Maximum size of an account file in bytes.
const MAX_ACCOUNTS: usize = 512 << 10;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";

/// A user id and a group id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UserIds {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl UserIds {
    pub(super) const ROOT: Self = Self { uid: 0, gid: 0 };
}

/// The chosen user, in the engine's form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UserChoice(String);

impl UserChoice {
    /// The requested user; otherwise the owner of the workspace; otherwise the image's user, unless that is root;
    /// otherwise the default user of every machine.
    pub(super) fn new(asked: Option<&str>, owner: Option<(u32, u32)>, image: &str) -> Self {
        let chosen = match (asked, owner) {
            (Some(asked), _) => asked.to_owned(),
            (None, Some((uid, gid))) => format!("{uid}:{gid}"),
            (None, None) if is_root(image) => AGENT.to_string(),
            (None, None) => image.to_owned(),
        };
        // An engine would give a uid without a group the group of root.
        Self(if chosen.parse::<u32>().is_ok() { format!("{chosen}:{chosen}") } else { chosen })
    }

    pub(super) fn text(&self) -> &str {
        &self.0
    }

    pub(super) fn is_root(&self) -> bool {
        is_root(&self.0)
    }
}

pub(super) fn is_root(user: &str) -> bool {
    let name = user.split(':').next().unwrap_or_default();
    matches!(name, "" | "root") || name.parse() == Ok(0u32)
}

/// The image's accounts with the added ones: files that differ from the image's, and the new users.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MergedAccounts {
    pub(super) passwd: Option<String>,
    pub(super) group: Option<String>,
    /// The users that need a home directory.
    pub(super) made: Vec<(String, UserIds)>,
    /// Whether commands run as more than one user.
    pub(super) are_many: bool,
}

/// The image's accounts. Their names and ids are trusted: they only concern the image itself.
#[derive(Debug)]
pub(super) struct Accounts {
    passwd: Text,
    group: Text,
}

/// Text of a file, empty if the file is missing; `None` if it is not a regular text file.
type Text = Option<String>;

impl Accounts {
    /// Reads the accounts from a container, which need not run.
    pub(super) async fn read(engine: &Engine, docker: &bollard::Docker, container: &str) -> Result<Self> {
        let file = |path| engine.within("read the image's accounts", file(docker, container, path));
        let (passwd, group) = futures::future::try_join(file(PASSWD), file(GROUP)).await?;
        let plain = |found: Result<AccountFile, Error>, path: &str| match found {
            Ok(AccountFile::Text(text)) => Ok(text),
            Ok(AccountFile::Special) => {
                let reason = "is a pipe or a device, for which an engine would wait without end";
                Err(MachineError::invalid(format!("the image's {path}"), reason))
            }
            Err(error) => Err(engine.api_error("read the image's accounts", error)),
        };
        Ok(Self { passwd: plain(passwd, PASSWD)?, group: plain(group, GROUP)? })
    }

    /// `NAME`, `UID`, `NAME:GROUP`, `UID:GID`.
    pub(super) fn find(&self, user: &str) -> Result<UserIds> {
        let unknown = |what: &str| {
            MachineError::invalid(format!("user {user:?}"), format!("the image has no {what} of that name"))
        };
        let (name, group) = user.split_once(':').map_or((user, None), |(name, group)| (name, Some(group)));
        let passwd = self.passwd.as_deref().unwrap_or_default();
        let known = lines(passwd).find(|line| line.name == name || Ok(line.id) == name.parse());
        let (uid, own) = match (known, name.parse()) {
            (Some(line), _) => (line.id, line.second),
            (None, Ok(uid)) => (uid, None),
            // Every image has this user, even one without accounts.
            (None, Err(_)) if name == "root" => (0, None),
            (None, Err(_)) => return Err(unknown("user")),
        };
        let groups = self.group.as_deref().unwrap_or_default();
        let gid = match group {
            None => own.unwrap_or(uid),
            Some(group) => match (group.parse(), lines(groups).find(|line| line.name == group)) {
                (Ok(gid), _) => gid,
                (Err(_), Some(line)) => line.id,
                (Err(_), None) => return Err(unknown("group")),
            },
        };
        Ok(UserIds { uid, gid })
    }

    /// The image's account files with all users of the machine added. A uid without a name gets the name `agent`: many
    /// programs fail for users without a name.
    pub(super) fn merged(&self, who: UserIds, wanted: &LaunchAccounts) -> Result<MergedAccounts> {
        let UserIds { uid, gid } = who;
        let are_many = wanted.need_many();
        // If there are several users, there must be one with this name, even if its uid already has another name.
        let lacks = |text: &str, id: u32| !lines(text).any(|line| line.name == "agent" || !are_many && line.id == id);
        let with = |text: &Text, id: u32, line: String| {
            let text = text.as_deref().filter(|text| lacks(text, id))?;
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            Some(format!("{text}{gap}{line}\n"))
        };
        let passwd = with(&self.passwd, uid, format!("agent:x:{uid}:{gid}::/home/agent:/bin/sh"));
        let group = with(&self.group, gid, format!("agent:x:{gid}:"));
        if !are_many {
            return Ok(MergedAccounts { passwd, group, made: Vec::new(), are_many });
        }
        let refused =
            |missing: &str, fix: &str| MachineError::Users { missing: missing.to_owned(), fix: fix.to_owned() };
        let (Some(old_passwd), Some(old_group)) = (&self.passwd, &self.group) else {
            let fix = "make /etc/passwd and /etc/group of the image plain text files of at most 512 KiB";
            return Err(refused("an image whose accounts can be read", fix));
        };
        let added = add(passwd.as_ref().unwrap_or(old_passwd), group.as_ref().unwrap_or(old_group), wanted);
        let added = added.ok_or_else(|| refused("free numbers for all of them", "ask for fewer users and groups"))?;
        let made = added.made.into_iter().map(|(name, uid, gid)| (name, UserIds { uid, gid })).collect();
        Ok(MergedAccounts { passwd: Some(added.passwd), group: Some(added.group), made, are_many })
    }
}

struct Line<'a> {
    name: &'a str,
    id: u32,
    second: Option<u32>,
}

/// `name:secret:id:second:…`; other lines are skipped.
fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let id = fields.nth(1)?.parse().ok()?;
        Some(Line { name, id, second: fields.next().and_then(|second| second.parse().ok()) })
    })
}

/// A file of a container.
enum AccountFile {
    Text(Text),
    Special,
}

/// Reads a small text file of a container.
async fn file(docker: &bollard::Docker, container: &str, path: &str) -> Result<AccountFile, Error> {
    let options = DownloadFromContainerOptions { path: path.to_owned() };
    let mut stream = std::pin::pin!(docker.download_from_container(container, Some(options)));
    let (mut reader, mut text, mut wanted) = (tar::Reader::new(), Vec::new(), true);
    loop {
        let piece = match stream.try_next().await {
            Ok(Some(piece)) => piece,
            Ok(None) | Err(Error::DockerResponseServerError { status_code: 404, .. }) => break,
            Err(error) => return Err(error),
        };
        let Ok(events) = reader.push(&piece) else { return Ok(AccountFile::Text(None)) };
        for event in events {
            match event {
                tar::Event::Member(member) if matches!(member.kind, Kind::Other(_)) => return Ok(AccountFile::Special),
                tar::Event::Member(member) => wanted &= member.kind == Kind::File,
                tar::Event::Data(bytes) => text.extend_from_slice(&bytes),
                tar::Event::Done => {}
            }
        }
        if !wanted || text.len() > MAX_ACCOUNTS {
            return Ok(AccountFile::Text(None));
        }
    }
    Ok(AccountFile::Text(String::from_utf8(text).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Accounts = Accounts { passwd: Some(String::new()), group: Some(String::new()) };

    fn accounts() -> Accounts {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nnode:x:1000:1001::/home/node:/bin/sh\n:x:7:7\n";
        Accounts { passwd: Some(passwd.to_owned()), group: Some("root:x:0:\ntools:x:50:node".to_owned()) }
    }

    #[test]
    fn names_and_numbers_are_found_as_the_image_has_them() {
        let table = [
            ("node", 1000, 1001),
            ("1000", 1000, 1001),
            ("node:tools", 1000, 50),
            ("2000", 2000, 2000),
            ("2000:3", 2000, 3),
            ("root", 0, 0),
        ];
        for (user, uid, gid) in table {
            assert_eq!(accounts().find(user).expect(user), UserIds { uid, gid }, "{user}");
        }
        for user in ["nobody", "node:nothing", "", "-1", "99999999999"] {
            assert_eq!(accounts().find(user).expect_err(user).code(), "invalid");
        }
        assert_eq!(EMPTY.find("root").expect("every image has one"), UserIds::ROOT);
    }

    #[test]
    fn root_is_never_the_default_user() {
        for root in ["", "root", "0", "0:0", "root:tools"] {
            assert_eq!(UserChoice::new(None, None, root).text(), "1000:1000", "{root:?}");
        }
        assert_eq!(UserChoice::new(None, None, "node").text(), "node");
        assert_eq!(UserChoice::new(None, Some((7, 8)), "node").text(), "7:8");
        assert_eq!(UserChoice::new(Some("root"), Some((7, 8)), "node").text(), "root");
        assert_eq!(UserChoice::new(Some("5"), None, "").text(), "5:5");
    }

    fn completed(accounts: &Accounts, uid: u32, gid: u32) -> (Option<String>, Option<String>) {
        let merged =
            accounts.merged(UserIds { uid, gid }, &LaunchAccounts::default()).expect("one user is always possible");
        assert_eq!((merged.made.as_slice(), merged.are_many), (&[][..], false));
        (merged.passwd, merged.group)
    }

    #[test]
    fn a_number_without_a_name_gets_one() {
        let (passwd, group) = completed(&accounts(), 7000, 50);
        assert!(passwd.expect("a file").ends_with(":x:7:7\nagent:x:7000:50::/home/agent:/bin/sh\n"));
        assert_eq!(group, None);
        let (passwd, group) = completed(&accounts(), 0, 9);
        assert_eq!((passwd, group.as_deref()), (None, Some("root:x:0:\ntools:x:50:node\nagent:x:9:\n")));
        assert_eq!(completed(&accounts(), 1000, 50), (None, None));
        let (passwd, group) = completed(&EMPTY, 1000, 1000);
        assert!(passwd.is_some() && group.is_some());
        assert_eq!(completed(&Accounts { passwd: None, group: None }, 1000, 1000), (None, None));
    }

    #[test]
    fn accounts_are_added_to_those_of_the_image() {
        let wanted = LaunchAccounts { users: vec!["ada".to_owned(), "node".to_owned()], groups: Vec::new() };
        let merged = accounts().merged(UserIds { uid: 1000, gid: 1000 }, &wanted).expect("there is room");
        let passwd = merged.passwd.expect("a file");
        // `agent` shares the uid of the image's own user, which keeps its name.
        assert!(passwd.contains("node:x:1000:1001:") && passwd.contains("agent:x:1000:1000:"), "{passwd}");
        assert!(passwd.ends_with("ada:x:1002:1002:ada:/home/ada:/bin/sh\n"), "{passwd}");
        assert!(merged.group.expect("a file").ends_with("agent:x:1000:\nada:x:1002:\n"));
        assert_eq!(merged.made, [("ada".to_owned(), UserIds { uid: 1002, gid: 1002 })]);
        let odd = Accounts { passwd: None, group: Some(String::new()) };
        assert_eq!(odd.merged(UserIds::ROOT, &wanted).expect_err("no plain file").code(), "users");
    }
}
