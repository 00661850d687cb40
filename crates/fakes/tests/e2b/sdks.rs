//! The official SDKs of E2B against the fake; their expectations are in the scripts in this folder.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use sandbar_fakes::{Fault, On, e2b::Server};

const PYTHON: &str = "2.63.0";
const OLDER_PYTHON: &str = "2.31.0";
const JAVASCRIPT: &str = "2.51.0";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2b").join(name)
}

#[track_caller]
fn there(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "there is no {}: `cargo xtask setup` makes it", path.display());
    path
}

#[track_caller]
fn succeeds(server: &Server, mut command: Command) {
    let command = command.envs(server.env()).env("NO_PROXY", "127.0.0.1,localhost").env_remove("E2B_DEBUG");
    let output = command.output().expect("the program runs");
    let (printed, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last: Vec<_> =
        server.requests().iter().rev().take(3).map(|seen| format!("{} {}", seen.method, seen.path)).collect();
    assert!(output.status.success() && printed.ends_with("ok\n"), "{printed}{said}\nlast requests: {last:?}");
}

#[track_caller]
fn python(server: &Server, check: &str, version: &str) {
    let venv = root().join(".venv-e2b");
    let mut command = Command::new(there(venv.join("bin/python")));
    command.arg(script("e2b_client.py")).args([check, version]).env_remove("PYTHONPATH");
    if version != PYTHON {
        command.env("PYTHONPATH", there(venv.join("older")));
    }
    succeeds(server, command);
}

#[track_caller]
fn javascript(server: &Server, check: &str) {
    let packages = there(root().join(".npm-e2b/node_modules/e2b")).join("../..");
    // Where the system's is too old, set-up has brought another.
    let own = packages.join("node_modules/node/bin/node");
    let mut command = Command::new(if own.exists() { own } else { "node".into() });
    command.arg(script("e2b_client.mjs")).arg(packages).args([check, JAVASCRIPT]);
    succeeds(server, command);
}

macro_rules! checks {
    ($($sdk:ident $version:expr => $($check:ident)*;)*) => {$(
        mod $sdk {
            use sandbar_fakes::e2b::Server;
            $(
                #[test]
                fn $check() {
                    super::run(&Server::start().unwrap(), stringify!($check), $version);
                }
            )*
        }
    )*};
}

#[track_caller]
fn run(server: &Server, check: &str, version: &str) {
    match version {
        JAVASCRIPT => javascript(server, check),
        version => python(server, check, version),
    }
}

checks! {
    python_sdk super::PYTHON => commands timeouts background pty files ports life;
    older_python_sdk super::OLDER_PYTHON => commands timeouts background pty files ports life;
    javascript_sdk super::JAVASCRIPT => commands background pty files life;
}

#[test]
fn the_python_sdk_tries_again_after_the_pause_it_is_told() {
    let server = Server::start().unwrap();
    server.fault(On::post("/v2/sandboxes"), Fault::RetryAfter(503, 1), 1);
    python(&server, "timeouts", PYTHON);
    let creations = server.requests().iter().filter(|seen| seen.path == "/v2/sandboxes").count();
    assert_eq!(creations, 2);
}
