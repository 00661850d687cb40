//! A machine with a file tree in memory, for tests of code that uses machines, and as the reference for the meaning of file
//! operations. It runs no commands.

mod tree;

use std::{collections::HashMap, ffi::OsString, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use parking_lot::{Mutex, MutexGuard};

use self::tree::{Content, Tree, WalkItem};
use crate::{
    ByteStream, Command, DirEntry, Features, Files, Hashes, Isolation, Machine, MachineError, MachineHandle,
    MachinePath, MachineSpec, Process, Result, SandboxClient, ScanOptions, Support, Supports, Target, TreeIndex,
    collect, once,
    tar::{self, Event, Kind, Member, Reader},
    tarcheck::Rules,
};

/// Maximum size of one file.
const SIZE_LIMIT: usize = 256 << 20;

/// Limits and ports are accepted: no command runs that could exceed a limit or listen on a port.
const SUPPORTS: Supports = Supports::new(
    Isolation::Provider,
    &[
        Support::NetworkOff,
        Support::NetworkOpen,
        Support::NetworkHost,
        Support::Ports,
        Support::Detached,
        Support::Memory,
        Support::Cpus,
        Support::Disk,
        Support::Pids,
        Support::OpenFiles,
        Support::TmpSize,
    ],
);

/// Files, directories and symbolic links in memory. All files belong to uid 0, permission bits are stored but not enforced, and
/// each change has a time one nanosecond after the previous change.
#[derive(Clone, Debug)]
pub struct MemoryMachine {
    name: u64,
    features: Arc<Features>,
    tree: Arc<Mutex<Option<Tree>>>,
}

impl Default for MemoryMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMachine {
    /// A machine with an empty workspace.
    #[must_use]
    pub fn new() -> Self {
        Self::named(0)
    }

    fn named(name: u64) -> Self {
        // No program runs, and the tree contains no file of the host.
        let features = Arc::new(Features::new(Isolation::Provider, MachinePath::workspace()));
        Self { name, features, tree: Arc::new(Mutex::new(Some(Tree::new()))) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tree>> {
        // A panic cannot leave the tree inconsistent.
        self.tree.lock()
    }

    /// Calls a closure with the tree, unless the machine was stopped.
    fn with<T>(&self, work: impl FnOnce(&mut Tree) -> Result<T>) -> Result<T> {
        work(self.lock().as_mut().ok_or(MachineError::Gone)?)
    }
}

#[async_trait]
impl Machine for MemoryMachine {
    fn handle(&self) -> MachineHandle {
        MachineHandle { client: "memory".to_owned(), state: self.name.into() }
    }

    fn features(&self) -> &Features {
        &self.features
    }

    async fn spawn(&self, _command: Command) -> Result<Process> {
        self.with(|_tree| Err(MachineError::Unsupported("run commands")))
    }

    async fn read(&self, target: &Target) -> Result<ByteStream> {
        self.with(|tree| tree.read(target)).map(once)
    }

    async fn write(&self, target: &Target, data: ByteStream) -> Result<()> {
        // A write that is refused does not read the data.
        self.with(|tree| {
            no_group(target)?;
            tree.check_write(target)
        })?;
        let bytes = collect(data, SIZE_LIMIT).await?;
        self.with(|tree| tree.write(target, bytes))
    }

    async fn stop(&self) -> Result<()> {
        *self.lock() = None;
        Ok(())
    }

    fn files(&self) -> Option<&dyn Files> {
        Some(self)
    }
}

#[async_trait]
impl Files for MemoryMachine {
    async fn stat(&self, target: &Target) -> Result<Option<DirEntry>> {
        self.with(|tree| tree.stat(target))
    }

    async fn list(&self, target: &Target) -> Result<Vec<DirEntry>> {
        self.with(|tree| tree.list(target))
    }

    async fn make_dir(&self, target: &Target) -> Result<()> {
        self.with(|tree| {
            no_group(target)?;
            tree.make_dir(target)
        })
    }

    async fn remove(&self, target: &Target) -> Result<()> {
        self.with(|tree| tree.remove(target))
    }

    async fn rename(&self, from: &Target, to: &Target) -> Result<()> {
        self.with(|tree| tree.rename(from, to))
    }

    async fn scan(&self, root: &Target, options: &ScanOptions) -> Result<TreeIndex> {
        let found = self.with(|tree| tree.walk(root, &options.skip))?;
        let hash = |content: &Content| match (options.hashes, content) {
            (Hashes::Sha256, Content::File(bytes)) => Some(tree::sha256(bytes)),
            _ => None,
        };
        let entries = found.into_iter().map(|item| {
            let sha256 = hash(&item.node.content);
            item.into_entry(sha256)
        });
        Ok(TreeIndex { entries: entries.collect() })
    }

    async fn pack(&self, root: &Target, skip: &[OsString]) -> Result<ByteStream> {
        let found = self.with(|tree| tree.walk(root, skip))?;
        let pieces = found.into_iter().flat_map(pieces).chain([tar::end()]);
        Ok(Box::pin(stream::iter(pieces.map(Ok).collect::<Vec<_>>())))
    }

    async fn unpack(&self, root: &Target, mut tar: ByteStream) -> Result<()> {
        self.make_dir(root).await?;
        let (mut reader, mut rules) = (Reader::new(), Rules::default());
        let mut current: Option<(Member, Vec<u8>)> = None;
        while let Some(piece) = tar.next().await {
            for event in reader.push(&piece?)? {
                match (event, &mut current) {
                    (Event::Member(member), _) => current = rules.check(member)?.map(|member| (member, Vec::new())),
                    (Event::Data(data), Some((_, content))) => append(content, &data)?,
                    (Event::Data(_), None) => {}
                    (Event::Done, _) => {
                        let Some((member, content)) = current.take() else { continue };
                        self.with(|tree| tree.place(root, &member, content.into()))?;
                    }
                }
            }
        }
        reader.finish()
    }
}

fn no_group(target: &Target) -> Result<()> {
    target.group.as_ref().map_or(Ok(()), |_| Err(MachineError::Unsupported("give what is made to a group")))
}

fn append(content: &mut Vec<u8>, data: &[u8]) -> Result<()> {
    if content.len() + data.len() > SIZE_LIMIT {
        let reason = format!("a file of more than {SIZE_LIMIT} bytes");
        return Err(MachineError::Exhausted { what: "memory".to_owned(), reason });
    }
    content.extend_from_slice(data);
    Ok(())
}

/// The blocks of one archive member.
fn pieces(item: WalkItem) -> Vec<Bytes> {
    let (kind, link, content) = match item.node.content {
        Content::Dir(_) => (Kind::Dir, OsString::new(), Bytes::new()),
        Content::File(bytes) => (Kind::File, OsString::new(), bytes),
        Content::Symlink(to) => (Kind::Symlink, to, Bytes::new()),
    };
    let mut member = Member::new(kind, item.path.as_encoded_bytes(), item.node.mode);
    member.link = link.into_encoded_bytes();
    member.size = content.len() as u64;
    member.modified = u64::try_from(item.node.modified_ns / 1_000_000_000).unwrap_or(0);
    vec![member.encode(), content, Bytes::from(vec![0; tar::padding(member.size)])]
}

/// A client for [`MemoryMachine`]s. A machine exists until it is stopped or deleted, or all clones of the client are dropped,
/// independent of its [`Lifetime`](crate::Lifetime).
#[derive(Clone, Debug, Default)]
pub struct MemoryClient {
    machines: Arc<Mutex<HashMap<u64, MemoryMachine>>>,
}

impl MemoryClient {
    /// A client without machines.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, MemoryMachine>> {
        self.machines.lock()
    }
}

#[async_trait]
impl SandboxClient for MemoryClient {
    fn id(&self) -> &'static str {
        "memory"
    }

    async fn create(&self, spec: MachineSpec) -> Result<Arc<dyn Machine>> {
        spec.refuse_unless(&SUPPORTS)?;
        let mut machines = self.lock();
        let name = machines.keys().max().map_or(1, |last| last + 1);
        let machine = MemoryMachine::named(name);
        machines.insert(name, machine.clone());
        Ok(Arc::new(machine))
    }

    async fn attach(&self, handle: &MachineHandle) -> Result<Option<Arc<dyn Machine>>> {
        let Some(name) = handle.state.as_u64() else { return Ok(None) };
        let found = self.lock().get(&name).filter(|machine| machine.lock().is_some()).cloned();
        Ok(found.map(|machine| Arc::new(machine) as Arc<dyn Machine>))
    }

    async fn delete(&self, handle: &MachineHandle) -> Result<()> {
        let found = handle.state.as_u64().and_then(|name| self.lock().remove(&name));
        match found {
            Some(machine) => machine.stop().await,
            None => Ok(()),
        }
    }
}
