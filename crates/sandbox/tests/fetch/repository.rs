//! Repositories, made on this host and served the way real ones are.

use std::{io::Write, net::SocketAddr, os::fd::OwnedFd, path::Path, process::Stdio};

use futures::future::BoxFuture;
use tempfile::TempDir;
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinSet};

use crate::server::{Question, Server, Step, answer};

/// A directory of repositories.
pub(crate) struct Repositories {
    directory: TempDir,
}

impl Repositories {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    /// An empty repository of this name.
    pub(crate) fn make(&self, name: &str) -> Repository<'_> {
        let repository = Repository { home: self.directory.path(), name: name.to_owned() };
        std::fs::create_dir(repository.path()).expect("a directory");
        repository.git(&["init", "--quiet", "--initial-branch=main"]);
        repository
    }

    /// Serves the repositories to every client.
    pub(crate) async fn serve(self) -> Server {
        Server::slow(move |question, _| self.backend(question)).await
    }

    /// Serves the repositories to clients that send this header.
    pub(crate) async fn serve_to(self, authorization: &'static str) -> Server {
        Server::slow(move |question, _| {
            if question.header("authorization") == Some(authorization) {
                return self.backend(question);
            }
            let steps = answer("401 Unauthorized", &[("www-authenticate", "Basic realm=\"x\"")], b"");
            Box::pin(async move { steps })
        })
        .await
    }

    /// Serves the repositories over git's own protocol: one daemon process per connection.
    pub(crate) async fn daemon(self) -> (SocketAddr, JoinSet<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its number");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let root = self.directory.path();
            while let Ok((stream, _)) = listener.accept().await {
                let stream = stream.into_std().expect("a socket");
                stream.set_nonblocking(false).expect("a patient one");
                let copy = stream.try_clone().expect("its other direction");
                let served = tokio::process::Command::new("git")
                    .args(["-c", "safe.directory=*", "daemon", "--inetd", "--export-all"])
                    .arg(format!("--base-path={}", root.display()))
                    .stdin(OwnedFd::from(stream))
                    .stdout(OwnedFd::from(copy))
                    .stderr(Stdio::null())
                    .kill_on_drop(true)
                    .status();
                assert!(served.await.expect("git daemon runs").success());
            }
        });
        (address, tasks)
    }

    /// Answers as git's own server program does.
    pub(crate) fn backend(&self, question: Question) -> BoxFuture<'static, Vec<Step>> {
        let root = self.directory.path().to_owned();
        Box::pin(async move {
            let (path, query) = question.path.split_once('?').unwrap_or((&question.path, ""));
            let header = |name| question.header(name).unwrap_or_default().to_owned();
            let mut child = tokio::process::Command::new("git")
                .arg("http-backend")
                .env("GIT_PROJECT_ROOT", root)
                .env("GIT_HTTP_EXPORT_ALL", "1")
                .env("GIT_CONFIG_COUNT", "1")
                .env("GIT_CONFIG_KEY_0", "safe.directory")
                .env("GIT_CONFIG_VALUE_0", "*")
                .env("GIT_PROTOCOL", header("git-protocol"))
                .env("REQUEST_METHOD", &question.method)
                .env("PATH_INFO", path)
                .env("QUERY_STRING", query)
                .env("CONTENT_TYPE", header("content-type"))
                .env("CONTENT_LENGTH", question.body.len().to_string())
                .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .expect("git http-backend runs");
            let mut stdin = child.stdin.take().expect("its input");
            let _refused_early = stdin.write_all(&question.body).await;
            drop(stdin);
            let said = child.wait_with_output().await.expect("its answer").stdout;
            as_answer(&said)
        })
    }
}

/// Turns what a gateway program says into what a server says.
fn as_answer(said: &[u8]) -> Vec<Step> {
    let end = said.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("an end of the headers");
    let head = String::from_utf8_lossy(&said[..end]).into_owned();
    let headers: Vec<_> = head.lines().filter_map(|line| line.split_once(": ")).collect();
    let status = headers.iter().find(|(name, _)| *name == "Status").map_or("200 OK", |(_, value)| value);
    let others: Vec<_> = headers.iter().copied().filter(|(name, _)| *name != "Status").collect();
    answer(status, &others, &said[end + 4..])
}

/// One repository.
pub(crate) struct Repository<'a> {
    home: &'a Path,
    name: String,
}

impl Repository<'_> {
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.home.join(&self.name)
    }

    /// Runs git in it and returns what it said.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        self.git_with(args, "")
    }

    /// Makes a tree of entries (mode, kind, object, name), however odd their names, and returns its name.
    pub(crate) fn tree(&self, entries: &[(&str, &str, &str, &str)]) -> String {
        let lines = entries.iter().map(|(mode, kind, object, name)| format!("{mode} {kind} {object}\t{name}\n"));
        self.git_with(&["mktree"], &lines.collect::<String>())
    }

    fn git_with(&self, args: &[&str], input: &str) -> String {
        let mut child = std::process::Command::new("git")
            .args(["-c", "protocol.file.allow=always"])
            .args(args)
            .current_dir(self.path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "x")))
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "x@example.org")))
            .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_DATE"), "2020-01-01T00:00:00Z")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("git runs");
        child.stdin.take().expect("its input").write_all(input.as_bytes()).expect("it listens");
        let output = child.wait_with_output().expect("its end");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Writes a file.
    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("its directory");
        std::fs::write(path, content).expect("a file");
        self
    }

    /// Makes a symbolic link.
    pub(crate) fn link(&self, path: &str, to: &str) -> &Self {
        std::os::unix::fs::symlink(to, self.path().join(path)).expect("a link");
        self
    }

    /// Commits everything and returns the commit's name.
    pub(crate) fn commit(&self) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message=x"]);
        self.git(&["rev-parse", "HEAD"])
    }
}
