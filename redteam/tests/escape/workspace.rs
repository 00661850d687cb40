//! Groups B and I at the level of sessions: reads, writes, patches, archives, manifests and saved state, while a command
//! inside plants links, swaps directories and floods.

mod doors;
mod links;
mod odd;
mod packed;
mod patches;
mod places;
mod race;
mod stage;
mod stores;
mod table;
mod tarball;
mod zipped;

use stage::Stage;

use crate::escape::{lifetime::until_clean, rig::Rig, tally::Tally};

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    links::run(&Stage::new(rig, "links").await, &mut tally).await;
    patches::run(&Stage::new(rig, "patches").await, &mut tally).await;
    odd::run(&Stage::new(rig, "odd").await, &mut tally).await;
    if rig.mode.in_container() {
        return tally.finish("workspace");
    }
    race::run(&Stage::new(rig, "race").await, &mut tally).await;
    places::run(rig, &mut tally).await;
    packed::run(&Stage::new(rig, "packed").await, &mut tally).await;
    stores::run(rig, &mut tally).await;
    table::run(rig, &mut tally).await;
    doors::run(rig, &mut tally).await;
    let clean = until_clean(&rig.state()).await;
    tally.expect("D29.sessions-leave-nothing", clean.is_ok(), format!("{clean:?}"));
    tally.finish("workspace");
}
