//! Serves a fake E2B until it is interrupted: `cargo run -p sandbar-fakes --example e2b` prints the variables to use.

use sandbar_fakes::{FakeError, e2b::Server};

#[allow(clippy::print_stdout, reason = "the variables are what this is run for")]
fn main() -> Result<(), FakeError> {
    let server = Server::start()?;
    for (name, value) in server.env() {
        println!("export {name}={value}");
    }
    loop {
        // Ctrl-C ends the process, and the server with it.
        std::thread::park();
    }
}
