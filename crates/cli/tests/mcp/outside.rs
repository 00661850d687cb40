//! The official MCP client for Python lists and calls every tool.

use std::{path::Path, process::Stdio};

use super::rig::{Sandbar, finish};

#[test]
fn the_python_client_uses_every_tool() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = package.join("../../.venv-agents/bin/python");
    assert!(python.exists(), "there is no {}: `cargo xtask setup` makes it", python.display());
    for mode in ["legacy", "auto"] {
        let sandbar = Sandbar::own();
        let work = sandbar.make_dir("work");
        let mut command = std::process::Command::new(&python);
        command.arg(package.join("tests/python/mcp_client.py")).args([mode, env!("CARGO_BIN_EXE_sandbar")]);
        command.arg(&work).env("TMPDIR", sandbar.dir()).current_dir(sandbar.dir());
        let run =
            finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python"));
        assert!(run.code == 0 && run.stdout.ends_with("ok\n"), "{mode}: {}{}", run.stdout, run.stderr);
        assert!(sandbar.left().is_empty(), "{:?}", sandbar.left());
    }
}
