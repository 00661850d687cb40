//! An archive that is fetched and unpacked when the session starts.

use std::fmt;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::{
    Attributes, Credential, Kind, Shape,
    remote_file::{fetch_faults, fetched, redact_headers},
    url,
};
use crate::{
    WorkspacePath,
    archive::Format,
    manifest::{At, Fault},
};

/// An archive that is fetched over HTTP and unpacked.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteDir {
    /// Fields that every entry has.
    #[serde(skip)]
    pub attributes: Attributes,
    /// Address of the archive.
    pub url: String,
    /// Request headers by name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub headers: IndexMap<String, Credential>,
    /// Expected SHA-256 of the archive, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Format of the archive; by default, the ending of the address decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Format>,
    /// Number of leading directories removed from every name.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strip_components: u32,
    /// Directory of the archive that becomes the entry, after names were stripped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subpath: Option<String>,
    /// Limit of the archive before it is unpacked, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl RemoteDir {
    /// The archive at this address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            attributes: Attributes::of(Shape::Directory),
            url: url.into(),
            headers: IndexMap::new(),
            sha256: None,
            format: None,
            strip_components: 0,
            subpath: None,
            max_bytes: None,
        }
    }

    /// The same in this format, whatever its address ends in.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = Some(format);
        self
    }

    /// The same with this many leading directories removed from every name.
    #[must_use]
    pub fn strip_components(mut self, count: u32) -> Self {
        self.strip_components = count;
        self
    }

    /// The same, but only this directory of the archive becomes the entry.
    #[must_use]
    pub fn subpath(mut self, directory: impl Into<String>) -> Self {
        self.subpath = Some(directory.into());
        self
    }

    /// The given format, or the one that the address ends in; `None` if neither is known.
    #[must_use]
    pub fn packed_as(&self) -> Option<Format> {
        let path = self.url.split(['?', '#']).next().unwrap_or_default();
        self.format.or_else(|| Format::from_name(path))
    }
}

fetched!(RemoteDir);

/// Leaves out the secret parts of the address.
impl fmt::Debug for RemoteDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDir")
            .field("attributes", &self.attributes)
            .field("url", &self.shown_url())
            .field("headers", &self.headers)
            .field("sha256", &self.sha256)
            .field("format", &self.format)
            .field("strip_components", &self.strip_components)
            .field("subpath", &self.subpath)
            .field("max_bytes", &self.max_bytes)
            .finish()
    }
}

impl Kind for RemoteDir {
    const SHAPE: Shape = Shape::Directory;

    fn faults(&self, at: &At<'_>) -> Vec<Fault> {
        let mut faults = fetch_faults(at, &self.url, &self.headers, self.sha256.as_deref());
        if self.packed_as().is_none() {
            let reason = "is not given and the address does not end in it; known are tar, tar.gz, tar.zst and zip";
            faults.push(Fault::invalid(&at.field("format"), reason));
        }
        if let Some(subpath) = self.subpath.as_deref().filter(|path| !matches!(*path, "" | "."))
            && let Err(error) = WorkspacePath::new(subpath)
        {
            faults.push(Fault::invalid(&at.field("subpath"), error.to_string()));
        }
        faults
    }

    fn redact(&mut self) -> bool {
        url::redact(&mut self.url) | redact_headers(&mut self.headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_given_or_read_from_the_address() {
        let table = [
            ("https://x.org/a.tar", Some(Format::Tar)),
            ("https://x.org/a.TAR.GZ?x=y", Some(Format::TarGz)),
            ("https://x.org/a.tgz", Some(Format::TarGz)),
            ("https://x.org/a.tar.zst#x", Some(Format::TarZst)),
            ("https://x.org/a.zip", Some(Format::Zip)),
            ("https://x.org/a.tar.xz", None),
            ("https://x.org/a?b.zip", None),
        ];
        for (url, format) in table {
            let entry = RemoteDir::new(url);
            assert_eq!(entry.packed_as(), format, "{url}");
            assert_eq!(entry.faults(&At::top("x")).is_empty(), format.is_some());
            assert!(entry.format(Format::Zip).faults(&At::top("x")).is_empty());
        }
    }

    #[test]
    fn a_subpath_stays_inside() {
        for (subpath, fine) in [("a/b", true), (".", true), ("../a", false), ("/a", false), ("a\\b", false)] {
            let entry = RemoteDir::new("https://x.org/a.zip").subpath(subpath);
            assert_eq!(entry.faults(&At::top("x")).is_empty(), fine, "{subpath}");
        }
    }
}
