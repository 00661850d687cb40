//! An image that the engine builds from a directory with a Dockerfile.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    io::Read,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use bollard::{body_try_stream, query_parameters::BuildImageOptions};
use bytes::Bytes;
use futures::stream;
use sandbar_machine::{
    MachineError, Result,
    tar::{self, Kind, Member},
};
use tokio::sync::mpsc::{self, Sender};

use super::{Docker, Progress, ignore::Ignore, image::listen};

const CHUNK: usize = 256 << 10;

/// How an image is built.
#[derive(Clone, Debug)]
pub struct Build {
    directory: PathBuf,
    dockerfile: String,
    args: BTreeMap<String, String>,
    target: String,
    tag: Option<String>,
}

impl Build {
    /// Builds from this directory, with its `Dockerfile`, and without the files that its `.dockerignore` excludes.
    /// Symbolic links are sent as links.
    #[must_use]
    pub fn from(directory: impl Into<PathBuf>) -> Self {
        let (directory, dockerfile) = (directory.into(), "Dockerfile".to_owned());
        Self { directory, dockerfile, args: BTreeMap::new(), target: String::new(), tag: None }
    }

    /// Path of the Dockerfile, relative to the directory.
    #[must_use]
    pub fn dockerfile(mut self, path: impl Into<String>) -> Self {
        self.dockerfile = path.into();
        self
    }

    /// A value for an `ARG` of the Dockerfile. It is visible in the image's history: do not pass secrets.
    #[must_use]
    pub fn arg(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.args.insert(name.into(), value.into());
        self
    }

    /// The stage to stop at.
    #[must_use]
    pub fn target(mut self, stage: impl Into<String>) -> Self {
        self.target = stage.into();
        self
    }

    /// A name for the image, in addition to its id.
    #[must_use]
    pub fn tag(mut self, name: impl Into<String>) -> Self {
        self.tag = Some(name.into());
        self
    }

    /// Builds the image and returns its id.
    pub(super) async fn run(&self, client: &Docker, docker: &bollard::Docker) -> Result<String> {
        if !self.directory.join(&self.dockerfile).is_file() {
            let what = format!("dockerfile {}", self.directory.join(&self.dockerfile).display());
            return Err(MachineError::invalid(what, "is not a file"));
        }
        let options = BuildImageOptions {
            dockerfile: self.dockerfile.clone(),
            t: self.tag.clone(),
            rm: true,
            forcerm: true,
            buildargs: Some(self.args.clone().into_iter().collect::<HashMap<_, _>>()),
            platform: client.options.platform.clone().unwrap_or_default(),
            target: self.target.clone(),
            ..BuildImageOptions::default()
        };
        let (send, receive) = mpsc::channel(8);
        let (directory, dockerfile) = (self.directory.clone(), self.dockerfile.clone());
        // Ends with the archive, or when the engine no longer reads it.
        tokio::task::spawn_blocking(move || {
            let packed = Ignore::read(&directory, &dockerfile).and_then(|ignore| pack(&directory, &ignore, &send));
            if let Err(error) = packed {
                let _engine_gone = send.blocking_send(Err(error));
            }
        });
        let body = stream::unfold(receive, |mut receive| async move { Some((receive.recv().await?, receive)) });
        let mut id = None;
        let progress = docker.build_image(options, None, Some(body_try_stream(body)));
        listen(&client.engine, "build the image", progress, |info| {
            if let Some(status) = info.stream.or(info.status) {
                client.report_progress(&Progress { layer: info.id.unwrap_or_default(), status, bytes: None });
            }
            id = info.aux.and_then(|aux| aux.id).or(id.take());
        })
        .await?;
        id.ok_or_else(|| client.engine.failed("build the image", "it named no image"))
    }
}

type Sending = Sender<io::Result<Bytes>>;

/// Sends a directory as an archive without following symbolic links.
fn pack(directory: &Path, ignore: &Ignore, to: &Sending) -> io::Result<()> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(relative) = waiting.pop() {
        let mut entries = fs::read_dir(directory.join(&relative))?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (inside, found) = (relative.join(entry.file_name()), entry.metadata()?);
            let kind = match found.file_type() {
                kind if kind.is_dir() => Kind::Dir,
                kind if kind.is_file() => Kind::File,
                kind if kind.is_symlink() => Kind::Symlink,
                // Sockets and devices have no meaning on the engine.
                _ => continue,
            };
            if ignore.leaves_out(&inside) {
                if kind == Kind::Dir && ignore.keeps_below(&inside) {
                    waiting.push(inside);
                }
                continue;
            }
            let mut member = Member::new(kind, inside.as_os_str().as_bytes(), found.mode() & 0o7777);
            member.modified = u64::try_from(found.mtime()).unwrap_or_default();
            match kind {
                Kind::Symlink => member.link = fs::read_link(entry.path())?.as_os_str().as_bytes().to_vec(),
                Kind::File => member.size = found.len(),
                _ => waiting.push(inside),
            }
            put(to, member.encode())?;
            if kind == Kind::File {
                contents(&entry.path(), member.size, to)?;
            }
        }
    }
    put(to, tar::end())
}

/// Sends exactly as many bytes as announced, even if the file changes meanwhile.
fn contents(path: &Path, size: u64, to: &Sending) -> io::Result<()> {
    let mut file = fs::File::open(path)?.take(size);
    let mut left = size;
    while left > 0 {
        let mut chunk = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        let count = file.read(&mut chunk)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{} became shorter", path.display())));
        }
        chunk.truncate(count);
        left -= count as u64;
        put(to, chunk.into())?;
    }
    put(to, vec![0; tar::padding(size)].into())
}

fn put(to: &Sending, bytes: Bytes) -> io::Result<()> {
    to.blocking_send(Ok(bytes)).map_err(|_gone| io::ErrorKind::BrokenPipe.into())
}
