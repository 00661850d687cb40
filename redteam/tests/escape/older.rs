//! Kernels with an older Landlock: every promise holds, or is refused by name.

use std::os::{
    linux::net::SocketAddrExt,
    unix::net::{SocketAddr, UnixListener, UnixStream},
};

use sandbar_machine::{Command, Demand, MachineError, MachineSpec, Network};
use sandbar_redteam::{Outcome, attacks};

use crate::escape::{
    probes,
    rig::{Mode, Rig, claimed_landlock, inside, run as run_inside, token},
    tally::Tally,
};

/// From this version on, signals and abstract sockets stay inside.
pub(crate) const SCOPES: u32 = 6;

pub(crate) async fn run(rig: &Rig) {
    let version = claimed_landlock().expect("a version");
    probes::run(rig).await;
    let mut tally = Tally::new(rig.mode);
    what_is_claimed(rig, version, &mut tally).await;
    // A container has neither the host's network nor a level of its own choice.
    if !rig.mode.in_container() {
        abstract_sockets(rig, &mut tally).await;
        landlock_alone(rig, version, &mut tally).await;
    }
    tally.finish(&format!("older (landlock {version})"));
}

/// The layers name the version, and files can be renamed between directories.
async fn what_is_claimed(rig: &Rig, version: u32, tally: &mut Tally) {
    let machine = rig.create(rig.spec(&rig.dir("workspace"))).await;
    let layers = machine.features().layers.clone();
    // Where commands are root, nothing else keeps the guest's own files in the image from them.
    let refuses_renames = version == 1 && rig.mode == Mode::DockerRoot;
    let wanted = match version {
        1 if refuses_renames => "landlock 1 (which refuses to rename between directories".to_owned(),
        1 => "no landlock (version 1".to_owned(),
        _ => format!("landlock {version}"),
    };
    let is_named = layers.iter().any(|layer| layer.starts_with(&wanted));
    tally.expect("K79.layers-tell-the-version", is_named, format!("{layers:?}"));
    let script =
        "mkdir -p one other && echo x > one/file && python3 -c \"import os; os.rename('one/file', 'other/file')\"";
    let ran = run_inside(machine.as_ref(), Command::new(["sh", "-c", script])).await;
    let renamed = ran.exit.is_some_and(|exit| exit.success());
    tally.expect("K79.files-are-renamed-between-directories", renamed != refuses_renames, ran.stdout);
    if !rig.mode.in_container() {
        return machine.stop().await.expect("stop");
    }
    let script = "exec 2>/dev/null; echo x > /.sandbar/guest && echo overwritten; mv /.sandbar/guest /tmp && echo moved; rm -f /.sandbar/guest && echo removed; echo tried";
    let ran = run_inside(machine.as_ref(), Command::new(["sh", "-c", script])).await;
    tally.expect("K79.files-of-the-guest", ran.stdout == "tried\n", ran.stdout);
    machine.stop().await.expect("stop");
}

/// In the host's network, where only Landlock or the filter stands between a command and them.
async fn abstract_sockets(rig: &Rig, tally: &mut Tally) {
    let name = format!("redteam-{}", token());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let service = UnixListener::bind_addr(&address).expect("an abstract socket");
    let reached = UnixStream::connect_addr(&address).is_ok();
    let spec = rig.spec(&rig.dir("workspace")).network(Network::Host);
    let machine = rig.create(spec).await;
    let attack = attacks().find(|attack| attack.name == "F44.abstract-socket").expect("it is listed");
    let said = run_inside(machine.as_ref(), inside(attack.name, [format!("abstract={name}")])).await.stdout;
    let outcome = said.lines().find_map(|line| Outcome::parse(line.strip_prefix(attack.name)?));
    tally.control("F44", reached, "on the host it answers");
    let held = matches!(outcome, Some(Outcome::Refused(..)));
    tally.expect("F44.abstract-socket.in-the-host-network", held, said.trim());
    drop(service);
    machine.stop().await.expect("stop");
}

/// The level `landlock` is refused by name where it could not keep signals inside.
async fn landlock_alone(rig: &Rig, version: u32, tally: &mut Tally) {
    let made = rig.client.create(MachineSpec::default().isolation(Demand::Landlock)).await;
    let (held, detail) = match made {
        Err(MachineError::Isolation { missing, fix }) => (version < SCOPES, format!("{missing}; {fix}")),
        Err(other) => (false, other.to_string()),
        Ok(machine) => (version >= SCOPES && machine.stop().await.is_ok(), "made".to_owned()),
    };
    tally.expect("K79.landlock-alone-needs-scopes", held, detail);
}
