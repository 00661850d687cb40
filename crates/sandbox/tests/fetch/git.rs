//! Repositories over HTTP, cloned in real local sandboxes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use sandbar_clients::UnixLocal;
use sandbar_machine::{
    BareClient, Machine, MachineHandle, MachineSpec, SandboxClient,
    tar::{Event, Kind, Reader},
};
use sandbar_sandbox::{
    Result, SandboxError, Secret,
    fetch::{Checkout, GitRequest, clone as clone_repository},
};
use tokio::time::timeout;

use crate::{
    repository::Repositories,
    server::{Server, Step, answer, redirect},
};

/// What anything should take at most, on a busy host.
const SOON: Duration = Duration::from_secs(120);

async fn clone(request: &GitRequest) -> Result<Checkout> {
    clone_with(UnixLocal::new(), request).await
}

async fn clone_with(client: impl SandboxClient + 'static, request: &GitRequest) -> Result<Checkout> {
    let client: Arc<dyn SandboxClient> = Arc::new(client);
    timeout(SOON, clone_repository(&client, request)).await.expect("an end, good or bad")
}

async fn fails(request: &GitRequest) -> SandboxError {
    clone(request).await.expect_err("a failure")
}

/// What came out: files with their content, links with `-> target`, directories with a slash.
async fn tree(request: &GitRequest) -> (String, BTreeMap<String, String>) {
    let checkout = clone(request).await.expect("a clone");
    let tree = unpack(&checkout).await;
    let commit = checkout.commit().to_owned();
    checkout.close().await.expect("an end");
    (commit, tree)
}

async fn unpack(checkout: &Checkout) -> BTreeMap<String, String> {
    let mut tar = checkout.pack().await.expect("an archive");
    let mut reader = Reader::new();
    let (mut tree, mut current) = (BTreeMap::new(), String::new());
    while let Some(piece) = tar.next().await {
        for event in reader.push(&piece.expect("its bytes")).expect("a sound archive") {
            match event {
                Event::Member(member) => {
                    current = String::from_utf8_lossy(&member.path).into_owned();
                    let link = String::from_utf8_lossy(&member.link).into_owned();
                    match member.kind {
                        Kind::Symlink => tree.insert(current.clone(), format!("-> {link}")),
                        Kind::Dir => tree.insert(format!("{}/", current.trim_end_matches('/')), String::new()),
                        _ => tree.insert(current.clone(), String::new()),
                    };
                }
                Event::Data(bytes) => {
                    tree.entry(current.clone()).or_default().push_str(&String::from_utf8_lossy(&bytes));
                }
                Event::Done => {}
            }
        }
    }
    reader.finish().expect("a whole archive");
    tree
}

/// The names outside of `.git`.
fn files(tree: &BTreeMap<String, String>) -> Vec<&str> {
    let hidden = |name: &&str| *name == ".git/" || name.starts_with(".git/");
    tree.keys().map(String::as_str).filter(|name| !hidden(name)).collect()
}

