//! Memory and disk usage that only open descriptors hold: memory files, and deleted files on disk.

use std::{
    collections::{HashMap, HashSet},
    ffi::{CStr, CString},
    mem::MaybeUninit,
    os::fd::{BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use rustix::{
    fs::{AtFlags, FileType, MemfdFlags, Mode, OFlags, RawDir, StatxFlags},
    io::Errno,
};

use super::{
    memory::{other_thread, owner_of},
    usage::{LEAST, Looker},
};
use crate::serve::process_trees::ProcessTrees;

/// Bytes of a table that are read, and descriptor numbers that are tried, between two checks of the clock: less than a
/// turn's worth.
const PIECE: usize = 8 * 1024;
const TRIES: u64 = 512;
/// The pause after a scan is this many times the scan's duration, so that a thousand idle descriptors cost one or two
/// percent of a processor; and its maximum, so that millions of descriptors hide nothing for long.
const REST: u32 = 50;
const LONGEST_REST: Duration = Duration::from_secs(1);
/// Most files of a scan; above that, their content counts as endless.
const MOST_SEEN: usize = 1 << 20;
/// Suffix that the kernel adds to the path of a deleted file.
const DELETED: &[u8] = b" (deleted)";

const TABLE: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Scans the descriptors of commands, a little at a time. There can be millions: one scan takes as many turns as it
/// needs, its partial result already counts, and processes found to hold something are scanned first the next time, so
/// that a crowd of others does not hide them.
#[derive(Default)]
pub(crate) struct Descriptors {
    kinds: Kinds,
    /// A look that is under way.
    sweep: Option<Sweep>,
    /// Result of the last complete scan.
    known: DescriptorTally,
    rest_until: Option<Instant>,
}

/// What to look for, and how.
#[derive(Default)]
struct Kinds {
    /// Device number of memory files.
    memory: Option<u64>,
    /// Device numbers and paths of the directories with a disk limit.
    disk: Vec<u64>,
    places: Vec<Vec<u8>>,
    looker: Looker,
    /// Bound of descriptor numbers.
    most: u64,
}

/// Usage found by a scan.
#[derive(Default)]
struct DescriptorTally {
    /// Bytes of memory, by the tag of the command in whose tree they were seen first.
    memory: HashMap<u64, u64>,
    disk: u64,
    /// Processes that hold some of it.
    holders: HashSet<i32>,
}

impl DescriptorTally {
    fn memory(&self) -> u64 {
        self.memory.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
    }
}

impl Descriptors {
    /// Looks for deleted files of these devices and directories, in descriptors below `most`.
    pub(crate) fn new(disk: Vec<u64>, places: Vec<Vec<u8>>, looker: Looker, most: u64) -> Self {
        Self { kinds: Kinds { memory: None, disk, places, looker, most }, ..Self::default() }
    }

    /// Also looks for memory files.
    pub(crate) fn with_memory(mut self) -> Self {
        // All memory files are on the same device as this one.
        let example = rustix::fs::memfd_create("example", MemfdFlags::CLOEXEC);
        self.kinds.memory = example.and_then(rustix::fs::fstat).ok().map(|stat| stat.st_dev);
        self
    }

    pub(crate) fn without_memory(mut self) -> Self {
        self.kinds.memory = None;
        self
    }

    /// Continues a scan, or starts one if the pause is over.
    pub(crate) fn look(&mut self, trees: &ProcessTrees, until: Instant) {
        let rests = self.rest_until.is_some_and(|end| Instant::now() < end);
        if self.kinds.are_none() || self.sweep.is_none() && rests {
            return;
        }
        let began = Instant::now();
        let sweep = self.sweep.get_or_insert_with(|| Sweep::new(trees, &self.known.holders));
        let whole = sweep.go_on(trees.proc(), &self.kinds, until);
        sweep.spent += began.elapsed();
        if whole {
            self.finish();
        }
    }

    /// Scans from the start, as far as time allows.
    pub(crate) fn look_now(&mut self, trees: &ProcessTrees, until: Instant) {
        if self.kinds.are_none() {
            return;
        }
        let began = Instant::now();
        let mut sweep = Sweep::new(trees, &self.known.holders);
        sweep.go_on(trees.proc(), &self.kinds, until);
        sweep.spent = began.elapsed();
        self.sweep = Some(sweep);
        self.finish();
    }

    fn finish(&mut self) {
        let Some(sweep) = self.sweep.take() else { return };
        self.known = sweep.found;
        self.rest_until = Some(Instant::now() + sweep.spent.saturating_mul(REST).min(LONGEST_REST));
    }

    pub(crate) fn looker(&self) -> Looker {
        self.kinds.looker
    }

    /// Whether a scan is in progress.
    pub(crate) fn is_looking(&self) -> bool {
        self.sweep.is_some()
    }

    /// Bytes of memory that descriptors hold: the last result, or the current one if it is higher.
    pub(crate) fn memory(&self) -> u64 {
        self.known.memory().max(self.sweep.as_ref().map_or(0, |sweep| sweep.found.memory()))
    }

    /// Those of one command, from the last scan.
    pub(crate) fn memory_of(&self, tag: u64) -> u64 {
        self.known.memory.get(&tag).copied().unwrap_or_default()
    }

    /// Bytes on disk that only descriptors hold.
    pub(crate) fn disk(&self) -> u64 {
        self.known.disk.max(self.sweep.as_ref().map_or(0, |sweep| sweep.found.disk))
    }
}

impl Kinds {
    fn are_none(&self) -> bool {
        self.memory.is_none() && self.disk.is_empty()
    }

    /// Whether a deleted file was in one of the directories. The kernel shows its path by the mount it was opened
    /// through, which a command cannot change.
    fn were_there(&self, link: &[u8]) -> bool {
        let is_below = |place: &Vec<u8>| link.strip_prefix(place.as_slice()).is_some_and(|rest| rest.starts_with(b"/"));
        self.places.iter().any(is_below)
    }
}

/// A look that is under way.
struct Sweep {
    /// Processes and their tags. Popped from the end.
    ahead: Vec<(i32, u64)>,
    table: Option<Table>,
    seen: HashSet<(u64, u64)>,
    found: DescriptorTally,
    spent: Duration,
}

/// The descriptor table of one process.
struct Table {
    pid: i32,
    tag: u64,
    /// Owner, who may read the table.
    owner: (u32, u32),
    dir: OwnedFd,
    numbers: Numbers,
}

/// How descriptor numbers are found.
#[derive(Clone, Copy)]
enum Numbers {
    Listed,
    /// By trying numbers: Landlock refuses to list a directory of `/proc`, but not to access its entries. The next
    /// number, and how many descriptors are left.
    Tried(u64, u64),
}

impl Sweep {
    fn new(trees: &ProcessTrees, first: &HashSet<i32>) -> Self {
        let mut ahead: Vec<_> = trees.members().collect();
        ahead.sort_by_key(|(pid, _)| first.contains(pid));
        Self { ahead, table: None, seen: HashSet::new(), found: DescriptorTally::default(), spent: Duration::ZERO }
    }

    /// Continues until everything is scanned or the time is over; `true` when everything is scanned.
    fn go_on(&mut self, proc: BorrowedFd<'_>, kinds: &Kinds, until: Instant) -> bool {
        let mut entries = Vec::with_capacity(PIECE);
        let whole = loop {
            let Some(mut table) = self.table.take().or_else(|| self.next(proc, kinds)) else { break true };
            kinds.looker.become_owner(table.owner);
            let more = match table.numbers {
                Numbers::Listed => self.read_some(&table, kinds, &mut entries),
                Numbers::Tried(next, left) => {
                    let rest = self.try_some(&table, kinds, (next, left));
                    table.numbers = rest.map_or(table.numbers, |(next, left)| Numbers::Tried(next, left));
                    rest.is_some()
                }
            };
            self.table = more.then_some(table);
            if Instant::now() >= until {
                break self.table.is_none() && self.ahead.is_empty();
            }
        };
        kinds.looker.be_oneself();
        whole
    }

    /// Opens the next table. A process that is not dumpable is skipped.
    fn next(&mut self, proc: BorrowedFd<'_>, kinds: &Kinds) -> Option<Table> {
        while let Some((pid, tag)) = self.ahead.pop() {
            let Some(owner) = owner_of(proc, &pid.to_string()) else { continue };
            kinds.looker.become_owner(owner);
            let opened = open_table(proc, &format!("{pid}/fd"), kinds.most).and_then(|(dir, numbers)| {
                let is_empty = rustix::fs::fstat(&dir)?.st_size == 0;
                let thread = if is_empty { other_thread(proc, pid) } else { None };
                thread.map_or(Ok((dir, numbers)), |thread| open_table(proc, &format!("{thread}/fd"), kinds.most))
            });
            if let Ok((dir, numbers)) = opened {
                return Some(Table { pid, tag, owner, dir, numbers });
            }
        }
        None
    }

    /// Reads one piece of a table; `false` at its end.
    fn read_some(&mut self, table: &Table, kinds: &Kinds, buffer: &mut Vec<u8>) -> bool {
        let mut entries = RawDir::new(&table.dir, buffer.spare_capacity_mut());
        let mut any = false;
        while let Some(Ok(entry)) = entries.next() {
            any = true;
            let is_closed = entry.file_type() == FileType::Symlink
                && matches!(self.add(table, kinds, entry.file_name()), Err(Errno::ACCESS));
            if is_closed {
                return false;
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        any
    }

    /// Tries some numbers; returns the next one and how many descriptors are left, or `None` at the end.
    fn try_some(&mut self, table: &Table, kinds: &Kinds, (next, mut left): (u64, u64)) -> Option<(u64, u64)> {
        let end = next.saturating_add(TRIES).min(kinds.most);
        for number in next..end {
            let name = CString::new(number.to_string()).ok()?;
            match self.add(table, kinds, &name) {
                Ok(()) => left = left.saturating_sub(1),
                Err(Errno::NOENT) => {}
                Err(_) => return None,
            }
            if left == 0 {
                return None;
            }
        }
        (end < kinds.most).then_some((end, left))
    }

    /// Counts the file behind a descriptor if nothing else shows it. An error means that there is no such descriptor,
    /// or that its process may not be inspected.
    ///
    /// The file is never opened, because a pipe would block, and is only queried if its link says that it was deleted:
    /// the server of another file system may never answer.
    fn add(&mut self, table: &Table, kinds: &Kinds, name: &CStr) -> rustix::io::Result<()> {
        let mut text = [MaybeUninit::<u8>::uninit(); 4096];
        let was_there = match rustix::fs::readlinkat_raw(&table.dir, name, &mut text) {
            Ok((text, _)) if !text.ends_with(DELETED) => return Ok(()),
            Ok((text, _)) => kinds.were_there(text),
            // A path can be longer than the kernel can show.
            Err(Errno::NAMETOOLONG) => true,
            Err(error) => return Err(error),
        };
        let asked = StatxFlags::TYPE | StatxFlags::NLINK | StatxFlags::INO | StatxFlags::BLOCKS;
        let stat = rustix::fs::statx(&table.dir, name, AtFlags::STATX_DONT_SYNC, asked)?;
        let device = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        let is_file = FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile;
        let in_memory = kinds.memory == Some(device);
        let on_disk = was_there && stat.stx_nlink == 0 && kinds.disk.contains(&device);
        if !is_file || !(in_memory || on_disk) || !self.seen.insert((device, stat.stx_ino)) {
            return Ok(());
        }
        let bytes = if self.seen.len() > MOST_SEEN { u64::MAX } else { stat.stx_blocks.saturating_mul(512).max(LEAST) };
        let sum = if in_memory { self.found.memory.entry(table.tag).or_default() } else { &mut self.found.disk };
        *sum = sum.saturating_add(bytes);
        self.found.holders.insert(table.pid);
        Ok(())
    }
}

/// Opens a descriptor table, for listing if that is allowed.
fn open_table(proc: BorrowedFd<'_>, path: &str, most: u64) -> rustix::io::Result<(OwnedFd, Numbers)> {
    match rustix::fs::openat(proc, path, TABLE | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let dir = rustix::fs::openat(proc, path, TABLE | OFlags::PATH, Mode::empty())?;
            // Kernels with a Landlock version recent enough for this level report the number of descriptors as the
            // size.
            let count = rustix::fs::fstat(&dir)?.st_size;
            Ok((dir, Numbers::Tried(0, u64::try_from(count).unwrap_or_default().min(most))))
        }
        opened => Ok((opened?, Numbers::Listed)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        io::Write,
        os::fd::AsFd,
        path::Path,
    };

    use super::*;

    const TAG: u64 = 7;

    fn kinds(dir: &Path) -> Kinds {
        let disk = vec![rustix::fs::stat(dir).unwrap().st_dev];
        let places = vec![dir.as_os_str().as_encoded_bytes().to_vec()];
        Descriptors::new(disk, places, Looker::Own, 4096).with_memory().kinds
    }

    /// A scan of this process, by these numbers or by listing.
    fn sweep(proc: &OwnedFd, numbers: Option<Numbers>) -> Sweep {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let dir = rustix::fs::openat(proc, format!("{pid}/fd"), TABLE | OFlags::RDONLY, Mode::empty()).unwrap();
        let table = numbers.map(|numbers| Table { pid, tag: TAG, owner: (0, 0), dir, numbers });
        let ahead = if table.is_some() { Vec::new() } else { vec![(pid, TAG)] };
        Sweep { ahead, table, seen: HashSet::new(), found: DescriptorTally::default(), spent: Duration::ZERO }
    }

    fn proc() -> OwnedFd {
        rustix::fs::open("/proc", TABLE | OFlags::RDONLY, Mode::empty()).unwrap()
    }

    #[test]
    fn what_only_descriptors_hold_is_found_once_by_list_and_by_number() {
        let dir = std::env::temp_dir().join(format!("sandbar-descriptors-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = |name: &str| {
            let mut file = File::create(dir.join(name)).unwrap();
            file.write_all(&vec![1; 3 << 20]).unwrap();
            file
        };
        let (_stays, deleted) = (file("stays"), file("deleted"));
        fs::remove_file(dir.join("deleted")).unwrap();
        let mut memory = File::from(rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap());
        memory.write_all(&vec![1; 5 << 20]).unwrap();
        let _copies = (deleted.try_clone().unwrap(), memory.try_clone().unwrap());
        let (_reader, _writer) = rustix::pipe::pipe().unwrap();
        for numbers in [None, Some(Numbers::Tried(0, 4096))] {
            let (proc, kinds) = (proc(), kinds(&dir));
            let mut sweep = sweep(&proc, numbers);
            assert!(sweep.go_on(proc.as_fd(), &kinds, Instant::now() + Duration::from_secs(60)));
            assert!((3 << 20..6 << 20).contains(&sweep.found.disk), "{}", sweep.found.disk);
            assert!((5 << 20..10 << 20).contains(&sweep.found.memory[&TAG]), "{:?}", sweep.found.memory);
            assert_eq!(sweep.found.holders.len(), 1);
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_look_in_pieces_is_the_whole_look() {
        let memory: Vec<_> = (0..1000)
            .map(|_| {
                let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
                rustix::io::write(&file, b"x").unwrap();
                file
            })
            .collect();
        for numbers in [None, Some(Numbers::Tried(0, 4096))] {
            let (proc, kinds) = (proc(), kinds(&std::env::temp_dir()));
            let (mut sweep, mut turns) = (sweep(&proc, numbers), 0);
            while !sweep.go_on(proc.as_fd(), &kinds, Instant::now()) {
                turns += 1;
            }
            assert!(turns > 1, "{turns}");
            assert!(sweep.found.memory() >= 4096 * memory.len() as u64, "{}", sweep.found.memory());
        }
    }
}
