//! The rows of the table, one per goal.

use super::{
    command, peer,
    table::{Options, Spread, Table},
    work,
};

pub(crate) async fn all(options: &Options) -> Table {
    let mut table = Table::default();
    if options.wants("turns") {
        turns(options, &mut table).await;
    }
    if options.wants("many") {
        many(options, &mut table);
    }
    if options.wants("cold start") || options.wants("demo") {
        command::measure(options, &mut table);
    }
    table
}

async fn turns(options: &Options, table: &mut Table) {
    work::turns(1).await;
    let (mut hundred, mut four_hundred) = (Vec::new(), Vec::new());
    for _ in 0..options.times(50) {
        hundred.push(work::turns(100).await);
        four_hundred.push(work::turns(400).await);
    }
    let (hundred, four_hundred) = (Spread::of(hundred), Spread::of(four_hundred));
    table.ratio("400 turns / 100 turns", four_hundred, hundred, 4.5);
    let theirs = peer::python("turns", options.times(5)).map(|mut python| peer::time(&mut python));
    versus(table, ("100 turns / Python SDK", 4.0), hundred, theirs);
}

fn many(options: &Options, table: &mut Table) {
    let ours = peer::time(&mut peer::ourselves(options.times(10)));
    let theirs = peer::python("many", if options.quick { 1 } else { 3 }).map(|mut python| peer::time(&mut python));
    versus(table, ("200 runs (many) / Python SDK", 8.0), ours, theirs);
    let ours = peer::peak_mb(&mut peer::ourselves(1));
    let theirs = peer::python("many", 1).map_or(0.0, |mut python| peer::peak_mb(&mut python));
    eprintln!("memory of 200 runs, machines included: {ours:.0} MB, Python SDK {theirs:.0} MB");
}

/// Adds a row whose goal is a multiple of the speed of the Python SDK.
fn versus(table: &mut Table, (name, times): (&'static str, f64), ours: Spread, theirs: Option<Spread>) {
    match theirs {
        Some(theirs) => table.ratio(name, ours, theirs, 1.0 / times),
        None => eprintln!("{name}: {:.3} ms, without a comparison", ours.p50),
    }
}