fn complaint(error: &SandboxError) -> String {
    error.context().get("stderr").and_then(|text| text.as_str()).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_repository_arrives_whole_and_clean() {
    let all = Repositories::new();
    let made = all.make("r");
    let commit = made.put("a/b.txt", "hello").put("run.sh", "true").link("link", "a/b.txt").commit();
    let server = all.serve().await;
    let (found, tree) = tree(&GitRequest::new(server.url("/r"))).await;
    assert_eq!(found, commit);
    assert_eq!(files(&tree), ["a/", "a/b.txt", "link", "run.sh"]);
    assert_eq!((tree["a/b.txt"].as_str(), tree["link"].as_str()), ("hello", "-> a/b.txt"));
    assert_eq!(tree[".git/HEAD"], "ref: refs/heads/main\n");
    assert!(tree.keys().all(|name| !name.starts_with(".git/hooks") && !name.starts_with(".git/logs")));
    let config = &tree[".git/config"];
    assert!(config.contains(&server.url("/r")), "{config}");
    for word in ["hooksPath", "credential", "extraHeader", "fsck"] {
        assert!(!config.contains(word), "{config}");
    }
}

#[tokio::test]
async fn branches_tags_and_commits_are_found() {
    let all = Repositories::new();
    let made = all.make("r");
    let first = made.put("n", "1").commit();
    made.git(&["tag", "--annotate", "--message=x", "v1"]);
    made.git(&["branch", "feature/x"]);
    made.git(&["branch", "deadbeef"]);
    made.git(&["update-ref", "refs/pull/1/head", "HEAD"]);
    let last = made.put("n", "2").commit();
    let server = all.serve().await;
    let table = [
        ("HEAD", &last),
        ("main", &last),
        ("v1", &first),
        ("feature/x", &first),
        ("deadbeef", &first),
        ("refs/pull/1/head", &first),
        ("refs/tags/v1", &first),
        (first.as_str(), &first),
        (&last.to_uppercase(), &last),
    ];
    for (reference, commit) in table {
        let checkout = clone(&GitRequest::new(server.url("/r")).reference(reference)).await;
        assert_eq!(checkout.expect(reference).commit(), commit, "{reference}");
    }
    for (reference, hint) in [("nope", "nope"), (&first[..9], "all of its digits"), (&first.replace('0', "1"), "")] {
        let error = fails(&GitRequest::new(server.url("/r")).reference(reference)).await;
        assert_eq!(error.code(), "git_clone_error", "{reference}");
        assert!(complaint(&error).contains(hint), "{error}");
        assert_eq!(error.context()["ref"], reference);
    }
    let error = fails(&GitRequest::new(server.url("/missing"))).await;
    assert!(complaint(&error).contains("not found"), "{error}");
}

#[tokio::test]
async fn as_much_history_arrives_as_was_asked_for() {
    let all = Repositories::new();
    let made = all.make("r");
    let commits: Vec<String> = (0..4).map(|number| made.put("n", number.to_string()).commit()).collect();
    let server = all.serve().await;
    for (depth, edge) in [(Some(1), Some(3)), (Some(3), Some(1)), (None, None)] {
        for reference in ["HEAD", &commits[3]] {
            let request = GitRequest { depth, ..GitRequest::new(server.url("/r")).reference(reference) };
            let (_, tree) = tree(&request).await;
            let shallow = tree.get(".git/shallow").map(|text| text.trim().to_owned());
            assert_eq!(shallow, edge.map(|edge: usize| commits[edge].clone()), "{depth:?} {reference}");
        }
    }
}

#[tokio::test]
async fn only_what_matches_is_checked_out() {
    let all = Repositories::new();
    let made = all.make("r");
    let commit = made.put("docs/a.md", "a").put("src/b.rs", "b").put("src/c.md", "c").put("d.txt", "d").commit();
    let server = all.serve().await;
    for reference in ["main", &commit] {
        let mut request = GitRequest::new(server.url("/r")).reference(reference);
        request.sparse = vec!["/docs/".to_owned(), "src/*.rs".to_owned()];
        let (_, tree) = tree(&request).await;
        assert_eq!(files(&tree), ["docs/", "docs/a.md", "src/", "src/b.rs"], "{reference}");
    }
}

#[tokio::test]
async fn a_subpath_is_all_that_arrives_and_stays_inside() {
    let all = Repositories::new();
    let made = all.make("r");
    made.put("a/b/c.txt", "c").put("a/x", "x").link("inside", "a").link("out", "../..").link("etc", "/etc");
    made.link("a/up", "../../../etc").link("git", ".git").commit();
    let server = all.serve().await;
    let url = server.url("/r");
    let (_, found) = tree(&GitRequest::new(&url).subpath("a/./b/")).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["c.txt"]);
    let (_, found) = tree(&GitRequest::new(&url).subpath("inside/b")).await;
    assert_eq!(found.keys().collect::<Vec<_>>(), ["c.txt"]);
    let table = [
        ("nope", "missing"),
        ("a/x", "not_a_directory"),
        ("out", "leads_out"),
        ("etc", "leads_out"),
        ("a/up/ssl", "leads_out"),
        ("../x", "parent_traversal"),
    ];
    for (subpath, reason) in table {
        let request = GitRequest::new(&url).subpath(subpath);
        let by_fallbacks = clone_with(BareClient::new(UnixLocal::new()), &request).await.expect_err("a failure");
        for error in [fails(&request).await, by_fallbacks] {
            assert_eq!((error.code(), error.retryable()), ("git_subpath_error", Some(false)), "{subpath}");
            assert_eq!(error.context()["reason"], reason, "{subpath}: {}", error.full_message());
        }
    }
}

