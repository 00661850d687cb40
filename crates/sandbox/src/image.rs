//! Images of the workspace, made fit for a model to look at.
//!
//! What a file is is read from its first bytes, never from its name. PNG, JPEG and WebP reach the model unchanged while
//! they fit; everything else that can be decoded becomes a PNG. Nothing is passed on that does not decode, and
//! decoding has limits of its own: a few bytes can claim to be a terabyte of pixels.

mod cache;
mod decode;
mod sniff;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use base64::Engine;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use sandbar_machine::{EntryKind, Machine, MachineError, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use self::{cache::Cache, decode::Trouble, sniff::Kind};
use crate::{Intent, Paths, Result};

/// The largest file that is looked at, and the largest image that is returned.
const SIZE_LIMIT: usize = 10 << 20;

/// How long reading and decoding may take, each.
const PATIENCE: Duration = Duration::from_secs(30);

/// How many images are decoded at once. One that takes too long keeps its place until it is done.
const DECODERS: usize = 2;

/// How much of an image a model gets to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// At most 2,048 pixels in each direction.
    #[default]
    High,
    /// Every pixel.
    Original,
}

/// The arguments of `view_image`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewImageArgs {
    /// Where the image is.
    pub path: String,
    /// How much of it is wanted.
    #[serde(default)]
    pub detail: Detail,
}

impl ViewImageArgs {
    /// An image at the usual detail.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), detail: Detail::High }
    }

    /// The JSON schema a model is given.
    #[must_use]
    pub fn schema() -> Value {
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string", "minLength": 1}}})
    }
}

/// What the bytes of an [`ImageView`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFormat {
    /// `image/png`
    Png,
    /// `image/jpeg`
    Jpeg,
    /// `image/webp`
    WebP,
}

impl ImageFormat {
    /// The media type.
    #[must_use]
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::WebP => "image/webp",
        }
    }
}

/// An image that a model can look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageView {
    /// What `bytes` are.
    pub format: ImageFormat,
    /// The encoded image.
    pub bytes: Bytes,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
}

impl ImageView {
    /// The whole image as a `data:` URL.
    #[must_use]
    pub fn data_url(&self) -> String {
        let mut url = format!("data:{};base64,", self.format.mime());
        base64::prelude::BASE64_STANDARD.encode_string(&self.bytes, &mut url);
        url
    }
}

/// Why there is nothing to look at, in words for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRefusal {
    /// The path as the model wrote it.
    pub path: String,
    /// What is wrong with it.
    pub reason: RefusalReason,
}

/// Why there is nothing to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Nothing is there.
    NotFound,
    /// A directory, a device, a FIFO.
    NotAFile,
    /// The machine does not give it out; its own code for that.
    Unreadable(&'static str),
    /// The file, or the image made from it, is larger than allowed.
    TooLarge,
    /// It has more pixels than allowed.
    TooManyPixels,
    /// It took too long to decode.
    TooSlow,
    /// It is a drawing, not pixels.
    Svg,
    /// It is nothing known, or broken.
    Unsupported,
}

impl fmt::Display for ImageRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match self.reason {
            RefusalReason::NotFound => write!(f, "image path `{path}` was not found"),
            RefusalReason::NotAFile => write!(f, "image path `{path}` is not a file"),
            RefusalReason::Unreadable(code) => write!(f, "unable to read image at `{path}`: {code}"),
            RefusalReason::TooLarge => {
                write!(f, "image path `{path}` is too large: the limit is 10MB; resize it first")
            }
            RefusalReason::TooManyPixels => {
                let most = decode::DIMENSION_LIMIT;
                write!(f, "image path `{path}` has too many pixels: at most {most} in each direction; resize it first")
            }
            RefusalReason::TooSlow => {
                write!(f, "unable to read image at `{path}`: decoding takes too long; resize it first")
            }
            RefusalReason::Svg => {
                write!(
                    f,
                    "image path `{path}` is an SVG, which models cannot view; convert it to PNG, or read it as text"
                )
            }
            RefusalReason::Unsupported => write!(f, "image path `{path}` is not a supported image file"),
        }
    }
}

