//! What is put into a container before it starts: the guest, what it is told, and places that belong to the right user.

use bytes::Bytes;
use sandbar_machine::tar::{self, Kind, Member};

use super::users::{Added, Who};
use crate::GUEST;

/// Where the guest is, inside.
pub(super) const GUEST_DIR: &str = "/.sandbar";
pub(super) const HOME: &str = "/home/agent";
pub(super) const WORKSPACE: &str = "/workspace";

/// An archive and the directory it is unpacked in.
pub(super) struct Upload {
    pub(super) to: &'static str,
    pub(super) pieces: Vec<Bytes>,
}

/// The guest, and around it whatever can be made ready where the image's own tree can be written to.
pub(super) fn upload(launch: Vec<u8>, who: Who, own_workspace: bool, root: Root) -> Upload {
    let mut archive = Archive::default();
    let Root::Writable(added) = root else {
        archive.guest("", launch);
        return archive.to(GUEST_DIR);
    };
    archive.dir(".sandbar", 0o755, Who::ROOT);
    archive.guest(".sandbar/", launch);
    archive.dir("home/agent", 0o755, who);
    if own_workspace {
        archive.dir("workspace", 0o755, who);
    }
    for Added { path, contents } in added {
        archive.file(path, 0o644, contents.into());
    }
    archive.to("/")
}

/// Whether the image's own tree can be written to, and what is added there.
pub(super) enum Root {
    Writable(Vec<Added>),
    ReadOnly,
}

#[derive(Default)]
struct Archive(Vec<Bytes>);

impl Archive {
    fn guest(&mut self, below: &str, launch: Vec<u8>) {
        self.file(&format!("{below}guest"), 0o755, Bytes::from_static(GUEST));
        self.file(&format!("{below}launch"), 0o644, launch.into());
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
