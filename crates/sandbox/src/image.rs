//! Prepares images of the workspace for models.
//!
//! The first bytes of a file decide its format, never its name. PNG, JPEG and WebP reach the model unchanged if they fit;
//! other formats are converted to PNG. Every image is decoded first, with limits: a few bytes can claim to be a terabyte of
//! pixels.

mod cache;
mod decode;
mod sniff;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use base64::Engine;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use parking_lot::Mutex;
use sandbar_machine::{EntryKind, Machine, MachineError, Target};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::timeout};

use self::{cache::Cache, decode::DecodeError, sniff::Kind};
use crate::{Intent, Paths, Result};

/// Largest file that is read, and largest image that is returned.
const SIZE_LIMIT: usize = 10 << 20;

/// Timeout for reading, and for decoding.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Number of images decoded at once. A decoding that has timed out still counts until it ends.
const DECODERS: usize = 2;

/// Resolution of an image for a model.
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
    /// Path of the image.
    pub path: String,
    /// Resolution.
    #[serde(default)]
    pub detail: Detail,
}

impl ViewImageArgs {
    /// An image at the default resolution.
    pub fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), detail: Detail::High }
    }

    /// JSON schema of the arguments.
    #[must_use]
    pub fn schema() -> Value {
        json!({"type": "object", "required": ["path"], "properties": {"path": {"type": "string", "minLength": 1}}})
    }
}

/// Format of an [`ImageView`].
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

/// An image that a model can view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageView {
    /// Format of `bytes`.
    pub format: ImageFormat,
    /// The encoded image.
    pub bytes: Bytes,
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
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

/// Why an image cannot be viewed, as a message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRefusal {
    /// The path as the model wrote it.
    pub path: String,
    /// The reason.
    pub reason: RefusalReason,
}

/// Why an image cannot be viewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The path does not exist.
    NotFound,
    /// The path is a directory, a device or a FIFO.
    NotAFile,
    /// The machine cannot read it; holds the machine's error code.
    Unreadable(&'static str),
    /// The file, or the image made from it, is larger than allowed.
    TooLarge,
    /// The image has more pixels than allowed.
    TooManyPixels,
    /// Decoding took too long.
    TooSlow,
    /// The file is an SVG drawing, not a bitmap.
    Svg,
    /// The format is not known, or the file is broken.
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

/// Result of viewing an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageOutcome {
    /// The image.
    Image(ImageView),
    /// A message for the model instead.
    Refused(ImageRefusal),
}

/// Reads images, and caches the last few.
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
    /// A viewer with an empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads an image from a machine and prepares it for a model. A problem with the file is an outcome for the model; only
    /// a path that leaves the workspace is an error.
    ///
    /// # Errors
    /// `invalid_manifest_path` if the path is outside of the workspace and of every grant.
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
            let bytes = timeout(TIMEOUT, read(machine, &target)).await;
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
        if let Some(known) = self.cache.lock().get(&key) {
            return Ok(known);
        }
        let detail = args.detail;
        let decoded = async {
            let permit = Arc::clone(&self.decoders).acquire_owned().await.ok();
            let work = move || {
                let image = decode::make_ready(bytes, kind, detail);
                drop(permit);
                image
            };
            tokio::task::spawn_blocking(work).await.unwrap_or(Err(DecodeError::Broken))
        };
        let image = timeout(TIMEOUT, decoded).await.map_err(|_elapsed| RefusalReason::TooSlow)?;
        let image = image.map_err(|error| match error {
            DecodeError::Pixels => RefusalReason::TooManyPixels,
            DecodeError::Broken => RefusalReason::Unsupported,
        })?;
        if image.bytes.len() > SIZE_LIMIT {
            return Err(RefusalReason::TooLarge);
        }
        self.cache.lock().put(key, image.clone());
        Ok(image)
    }
}

/// Content of the file. Anything but a file or a link is refused before it is opened; the machine refuses a link to
/// anything but a file.
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

/// Only the code of the error: its text could contain paths of the host.
fn refused(error: MachineError) -> RefusalReason {
    match error {
        MachineError::NotFound(_) => RefusalReason::NotFound,
        other => RefusalReason::Unreadable(other.code()),
    }
}
