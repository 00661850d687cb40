//! A fake service and a client for it.

use std::time::{Duration, Instant};

use sandbar_clients::E2b;
use sandbar_fakes::e2b::Server;
use sandbar_machine::{Command, Exit, Machine, Output};

/// A client of this server.
pub(crate) fn client(server: &Server) -> E2b {
    E2b::template("base").key(server.key()).domain(domain(server)).api_url(server.url()).sandbox_url(server.url())
}

/// The domain of this server's ports.
pub(crate) fn domain(server: &Server) -> String {
    format!("localhost:{}", server.url().rsplit(':').next().expect("a port"))
}

/// Output and exit of a command.
pub(crate) async fn run(machine: &dyn Machine, command: Command) -> (Vec<u8>, Exit) {
    let mut process = machine.spawn(command).await.expect("it starts");
    let mut printed = Vec::new();
    loop {
        match process.output.recv().await.expect("an exit").expect("the machine lives") {
            Output::Stdout(bytes) | Output::Stderr(bytes) => printed.extend_from_slice(&bytes),
            Output::Omitted(count) => panic!("{count} bytes are missing"),
            Output::Exit(exit) => return (printed, exit),
        }
    }
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