#[tokio::test]
async fn submodules_come_along_when_they_are_wanted() {
    let all = Repositories::new();
    all.make("inner").put("deep.txt", "deep").commit();
    let outer = all.make("outer");
    outer.put("top.txt", "top");
    outer.git(&["submodule", "--quiet", "add", "../inner", "sub"]);
    outer.commit();
    let server = all.serve().await;
    let mut request = GitRequest::new(server.url("/outer"));
    let (_, without) = tree(&request).await;
    assert_eq!(files(&without), [".gitmodules", "sub/", "top.txt"]);
    request.submodules = true;
    let (_, with) = tree(&request).await;
    assert_eq!(files(&with), [".gitmodules", "sub/", "sub/.git", "sub/deep.txt", "top.txt"]);
    assert_eq!(with["sub/.git"], "gitdir: ../.git/modules/sub\n");
}

#[tokio::test]
async fn a_submodule_cannot_name_a_command_or_a_file() {
    let evil =
        ["ext::touch /workspace/clone/owned", "file:///usr/share", "-uowned", "/usr/share", "ssh://-oProxyCommand=x/y"];
    for url in evil {
        let all = Repositories::new();
        let inner = all.make("inner").put("x", "x").commit();
        let outer = all.make("outer");
        outer.put(".gitmodules", format!("[submodule \"s\"]\n\tpath = s\n\turl = {url}\n"));
        outer.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{inner},s")]);
        outer.git(&["add", ".gitmodules"]);
        outer.git(&["commit", "--quiet", "--message=x"]);
        let server = all.serve().await;
        let request = GitRequest { submodules: true, ..GitRequest::new(server.url("/outer")) };
        let error = fails(&request).await;
        assert_eq!(error.code(), "git_clone_error", "{url}: {error}");
    }
}

#[tokio::test]
async fn a_filter_named_by_a_repository_does_not_run() {
    let all = Repositories::new();
    let made = all.make("r");
    made.put(".gitattributes", "* filter=lfs\n").put("x", "as it is").commit();
    let server = all.serve().await;
    let (_, tree) = tree(&GitRequest::new(server.url("/r"))).await;
    assert_eq!(tree["x"], "as it is");
}

#[tokio::test]
async fn a_tree_that_writes_into_the_repositorys_own_directory_is_refused() {
    for name in [".git", ".GIT", "git~1", ".."] {
        let all = Repositories::new();
        let made = all.make("r");
        made.put("post-checkout", "x").commit();
        let hooks = made.git(&["rev-parse", "HEAD^{tree}"]);
        let tree = made.tree(&[("040000", "tree", &hooks, name)]);
        let commit = made.git(&["commit-tree", "-m", "x", &tree]);
        made.git(&["update-ref", "refs/heads/evil", &commit]);
        let server = all.serve().await;
        let error = fails(&GitRequest::new(server.url("/r")).reference("evil")).await;
        assert_eq!(error.code(), "git_clone_error", "{name}: {error}");
    }
}

