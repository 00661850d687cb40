//! A tool from a method.

use sandbar_agent::tool;

struct Room;

impl Room {
    /// Opens the room.
    #[tool]
    async fn open(&self, wide: bool) {}
}

fn main() {}
