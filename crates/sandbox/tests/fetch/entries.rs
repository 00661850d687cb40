//! Manifest entries that come from the network, all the way into a session's workspace.

use std::{io::Write, sync::Arc};

use flate2::{Compression, write::GzEncoder};
use sandbar_clients::UnixLocal;
use sandbar_machine::tar::{Kind, Member, end, padding};
use sandbar_sandbox::{
    ArchiveLimits, Credential, Exec, GitRepo, Manifest, RemoteDir, RemoteFile, SandboxError, SandboxSession,
    SecretStore, SessionLimits, SessionOptions,
};
use sha2::{Digest, Sha256};

use crate::{
    repository::Repositories,
    server::{Server, Step, answer, head, redirect},
};

async fn open(manifest: Manifest) -> Result<SandboxSession, SandboxError> {
    let secrets = SecretStore::new().with("token", "hunter22");
    let limits = SessionLimits {
        archive: ArchiveLimits { max_extracted_bytes: std::num::NonZeroU64::new(10 << 20), ..ArchiveLimits::default() },
        ..SessionLimits::default()
    };
    let options = SessionOptions::new(manifest).secrets(secrets).limits(limits);
    SandboxSession::open(Arc::new(UnixLocal::new()), options).await
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tarball(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut tar = Vec::new();
    for (path, content) in files {
        let mut member = Member::new(Kind::File, path.as_bytes(), 0o644);
        member.size = content.len() as u64;
        tar.extend_from_slice(&member.encode());
        tar.extend_from_slice(content);
        tar.resize(tar.len() + padding(member.size), 0);
    }
    tar.extend_from_slice(&end());
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(&tar).unwrap();
    gz.finish().unwrap()
}

#[tokio::test]
async fn a_repository_a_file_and_an_archive_arrive() {
    let repositories = Repositories::new();
    let repository = repositories.make("project");
    repository.put("README.md", "# hello\n").put("src/main.rs", "fn main() {}\n").commit();
    let git = repositories.serve().await;
    let body = b"some data".to_vec();
    let digest = hex(&body);
    let archive = tarball(&[("top/a.txt", b"a"), ("top/b/c.txt", b"c")]);
    let files = Server::new(move |question, _| match question.path.as_str() {
        "/data.bin" if question.header("authorization") == Some("Bearer hunter22") => answer("200 OK", &[], &body),
        "/data.bin" => answer("401 Unauthorized", &[], b""),
        "/moved.tar.gz" => redirect("/bundle.tar.gz"),
        _ => answer("200 OK", &[], &archive),
    })
    .await;
    let data = RemoteFile::new(files.url("/data.bin"))
        .header("Authorization", Credential::prefixed("Bearer ", "token"))
        .sha256(&digest);
    let manifest = Manifest::new()
        .git_repo("repo", GitRepo::new(git.url("/project")))
        .git_repo("only-src", GitRepo::new(git.url("/project")).subpath("src").at("main"))
        .remote_file("data/data.bin", data)
        .remote_dir("bundle", RemoteDir::new(files.url("/moved.tar.gz")).strip_components(1))
        .file("repo/over.txt", "over it");
    let session = open(manifest).await.unwrap();
    assert_eq!(session.read("repo/README.md").await.unwrap(), "# hello\n");
    assert_eq!(session.read("repo/over.txt").await.unwrap(), "over it");
    assert_eq!(session.read("only-src/main.rs").await.unwrap(), "fn main() {}\n");
    assert_eq!(session.read("data/data.bin").await.unwrap(), "some data");
    assert_eq!(session.read("bundle/b/c.txt").await.unwrap(), "c");
    let log = session.exec(Exec::new(["git", "-C", "repo", "log", "--oneline"])).await.unwrap();
    assert_eq!(log.stdout_text().lines().count(), 1, "{log:?}");
    let leaked = session.exec(Exec::new(["grep", "-r", "hunter22", "/workspace"])).await.unwrap();
    assert_eq!(leaked.stdout_text(), "", "the secret reached the workspace");
    session.delete().await.unwrap();
}

#[tokio::test]
async fn what_a_server_does_wrong_is_an_error_and_leaves_no_session() {
    let bomb = tarball(&[("bomb", &vec![0; 64 << 20])]);
    let climbing = tarball(&[("../out", b"x")]);
    let server = Server::new(move |question, _| match question.path.as_str() {
        "/truncated" => vec![Step::Send([head("200 OK", &[("content-length", "100")]), b"short".to_vec()].concat())],
        "/loop" => redirect("/loop"),
        "/missing" => answer("404 Not Found", &[], b""),
        "/flood" => vec![Step::Send(head("200 OK", &[])), Step::Flood(vec![b'x'; 65536])],
        "/bomb.tar.gz" => answer("200 OK", &[], &bomb),
        "/climbing.tar.gz" => answer("200 OK", &[], &climbing),
        "/torn.zip" => answer("200 OK", &[], b"PK\x03\x04torn"),
        _ => answer("200 OK", &[], b"fine"),
    })
    .await;
    let file = |path: &str| Manifest::new().remote_file("f", RemoteFile::new(server.url(path)).max_bytes(1 << 20));
    let dir = |path: &str| Manifest::new().remote_dir("d", RemoteDir::new(server.url(path)));
    let wrong = RemoteFile::new(server.url("/fine")).sha256("0".repeat(64));
    let no_repository = GitRepo::new(server.url("/nothing-here"));
    for (what, manifest, code) in [
        ("truncated", file("/truncated"), "remote_fetch_error"),
        ("loop", file("/loop"), "remote_fetch_error"),
        ("missing", file("/missing"), "remote_fetch_error"),
        ("flood", file("/flood"), "limit_exceeded"),
        ("wrong hash", Manifest::new().remote_file("f", wrong), "local_checksum_error"),
        ("bomb", dir("/bomb.tar.gz"), "limit_exceeded"),
        ("climbing", dir("/climbing.tar.gz"), "archive_refused"),
        ("torn", dir("/torn.zip"), "archive_refused"),
        ("no repository", Manifest::new().git_repo("r", no_repository), "git_clone_error"),
    ] {
        let error = open(manifest).await.unwrap_err();
        assert_eq!(error.code(), code, "{what}: {}", error.full_message());
    }
}

#[tokio::test]
async fn an_unknown_secret_is_named_before_anything_is_fetched() {
    let server = Server::new(|_, _| answer("200 OK", &[], b"x")).await;
    let entry = RemoteFile::new(server.url("/x")).header("Authorization", Credential::secret("not-given"));
    let error = open(Manifest::new().remote_file("f", entry)).await.unwrap_err();
    assert!(error.full_message().contains("not-given"), "{}", error.full_message());
    assert!(server.asked().is_empty());
}
