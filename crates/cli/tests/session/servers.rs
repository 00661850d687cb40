//! Manifests whose sources are on a server: limited servers work, and their failures are reported as such.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use super::rig::{PATIENCE, Sandbar, finish, until};

/// A server that only has files to give, and some paths that go wrong.
fn serve(root: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = format!("http://{}", listener.local_addr().expect("address"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut line = String::new();
            let mut lines = BufReader::new(stream.try_clone().expect("clone"));
            let _client_gone = lines.read_line(&mut line);
            let mut header = String::new();
            while lines.read_line(&mut header).is_ok_and(|read| read > 2) {
                header.clear();
            }
            let path = line.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
            let (status, length, body) = match (path.as_str(), fs::read(root.join(path.trim_start_matches('/')))) {
                ("/busy", _) => ("503 Service Unavailable", 0, Vec::new()),
                ("/cut", _) => ("200 OK", 1000, b"only this".to_vec()),
                (_, Ok(body)) => ("200 OK", body.len(), body),
                (_, Err(_)) => ("404 Not Found", 0, Vec::new()),
            };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
            let _client_gone = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    address
}

fn git(dir: &Path, words: &[&str]) {
    let who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"];
    let ended = Command::new("git").args(who).args(words).current_dir(dir).status().expect("git");
    assert!(ended.success(), "{words:?}");
}

#[test]
fn a_repository_is_cloned_from_a_static_file_server() {
    let sandbar = Sandbar::own();
    let web = sandbar.make_dir("web");
    fs::create_dir(web.join("r")).expect("create");
    git(&web.join("r"), &["init", "--quiet"]);
    for word in ["one", "two"] {
        fs::write(web.join("r/file"), word).expect("write");
        git(&web.join("r"), &["add", "file"]);
        git(&web.join("r"), &["commit", "--quiet", "--message", word]);
    }
    git(&web, &["clone", "--quiet", "--bare", "r", "r.git"]);
    git(&web.join("r.git"), &["update-server-info"]);
    let address = serve(web);
    let manifest = |reference: &str| {
        format!(r#"{{"entries": {{"r": {{"type": "git_repo", "url": "{address}/r.git"{reference}}}}}}}"#)
    };
    for reference in ["", r#", "ref": "main""#, r#", "ref": "refs/heads/main", "depth": 3"#] {
        let file = sandbar.make_file("m.json", manifest(reference)).display().to_string();
        let run = sandbar.run(&["exec", "--allow-private-addresses", "--manifest", &file, "--", "cat", "r/file"]);
        assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "two", ""), "{reference}: {run:?}");
    }
    for (reference, said) in [
        (r#", "ref": "abc1234""#, "not found in upstream origin; if it is a commit, give all of its digits"),
        (r#", "subpath": "no""#, "the subpath \"no\" is not in the repository"),
    ] {
        let file = sandbar.make_file("m.json", manifest(reference)).display().to_string();
        let run = sandbar.run(&["exec", "--allow-private-addresses", "--manifest", &file, "--", "true"]);
        assert!(run.code == 125 && run.stderr.contains(said), "{run:?}");
        assert_eq!(run.stderr.matches("r.git").count(), 1, "{run:?}");
        assert!(!run.stderr.contains("manifest check"), "{run:?}");
    }
    until("nothing is left", PATIENCE, || sandbar.left().is_empty());
}

#[test]
fn the_failure_of_a_server_is_reported_as_such() {
    let sandbar = Sandbar::own();
    let address = serve(sandbar.make_dir("web"));
    for (url, said) in [
        (format!("{address}/busy"), "the server answered 503 Service Unavailable"),
        (format!("{address}/no"), "the server answered 404 Not Found"),
        (format!("{address}/cut"), "it ends too early"),
        ("http://127.0.0.1:1/x".to_owned(), "Connection refused"),
    ] {
        let text = format!(r#"{{"entries": {{"f": {{"type": "remote_file", "url": "{url}"}}}}}}"#);
        let file = sandbar.make_file("m.json", text).display().to_string();
        let run = sandbar.run(&["exec", "--allow-private-addresses", "--manifest", &file, "--", "true"]);
        assert_eq!((run.code, run.stderr.lines().count()), (125, 1), "{run:?}");
        assert!(run.stderr.starts_with(&format!("sandbar: cannot fetch {url}: ")), "{run:?}");
        assert!(run.stderr.contains(said) && !run.stderr.contains("machine"), "{run:?}");
        assert!(!run.stderr.contains("same request"), "{run:?}");
    }
}

#[test]
fn a_manifest_reaches_private_addresses_only_if_allowed() {
    let sandbar = Sandbar::own();
    let web = sandbar.make_dir("web");
    fs::write(web.join("meta"), "internal").expect("write");
    fs::create_dir(web.join("r")).expect("create");
    git(&web.join("r"), &["init", "--quiet"]);
    git(&web.join("r"), &["commit", "--quiet", "--allow-empty", "--message", "x"]);
    git(&web, &["clone", "--quiet", "--bare", "r", "r.git"]);
    git(&web.join("r.git"), &["update-server-info"]);
    let address = serve(web);
    let named = address.replace("127.0.0.1", "localhost");
    let entries = [
        format!(r#"{{"type": "remote_file", "url": "{address}/meta"}}"#),
        format!(r#"{{"type": "remote_file", "url": "{named}/meta"}}"#),
        format!(r#"{{"type": "git_repo", "url": "{address}/r.git"}}"#),
        format!(r#"{{"type": "git_repo", "url": "{named}/r.git"}}"#),
    ];
    for entry in entries {
        let file = sandbar.make_file("m.json", format!(r#"{{"entries": {{"x": {entry}}}}}"#)).display().to_string();
        let refused = sandbar.run(&["exec", "--manifest", &file, "--", "true"]);
        assert_eq!(refused.code, 125, "{entry}: {refused:?}");
        assert!(refused.stderr.contains("--allow-private-addresses"), "{entry}: {refused:?}");
        // The control: nothing else keeps it from there.
        let allowed = sandbar.run(&["exec", "--allow-private-addresses", "--manifest", &file, "--", "ls", "x"]);
        assert_eq!(allowed.code, 0, "{entry}: {allowed:?}");
    }
}

#[test]
fn a_manifest_downloads_through_a_proxy_only_on_request() {
    let sandbar = Sandbar::own();
    let web = sandbar.make_dir("web");
    // The proxy is asked for a whole address, which is a path here.
    fs::create_dir_all(web.join("http:/files.example")).expect("create");
    fs::write(web.join("http:/files.example/meta"), "proxied").expect("write");
    let text = r#"{"entries": {"f": {"type": "remote_file", "url": "http://files.example/meta"}}}"#;
    let file = sandbar.make_file("m.json", text).display().to_string();
    let words = ["exec", "--fetch-via-proxy", "--manifest", &file, "--", "cat", "f"];
    let proxied = |proxy: &str| finish(sandbar.command(&words).env("http_proxy", proxy).spawn().expect("spawn"));
    let run = proxied(&serve(web));
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "proxied", ""));
    let run = proxied("http://me:hunter2@h:port");
    assert_eq!(run.code, 125, "{run:?}");
    assert!(run.stderr.contains("http_proxy is malformed") && !run.stderr.contains("hunter2"), "{run:?}");
    // The control: without being asked for, the variable is not read.
    let file = sandbar.make_file("empty.json", r#"{"entries": {}}"#).display().to_string();
    let mut command = sandbar.command(&["exec", "--manifest", &file, "--", "true"]);
    let run = finish(command.env("http_proxy", "http://me:hunter2@h:port").spawn().expect("spawn"));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}
