//! An agent writes and serves a web page; this program reads the page from outside, through an exposed port.
//!
//! Run with `cargo run -p sandbar --example website_preview` on a host with `busybox`, which contains a small web server;
//! `python3 -m http.server 8000` works as well. It prints:
//!
//! ```text
//! The page is up on port 8000.
//! HTTP/1.1 200 OK
//! <h1>Opening on Monday</h1>
//! ```

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::sync::Arc;

use sandbar::{
    client::UnixLocal,
    mock::{MockServer, Script, item},
    prelude::*,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const PAGE: &str = "\
*** Begin Patch
*** Add File: site/index.html
+<h1>Opening on Monday</h1>
*** End Patch
";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // The web server continues when the call returns.
    let serve = json!({ "cmd": "busybox httpd -f -p 8000 -h site", "yield_time_ms": 500 });
    let server = MockServer::start(
        Script::new()
            .turn(item::custom_tool_call("apply_patch", PAGE))
            .turn(item::function_call("exec_command", serve))
            .turn(item::text("The page is up on port 8000.")),
    )?;
    let designer = SandboxAgent::new("designer")
        .model(Responses::new("gpt-5.5").base_url(server.base_url()))
        .instructions("Put sites into `site`, and serve them on port 8000.");

    // This program owns the session, so it exists after the run. Its only network access is the declared port.
    let session = SandboxSession::open(Arc::new(UnixLocal::new()), SessionOptions::default().port(8000)).await?;
    let result = run(&designer, "A page that says when we open.").sandbox(&session).await?;
    println!("{}", result.final_output());

    let preview = session.ports().resolve(8000).await?; // `preview.url` is for a browser
    let address = preview.socket().ok_or("a local machine's port is a socket of this host")?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    for line in [answer.lines().next(), answer.lines().last()].into_iter().flatten() {
        println!("{line}");
    }
    session.delete().await?;
    Ok(())
}
