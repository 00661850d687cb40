//! Number 48 for machines that outlive their maker: who gets in at their door.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command as HostCommand,
};

use sandbar_machine::{Access, Command, Demand, HostMount, Lifetime, Machine, MachinePath, MachineSpec, Network};
use sandbar_redteam::Outcome;
use sandbar_sandbox::{Manifest, SandboxSession, SessionOptions};

use super::stage::{client, soon};
use crate::escape::{
    older::SCOPES,
    rig::{Rig, claimed_landlock, run as run_inside},
    tally::Tally,
};

pub(super) async fn run(rig: &Rig, tally: &mut Tally) {
    let before = machines(rig);
    let options = SessionOptions::new(Manifest::new()).machine(detached());
    let first = soon(SandboxSession::open(client(rig), options)).await.expect("a session");
    let door = machines(rig).into_iter().find(|dir| !before.contains(dir)).expect("a machine").join("door");
    let nonce = first.state().machine.state["nonce"].as_str().expect("a nonce").to_owned();
    let found = on_host(&rig.probe(), &door, "");
    tally.control("F48", matches!(found, Some(Outcome::Reached(_))), "a process of the same user finds the door");
    let told = on_host(&rig.probe(), &door, &nonce);
    tally.control("F48.told", matches!(told, Some(Outcome::Reached(_))), "and is let in with the nonce");
    let kinds = [
        ("full", Demand::Full, Network::Off),
        ("host-network", Demand::Full, Network::Host),
        ("landlock", Demand::Landlock, Network::Off),
    ];
    // An older Landlock alone is refused: see the suite `older`.
    let count = if claimed_landlock().is_some_and(|version| version < SCOPES) { 2 } else { kinds.len() };
    for (name, isolation, network) in kinds.into_iter().take(count) {
        let known = machines(rig);
        // Its own path, since the level landlock moves nothing.
        let inside = MachinePath::new(rig.kit.as_os_str()).expect("a path");
        let kit = HostMount { host: rig.kit.clone(), inside, access: Access::ReadOnly, identity: None };
        let other = rig.create(detached().isolation(isolation).network(network).mounts([kit])).await;
        let own = machines(rig).into_iter().find(|dir| !known.contains(dir)).expect("a machine").join("door");
        for (whose, door) in [("own", &own), ("another", &door)] {
            // Reaching the socket is one step, getting an answer is another.
            for (what, nonce) in [("", ""), ("-with-its-nonce", nonce.as_str())] {
                let outcome = from_inside(other.as_ref(), &rig.probe(), (door, nonce)).await;
                let held = matches!(outcome, Some(Outcome::Refused(..)));
                tally.expect(&format!("F48.door-{whose}-from-{name}{what}"), held, format!("{outcome:?}"));
            }
        }
        soon(other.stop()).await.expect("stop");
    }
    another_user(rig, tally, &door, &nonce);
    let lives = first.running().await.unwrap_or(false);
    tally.expect("F48.door-machine-lives-on", lives, "no visitor has ended the machine");
    soon(first.delete()).await.expect("delete");
}

/// Machines with a door: what is still being removed of another has none.
fn machines(rig: &Rig) -> Vec<PathBuf> {
    let all = fs::read_dir(rig.state()).into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(|dir| dir.join("door").exists()).collect()
}

fn detached() -> MachineSpec {
    MachineSpec::default().lifetime(Lifetime::Detached)
}

fn words(door: &Path, nonce: &str) -> [String; 3] {
    ["knock".to_owned(), format!("path={}", door.display()), format!("nonce={nonce}")]
}

fn on_host(probe: &Path, door: &Path, nonce: &str) -> Option<Outcome> {
    let output = HostCommand::new(probe).args(words(door, nonce)).output().expect("the probe runs");
    outcome(&String::from_utf8_lossy(&output.stdout))
}

async fn from_inside(machine: &dyn Machine, probe: &Path, visit: (&Path, &str)) -> Option<Outcome> {
    let argv = [probe.display().to_string()].into_iter().chain(words(visit.0, visit.1));
    outcome(&run_inside(machine, Command::new(argv)).await.stdout)
}

fn outcome(line: &str) -> Option<Outcome> {
    line.split_once(' ').and_then(|(_, rest)| Outcome::parse(rest))
}

/// A second user of the host: kept out by the directories, and by the door itself where they stand open.
fn another_user(rig: &Rig, tally: &mut Tally, door: &Path, nonce: &str) {
    let probe = rig.kit.join("set-id-probe");
    let refused = |nonce| {
        let outcome = on_host(&probe, door, nonce);
        (matches!(outcome, Some(Outcome::Refused(..))), format!("{outcome:?}"))
    };
    let (held, detail) = refused("");
    tally.expect("F48.door-another-user", held, detail);
    let machine = door.parent().expect("a machine");
    let scratch = rig.scratch.path();
    let open =
        [(scratch.to_owned(), 0o755), (rig.state(), 0o755), (machine.to_owned(), 0o755), (door.to_owned(), 0o777)];
    let before: Vec<_> = open.iter().map(|(path, _)| fs::metadata(path).expect("it is there").permissions()).collect();
    for (path, mode) in &open {
        fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("opened");
    }
    let (held, detail) = refused(nonce);
    for ((path, _), mode) in open.iter().zip(before) {
        fs::set_permissions(path, mode).expect("closed again");
    }
    tally.expect("F48.door-another-user-who-knows-the-nonce", held, detail);
}