#[tokio::test]
async fn a_small_repository_that_becomes_a_million_files_is_stopped() {
    let all = Repositories::new();
    let made = all.make("r");
    made.put("x", "x".repeat(1000)).commit();
    let mut tree = made.git(&["rev-parse", "HEAD^{tree}"]);
    for _ in 0..5 {
        let names: Vec<String> = (0..10).map(|name| name.to_string()).collect();
        let entries: Vec<_> = names.iter().map(|name| ("040000", "tree", tree.as_str(), name.as_str())).collect();
        tree = made.tree(&entries);
    }
    let commit = made.git(&["commit-tree", "-m", "x", &tree]);
    made.git(&["update-ref", "refs/heads/bomb", &commit]);
    let server = all.serve().await;
    let mut request = GitRequest::new(server.url("/r")).reference("bomb");
    request.limits.entries = 1000;
    let error = fails(&request).await;
    assert_eq!((error.code(), error.context()["limit"].clone()), ("limit_exceeded", 1000.into()));
    request.limits.entries = 1_000_000;
    request.limits.bytes = 1 << 20;
    let error = fails(&request).await;
    assert_eq!((error.code(), error.context()["limit"].clone()), ("limit_exceeded", (1 << 20).into()));
}

#[tokio::test]
async fn a_secret_opens_the_door_and_is_found_nowhere() {
    let all = Repositories::new();
    all.make("inner").put("x", "x").commit();
    let outer = all.make("outer");
    outer.git(&["submodule", "--quiet", "add", "../inner", "sub"]);
    let commit = outer.commit();
    // `x-access-token:hunter22`
    let server = all.serve_to("Basic eC1hY2Nlc3MtdG9rZW46aHVudGVyMjI=").await;
    for reference in ["main", &commit] {
        let request = GitRequest::new(server.url("/outer")).reference(reference).auth(Secret::new("hunter22"));
        let (_, tree) = tree(&GitRequest { submodules: true, ..request }).await;
        assert!(tree.contains_key("sub/x"));
        for (name, content) in tree {
            assert!(!content.contains("hunter22") && !content.contains("aHVudGVy"), "{name}: {content}");
        }
    }
    for secret in ["hunter33", "x-access-token:wrong-one"] {
        let request = GitRequest::new(server.url("/outer")).auth(Secret::new(secret));
        let error = fails(&request).await;
        let everything = format!("{error:?} {request:?} {}", error.full_message());
        let encoded = BASE64_STANDARD.encode(secret);
        assert!(!everything.contains(secret) && !everything.contains(&encoded), "{everything}");
    }
    let error = fails(&GitRequest::new(server.url("/outer"))).await;
    assert_eq!((error.code(), error.retryable()), ("git_clone_error", Some(false)));
    assert!(complaint(&error).contains("name a secret"), "{error}");
}

#[tokio::test]
async fn the_git_protocol_is_spoken_too() {
    let all = Repositories::new();
    let commit = all.make("r").put("x", "x").commit();
    let (address, _server) = all.daemon().await;
    let (found, tree) = tree(&GitRequest::new(format!("git://{address}/r"))).await;
    assert_eq!((found, tree["x"].as_str()), (commit, "x"));
}

#[tokio::test]
async fn a_machine_without_git_is_said_to_have_none() {
    let error = clone_with(Gitless(UnixLocal::new()), &GitRequest::new("http://127.0.0.1:9/r")).await.unwrap_err();
    assert_eq!((error.code(), error.retryable()), ("git_missing_in_image", Some(false)));
}

/// Makes machines that find no programs.
#[derive(Debug)]
struct Gitless(UnixLocal);

#[async_trait]
impl SandboxClient for Gitless {
    fn id(&self) -> &'static str {
        self.0.id()
    }

    async fn create(&self, mut spec: MachineSpec) -> sandbar_machine::Result<Arc<dyn Machine>> {
        spec.env.insert("PATH".to_owned(), "/nonexistent".to_owned());
        self.0.create(spec).await
    }

    async fn attach(&self, handle: &MachineHandle) -> sandbar_machine::Result<Option<Arc<dyn Machine>>> {
        self.0.attach(handle).await
    }

    async fn delete(&self, handle: &MachineHandle) -> sandbar_machine::Result<()> {
        self.0.delete(handle).await
    }
}

