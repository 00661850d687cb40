//! Serves a script until it is interrupted: `cargo run -p sandbar-mock --example serve -- script.json [port]`.

use std::{error::Error, net::SocketAddr};

use sandbar_mock::{MockServer, Script};

#[allow(clippy::print_stdout, reason = "the user needs the address")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which script? `serve script.json [port]`")?;
    let port: u16 = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script = Script::from_json(&std::fs::read_to_string(path)?)?;
    let server = MockServer::start_at(script, SocketAddr::from(([127, 0, 0, 1], port)))?;
    println!("{}", server.base_url());
    loop {
        // Ctrl-C ends the process, and the server with it.
        std::thread::park();
    }
}
