//! Declares a workspace, fills it, works in it, and removes it.
//!
//! Run with `cargo run -p sandbar --example quickstart`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use sandbar::{client::UnixLocal, prelude::*};

const PATCH: &str = "\
*** Begin Patch
*** Update File: src/greet.sh
@@
-echo hello
+echo \"hello, $1\"
*** End Patch
";

#[tokio::main]
async fn main() -> Result<(), SandboxError> {
    let manifest = Manifest::new()
        .file("brief.md", "Greet by name.\n")
        .file("src/greet.sh", "#!/bin/sh\necho hello\n")
        .env("PROJECT", "greetings");
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::new(manifest)).await?;

    let before = session.exec(Exec::shell("src/greet.sh; echo \"in $PROJECT\"")).await?;
    print!("{}", before.stdout_text());

    let applied = session.apply_patch(PATCH, PatchOptions::default()).await?;
    print!("{}", applied.codex_text());

    let after = session.exec(Exec::new(["src/greet.sh", "world"])).await?.check()?;
    print!("{}", after.stdout_text());

    session.delete().await
}
