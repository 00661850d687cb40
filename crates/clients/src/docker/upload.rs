//! Files that are copied into a container before it starts: the guest, directories and accounts with the right owners.

use bytes::Bytes;
use sandbar_machine::tar::{self, Kind, Member};

use super::users::{MergedAccounts, UserIds};

/// Path of the guest inside the container.
pub(super) const GUEST_DIR: &str = "/.sandbar";
pub(super) const GUEST: &str = "/.sandbar/guest";
pub(super) const HOMES: &str = "/home";
pub(super) const HOME: &str = "/home/agent";
pub(super) const WORKSPACE: &str = "/workspace";
pub(super) const ETC: &str = "/etc";

/// An archive and the directory it is unpacked into.
pub(super) struct Upload {
    pub(super) to: &'static str,
    pub(super) pieces: Vec<Bytes>,
}

/// Where the machine's own directories can be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Anywhere in the image's tree.
    Writable,
    /// Only in volumes.
    ReadOnly,
}

/// Where the workspace comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workspace {
    Own,
    Hosts,
}

/// The archives with the guest, the home directories, the workspace and the accounts.
pub(super) fn uploads(root: Root, who: UserIds, workspace: Workspace, accounts: &MergedAccounts) -> Vec<Upload> {
    match root {
        Root::Writable => {
            let mut archive = Archive::default();
            archive.dir(".sandbar", 0o755, UserIds::ROOT);
            archive.guest(".sandbar/");
            archive.homes("home/", who, accounts);
            if workspace == Workspace::Own {
                archive.dir("workspace", 0o755, who);
            }
            archive.accounts("etc/", accounts);
            vec![archive.to("/")]
        }
        Root::ReadOnly => {
            let (mut guest, mut homes, mut etc) = (Archive::default(), Archive::default(), Archive::default());
            guest.guest("");
            let mut uploads = vec![guest.to(GUEST_DIR)];
            if accounts.are_many {
                homes.homes("", who, accounts);
                etc.accounts("", accounts);
                uploads.extend([homes.to(HOMES), etc.to(ETC)]);
            }
            uploads
        }
    }
}

#[derive(Default)]
struct Archive(Vec<Bytes>);

impl Archive {
    fn guest(&mut self, below: &str) {
        self.file(&format!("{below}guest"), 0o755, Bytes::from_static(crate::GUEST));
    }

    fn homes(&mut self, below: &str, agent: UserIds, accounts: &MergedAccounts) {
        self.dir(&format!("{below}agent"), 0o755, agent);
        for (name, who) in &accounts.made {
            self.dir(&format!("{below}{name}"), 0o700, *who);
        }
    }

    fn accounts(&mut self, below: &str, accounts: &MergedAccounts) {
        for (name, text) in [("passwd", &accounts.passwd), ("group", &accounts.group)] {
            if let Some(text) = text {
                self.file(&format!("{below}{name}"), 0o644, text.clone().into());
            }
        }
    }

    fn dir(&mut self, path: &str, mode: u32, who: UserIds) {
        let member = Member::new(Kind::Dir, path.as_bytes(), mode);
        self.0.push(Member { uid: who.uid.into(), gid: who.gid.into(), ..member }.encode());
    }

    fn file(&mut self, path: &str, mode: u32, contents: Bytes) {
        let size = contents.len() as u64;
        self.0.push(Member { size, ..Member::new(Kind::File, path.as_bytes(), mode) }.encode());
        self.0.push(contents);
        self.0.push(Bytes::from(vec![0; tar::padding(size)]));
    }

    fn to(mut self, to: &'static str) -> Upload {
        self.0.push(tar::end());
        Upload { to, pieces: self.0 }
    }
}