#[tokio::test]
async fn a_submodule_of_a_stranger_is_not_told_the_secret() {
    let (theirs, ours) = (Repositories::new(), Repositories::new());
    let inner = theirs.make("inner").put("x", "x").commit();
    let stranger = theirs.serve().await;
    let outer = ours.make("outer");
    outer.put(".gitmodules", format!("[submodule \"s\"]\n\tpath = s\n\turl = {}\n", stranger.url("/inner")));
    outer.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{inner},s")]);
    outer.git(&["add", ".gitmodules"]);
    outer.git(&["commit", "--quiet", "--message=x"]);
    let server = ours.serve().await;
    let request = GitRequest::new(server.url("/outer")).auth(Secret::new("hunter22"));
    let (_, tree) = tree(&GitRequest { submodules: true, ..request }).await;
    assert_eq!(tree["s/x"], "x");
    assert!(server.asked().iter().all(|question| question.header("authorization").is_some()));
    assert!(stranger.asked().iter().all(|question| question.header("authorization").is_none()));
}

#[tokio::test]
async fn redirects_are_followed_but_not_with_a_secret() {
    let all = Repositories::new();
    all.make("r").put("x", "x").commit();
    let real = all.serve().await;
    let target = real.url("");
    let moved = Server::new(move |question, _| redirect(&format!("{target}{}", question.path))).await;
    let (_, tree) = tree(&GitRequest::new(moved.url("/r"))).await;
    assert_eq!(tree["x"], "x");
    let before = real.asked().len();
    let error = fails(&GitRequest::new(moved.url("/r")).auth(Secret::new("hunter22"))).await;
    assert_eq!(error.code(), "git_clone_error");
    assert_eq!(real.asked().len(), before);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up() {
    let server = Server::new(|_, _| vec![Step::Stall]).await;
    let mut request = GitRequest::new(server.url("/r"));
    request.limits.time = Duration::from_secs(2);
    let error = fails(&request).await;
    assert_eq!((error.code(), error.retryable()), ("git_clone_error", Some(true)));
    assert_eq!(complaint(&error), "it took longer than 2 s");
}

#[tokio::test]
async fn what_a_server_says_cannot_move_a_cursor() {
    let server =
        Server::new(|_, _| answer("418 \x1b[2Jx", &[("content-type", "text/plain")], b"\x1b[31mred\x07")).await;
    let error = fails(&GitRequest::new(server.url("/r"))).await;
    assert!(!complaint(&error).contains(|letter: char| letter.is_control() && letter != '\n'), "{error:?}");
}

#[tokio::test]
async fn nothing_is_left_of_a_clone_however_it_ends() {
    let state = tempfile::tempdir().unwrap();
    std::fs::set_permissions(state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let client: Arc<dyn SandboxClient> = Arc::new(UnixLocal::new().state_dir(state.path()));
    let all = Repositories::new();
    all.make("r").put("x", "x").commit();
    let server = all.serve().await;
    let mute = Server::new(|_, _| vec![Step::Stall]).await;
    let machines = || std::fs::read_dir(state.path()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();

    let closed = clone_repository(&client, &GitRequest::new(server.url("/r"))).await.unwrap();
    assert_eq!(machines(), 1);
    closed.close().await.unwrap();
    gone(machines).await;

    let dropped = clone_repository(&client, &GitRequest::new(server.url("/r"))).await.unwrap();
    let stream = dropped.pack().await.unwrap();
    drop(dropped);
    let whole: Vec<_> = stream.collect().await;
    assert!(whole.iter().all(Result::is_ok));
    gone(machines).await;

    clone_repository(&client, &GitRequest::new(server.url("/missing"))).await.unwrap_err();
    gone(machines).await;

    let request = GitRequest::new(mute.url("/r"));
    let cancelled = tokio::spawn({
        let client = client.clone();
        async move { clone_repository(&client, &request).await.map(drop) }
    });
    timeout(SOON, async {
        while mute.asked().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(machines(), 1);
    cancelled.abort();
    gone(machines).await;
}

async fn gone(machines: impl Fn() -> usize) {
    let empty = async {
        while machines() > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, empty).await.expect("no machine is left");
}
