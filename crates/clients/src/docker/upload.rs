//! What is put into a container before it starts: the guest, and places and accounts that belong to the right users.

use bytes::Bytes;
use sandbar_machine::tar::{self, Kind, Member};

use super::users::{Merged, Who};

/// Where the guest is, inside.
pub(super) const GUEST_DIR: &str = "/.sandbar";
pub(super) const GUEST: &str = "/.sandbar/guest";
pub(super) const HOMES: &str = "/home";
pub(super) const HOME: &str = "/home/agent";
pub(super) const WORKSPACE: &str = "/workspace";
pub(super) const ETC: &str = "/etc";

/// An archive and the directory it is unpacked in.
pub(super) struct Upload {
    pub(super) to: &'static str,
    pub(super) pieces: Vec<Bytes>,
}

/// Where a machine's own places can be put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    /// Anywhere in the image's own tree.
    Writable,
    /// Only in volumes.
    ReadOnly,
}

/// Who has a workspace made for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workspace {
    Own,
    Hosts,
}

/// The guest, and around it whatever can be made ready.
pub(super) fn uploads(root: Root, who: Who, workspace: Workspace, accounts: &Merged) -> Vec<Upload> {
    match root {
        Root::Writable => {
            let mut archive = Archive::default();
            archive.dir(".sandbar", 0o755, Who::ROOT);
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

    fn homes(&mut self, below: &str, agent: Who, accounts: &Merged) {
        self.dir(&format!("{below}agent"), 0o755, agent);
        for (name, who) in &accounts.made {
            self.dir(&format!("{below}{name}"), 0o700, *who);
        }
    }

    fn accounts(&mut self, below: &str, accounts: &Merged) {
        for (name, text) in [("passwd", &accounts.passwd), ("group", &accounts.group)] {
            if let Some(text) = text {
                self.file(&format!("{below}{name}"), 0o644, text.clone().into());
            }
        }
    }

    fn dir(&mut self, path: &str, mode: u32, who: Who) {
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