/// What looking at an image leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageOutcome {
    /// Something to look at.
    Image(ImageView),
    /// Something to read instead.
    Refused(ImageRefusal),
}

/// Looks at images, and remembers the last few it made ready.
#[derive(Debug)]
pub struct ImageViewer {
    cache: Mutex<Cache>,
    decoders: Arc<Semaphore>,
}

impl Default for ImageViewer {
    fn default() -> Self {
        Self { cache: Mutex::default(), decoders: Arc::new(Semaphore::new(DECODERS)) }
    }
}

impl ImageViewer {
    /// A viewer that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads an image from a machine and makes it ready for a model. What goes wrong with the file is an outcome for the
    /// model to read; only a path that leaves the workspace is an error.
    ///
    /// # Errors
    /// `invalid_manifest_path` when the path is outside of the workspace and of every grant.
    pub async fn view(
        &self,
        machine: &dyn Machine,
        paths: &Paths,
        args: &ViewImageArgs,
        user: Option<&str>,
    ) -> Result<ImageOutcome> {
        let mut target = paths.target(&args.path, Intent::Read)?;
        target.user = user.map(str::to_owned);
        let view = async {
            let bytes = timeout(PATIENCE, read(machine, &target)).await;
            let bytes = bytes.map_err(|_elapsed| RefusalReason::Unreadable("timeout"))??;
            self.make_ready(bytes, args).await
        };
        Ok(match view.await {
            Ok(image) => ImageOutcome::Image(image),
            Err(reason) => ImageOutcome::Refused(ImageRefusal { path: args.path.clone(), reason }),
        })
    }

    async fn make_ready(&self, bytes: Bytes, args: &ViewImageArgs) -> Result<ImageView, RefusalReason> {
        let kind = match sniff::kind(&bytes) {
            Some(Kind::Svg) => return Err(RefusalReason::Svg),
            Some(Kind::Pixels(kind)) => kind,
            None if sniff::is_named_svg(&args.path) => return Err(RefusalReason::Svg),
            None => return Err(RefusalReason::Unsupported),
        };
        let key = cache::key(&bytes, args.detail);
        if let Some(known) = self.cache.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(known);
        }
        let detail = args.detail;
        let decoded = async {
            let place = Arc::clone(&self.decoders).acquire_owned().await.ok();
            let work = move || {
                let image = decode::make_ready(bytes, kind, detail);
                drop(place);
                image
            };
            tokio::task::spawn_blocking(work).await.unwrap_or(Err(Trouble::Broken))
        };
        let image = timeout(PATIENCE, decoded).await.map_err(|_elapsed| RefusalReason::TooSlow)?;
        let image = image.map_err(|trouble| match trouble {
            Trouble::Pixels => RefusalReason::TooManyPixels,
            Trouble::Broken => RefusalReason::Unsupported,
        })?;
        if image.bytes.len() > SIZE_LIMIT {
            return Err(RefusalReason::TooLarge);
        }
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).put(key, image.clone());
        Ok(image)
    }
}

/// The file's bytes. What is no file is refused before it is opened; the machine refuses what a link turns out to be.
async fn read(machine: &dyn Machine, target: &Target) -> Result<Bytes, RefusalReason> {
    let entry = machine.stat(target).await.map_err(refused)?.ok_or(RefusalReason::NotFound)?;
    match entry.kind {
        EntryKind::Dir | EntryKind::Other => return Err(RefusalReason::NotAFile),
        EntryKind::File if entry.size > SIZE_LIMIT as u64 => return Err(RefusalReason::TooLarge),
        EntryKind::File | EntryKind::Symlink => {}
    }
    let mut pieces = machine.read(target).await.map_err(refused)?;
    let mut bytes = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(refused)?;
        if bytes.len() + piece.len() > SIZE_LIMIT {
            return Err(RefusalReason::TooLarge);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Only the kind of error: its text could name places of the host.
fn refused(error: MachineError) -> RefusalReason {
    match error {
        MachineError::NotFound(_) => RefusalReason::NotFound,
        other => RefusalReason::Unreadable(other.code()),
    }
}
