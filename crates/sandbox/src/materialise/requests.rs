//! Turns entries into requests to the network.

use sandbar_machine::Sha256;

use crate::{
    Credential, GitRepo, RemoteDir, RemoteFile, Result, SandboxError, Secret, SecretStore,
    archive::Format,
    fetch::{GitRequest, HttpRequest},
};

pub(super) fn repository(entry: &GitRepo, auth: Option<Secret>) -> GitRequest {
    GitRequest {
        reference: entry.git_ref.clone(),
        depth: (entry.depth > 0).then_some(entry.depth),
        sparse: entry.sparse.clone(),
        subpath: entry.inner_path().map(str::to_owned),
        submodules: entry.submodules,
        auth,
        ..GitRequest::new(entry.clone_url())
    }
}

pub(super) fn file(entry: &RemoteFile, secrets: &SecretStore) -> Result<HttpRequest> {
    request(&entry.url, entry.headers.iter(), (entry.sha256.as_deref(), entry.max_bytes), secrets)
}

pub(super) fn archive(entry: &RemoteDir, secrets: &SecretStore) -> Result<HttpRequest> {
    request(&entry.url, entry.headers.iter(), (entry.sha256.as_deref(), entry.max_bytes), secrets)
}

pub(super) fn format(entry: &RemoteDir) -> Result<Format> {
    entry.packed_as().ok_or_else(|| SandboxError::invalid_compression_scheme(entry.shown_url(), "unknown"))
}

fn request<'a>(
    url: &str,
    headers: impl Iterator<Item = (&'a String, &'a Credential)>,
    expected: (Option<&str>, Option<u64>),
    secrets: &SecretStore,
) -> Result<HttpRequest> {
    let mut request = HttpRequest::new(url);
    for (name, value) in headers {
        request = request.header(name, value.resolve(secrets)?);
    }
    let (sha256, max_bytes) = expected;
    request.sha256 = sha256.and_then(digest);
    request.max_bytes = max_bytes.unwrap_or(request.max_bytes);
    Ok(request)
}

/// A digest from its 64 hexadecimal digits. The manifest has checked them.
fn digest(digits: &str) -> Option<Sha256> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(Sha256(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_become_a_digest() {
        let digits = "00ff".repeat(16);
        assert_eq!(digest(&digits).unwrap().to_string(), digits);
        assert_eq!(digest("00"), None);
        assert_eq!(digest(&"é".repeat(32)), None);
    }

    #[test]
    fn a_repository_request_has_the_fields_of_its_entry() {
        let request = repository(&GitRepo::new("owner/name").at("main").subpath("."), Some(Secret::new("x")));
        assert_eq!(request.url, "https://github.com/owner/name.git");
        assert_eq!((request.reference.as_deref(), request.depth, request.subpath), (Some("main"), Some(1), None));
    }

    #[test]
    fn secrets_in_headers_are_looked_up() {
        let entry =
            RemoteFile::new("https://example.org/x").header("Authorization", Credential::prefixed("Bearer ", "T"));
        assert_eq!(file(&entry, &SecretStore::new()).unwrap_err().code(), "secret_not_found");
        let request = file(&entry, &SecretStore::new().with("T", "abc")).unwrap();
        assert_eq!(request.headers[0].1.expose(), "Bearer abc");
    }
}
