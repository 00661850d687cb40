//! Subordinate ids: those that an administrator has assigned to an ordinary user, and the programs that map them.

use std::{
    fmt, fs, io,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// How many ids a machine needs besides the user's own.
const COUNT: u32 = 0xFFFF;
/// Most bytes read of an account list.
const LONGEST: u64 = 4 << 20;
/// Directories of set-user-id programs.
const PLACES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/wrappers/bin"];

/// Subordinate ids of a user, and the programs that map them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subordinate {
    uids: u32,
    gids: u32,
    map_uids: PathBuf,
    map_gids: PathBuf,
}

/// What is missing to use subordinate ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A program.
    Program(&'static str),
    /// A range of ids in one of the lists.
    Ids {
        /// Path of the list.
        list: &'static str,
        /// The user without a range.
        user: String,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(name) => write!(f, "the program {name}"),
            Self::Ids { list, user } => write!(f, "65,536 ids for {user} in {list}"),
        }
    }
}

impl Lack {
    /// How to fix it.
    #[must_use]
    pub fn fix(&self) -> String {
        match self {
            Self::Program(_) => "install the package uidmap, or run sandbar as root".to_owned(),
            Self::Ids { user, .. } => format!(
                "run `usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}` as root, with a range \
                 that no other user has, or run sandbar as root"
            ),
        }
    }
}

impl Subordinate {
    /// Finds the subordinate ids of a user.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn find(uid: u32) -> Result<Self, Lack> {
        let name = name_of(&read(Path::new("/etc/passwd")), uid);
        let range = |list: &'static str| {
            let found = first_range(&read(Path::new(list)), name.as_deref(), uid);
            found.ok_or_else(|| Lack::Ids { list, user: name.clone().unwrap_or_else(|| uid.to_string()) })
        };
        Ok(Self {
            map_uids: program("newuidmap")?,
            map_gids: program("newgidmap")?,
            uids: range("/etc/subuid")?,
            gids: range("/etc/subgid")?,
        })
    }

    /// Writes the id maps of a process of this user in a new user namespace: `inside` is the user itself, the other ids
    /// from 0 to 65,535 are subordinate ids.
    ///
    /// # Errors
    /// When a mapping program fails.
    pub fn map(&self, pid: i32, inside: u32, (uid, gid): (u32, u32)) -> io::Result<()> {
        run(&self.map_uids, pid, inside, uid, self.uids)?;
        run(&self.map_gids, pid, inside, gid, self.gids)
    }
}

fn run(program: &Path, pid: i32, inside: u32, own: u32, first: u32) -> io::Result<()> {
    let rest = (inside + 1, first + inside, COUNT - inside);
    let ranges = [(0, first, inside), (inside, own, 1), rest];
    let numbers = ranges.iter().flat_map(|(inside, outside, count)| [*inside, *outside, *count]);
    let status = Command::new(program)
        .arg(pid.to_string())
        .args(numbers.map(|number| number.to_string()))
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    if status.success() { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

fn program(name: &'static str) -> Result<PathBuf, Lack> {
    let places = PLACES.iter().map(|place| Path::new(place).join(name));
    places.into_iter().find(|path| path.is_file()).ok_or(Lack::Program(name))
}

fn read(path: &Path) -> String {
    let mut bytes = Vec::new();
    let _missing_is_empty = fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The name of a user in `/etc/passwd`.
fn name_of(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// The first range of a user, by name or uid, that is long enough.
fn first_range(list: &str, name: Option<&str>, uid: u32) -> Option<u32> {
    list.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let whose = fields.next()?;
        let (first, count): (u32, u32) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let ours = Some(whose) == name || whose.parse() == Ok(uid);
        (ours && count >= COUNT && first > 0 && first.checked_add(count).is_some()).then_some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_by_name_or_number_and_must_be_long_enough() {
        let passwd = "root:x:0:0::/root:/bin/sh\nbroken\nada:x:1001:1001::/home/ada:/bin/sh\n";
        assert_eq!(name_of(passwd, 1001).as_deref(), Some("ada"));
        assert_eq!(name_of(passwd, 7), None);
        let find = |list: &str| first_range(list, Some("ada"), 1001);
        assert_eq!(find("bob:100000:65536\nada:165536:65536\n"), Some(165_536));
        assert_eq!(find("1001:300000:65536\n"), Some(300_000));
        assert_eq!(find("ada:100000:1000\nada:200000:70000\n"), Some(200_000), "the first is too short");
        for bad in ["", "ada", "ada:x:65536", "ada:0:65536", "ada:4294900000:4294967295", "adam:100000:65536", "::"] {
            assert_eq!(find(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_missing_range_names_its_fix() {
        let lack = Lack::Ids { list: "/etc/subuid", user: "ada".to_owned() };
        assert_eq!(lack.to_string(), "65,536 ids for ada in /etc/subuid");
        assert!(lack.fix().contains("usermod --add-subuids") && lack.fix().ends_with("as root"), "{}", lack.fix());
        assert!(Lack::Program("newuidmap").fix().contains("uidmap"));
    }
}
