//! The machine in memory keeps every promise that needs no command.

use sandbar_machine::{
    MemoryClient,
    conformance::{Need, Verdict, promises},
};

#[tokio::test]
async fn the_machine_in_memory_keeps_the_promises_about_files_and_lifetimes() {
    let kept = promises().into_iter().filter(|promise| !promise.needs.contains(&Need::Commands));
    for promise in kept {
        println!("{}", promise.name);
        assert_eq!(promise.check(&MemoryClient::new()).await, Verdict::Kept);
    }
}
