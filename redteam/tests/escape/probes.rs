//! Runs every attack of the probe: on the host or in fresh namespaces, where it must work, and in the sandbox.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command as HostCommand, Stdio},
};

use sandbar_machine::{Limits, Machine};
use sandbar_redteam::{Attack, Control, DIFFERENT, EXCEPTIONS, LIMITS, Outcome, UNPROMISED, attacks};

use crate::escape::{
    canaries::{Canaries, Victim},
    rig::{Mode, Rig, SECOND_USER, inside, run as run_inside},
    tally::Tally,
};

pub(crate) async fn run(rig: &Rig) {
    let mut canaries = Canaries::place(rig);
    let mut tally = Tally::new(rig.mode);
    let (workspace, open) = (rig.dir("workspace"), rig.dir("open"));
    for dir in [&workspace, &open, &rig.scratch.path().to_owned()] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("a directory others can look into");
    }
    let machine = rig.create(rig.spec(&workspace)).await;
    let small = rig.create(rig.spec(&workspace).limits(small())).await;
    let is_promised = |attack: &&Attack| {
        !rig.mode.in_container() || UNPROMISED.iter().all(|(unpromised, _)| attack.name != *unpromised)
    };
    for attack in attacks().filter(is_promised) {
        let control = control(rig, attack, &canaries, &open);
        let chosen = if attack.name.starts_with('J') { &small } else { &machine };
        let outcome = inside_of(chosen.as_ref(), attack, &canaries).await;
        let (proof, proven) = judge_control(rig.mode, attack, &control, &outcome);
        match proven {
            Proof::Proven => tally.proven(),
            Proof::Excepted => tally.excepted(),
            Proof::Missing => {}
        }
        let mut held = judge(rig.mode, attack, &outcome);
        if proven == Proof::Missing {
            held = Err(format!("no control: {control} unsandboxed, {outcome} inside"));
        }
        if let Some(harm) = canaries.harm().first() {
            held = Err(harm.clone());
        }
        tally.record(attack.name, held, &proof);
    }
    second_user_looks(&workspace, &mut tally);
    machine.stop().await.expect("stop");
    small.stop().await.expect("stop");
    tally.finish("probes");
}

fn small() -> Limits {
    let (pids, tmp_bytes, open_files) = LIMITS;
    Limits::default().pids(pids as u64).tmp_bytes(tmp_bytes as u64).open_files(open_files as u64)
}

/// The same program without the sandbox.
fn control(rig: &Rig, attack: &Attack, canaries: &Canaries, open: &Path) -> Outcome {
    let victims = [Victim::new(rig.mode), Victim::new(rig.mode)];
    let rename = open.join("rename-me");
    fs::create_dir_all(&rename).expect("a directory");
    let words = canaries.words(&[
        ("dir", open.display().to_string()),
        ("rename", rename.display().to_string()),
        ("pid", canaries.hostpid()),
        ("spare-queue", canaries.spare_queue()),
        ("victim1", victims[0].pid()),
        ("victim2", victims[1].pid()),
        ("setid", rig.kit.join("set-id-probe").display().to_string()),
    ]);
    let mut command = HostCommand::new(rig.probe());
    if attack.control == Control::Namespaces {
        command.arg("--namespaces");
    }
    // A regular file as standard input is what F43 is about.
    let input = fs::File::open(rig.probe()).expect("a file");
    command.arg(attack.name).args(words).current_dir("/").stdin(input).stderr(Stdio::null());
    let output = command.output().expect("the probe runs");
    parse(attack, &String::from_utf8_lossy(&output.stdout))
}

async fn inside_of(machine: &dyn Machine, attack: &Attack, canaries: &Canaries) -> Outcome {
    let own = ["pid", "victim1", "victim2"].map(|key| (key, "1".to_owned()));
    let places = [
        ("dir", "/workspace".to_owned()),
        ("rename", "/workspace".to_owned()),
        ("setid", "/probe/set-id-probe".to_owned()),
        ("spare-queue", canaries.spare_queue()),
        ("inside", "yes".to_owned()),
    ];
    let words = canaries.words(&own.into_iter().chain(places).collect::<Vec<_>>());
    let ran = run_inside(machine, inside(attack.name, words)).await;
    match parse(attack, &ran.stdout) {
        Outcome::Error(detail) => Outcome::Error(format!("{detail} ({:?})", ran.exit)),
        outcome => outcome,
    }
}

fn parse(attack: &Attack, stdout: &str) -> Outcome {
    let line = stdout.lines().find_map(|line| line.strip_prefix(attack.name));
    line.and_then(Outcome::parse).unwrap_or_else(|| Outcome::Error(format!("it printed {stdout:?}")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    Proven,
    Excepted,
    Missing,
}

fn judge_control(mode: Mode, attack: &Attack, control: &Outcome, inside: &Outcome) -> (String, Proof) {
    match (control, inside) {
        (Outcome::Reached(_), _) => return ("it works unsandboxed".to_owned(), Proof::Proven),
        (Outcome::Refused(outside, words), Outcome::Refused(errno, _)) if outside != errno => {
            return (format!("another error unsandboxed, {words}"), Proof::Proven);
        }
        _ => {}
    }
    let listed = EXCEPTIONS
        .iter()
        .find(|exception| exception.attack == attack.name && [mode.outside(), "both"].contains(&exception.mode));
    match listed {
        Some(exception) => (format!("none: {}", exception.reason), Proof::Excepted),
        None => (format!("MISSING ({control})"), Proof::Missing),
    }
}

fn judge(mode: Mode, attack: &Attack, outcome: &Outcome) -> Result<String, String> {
    let difference = DIFFERENT.iter().find(|known| mode.in_container() && known.attack == attack.name);
    let also = difference.map_or(&[][..], |known| known.errors);
    match outcome {
        Outcome::Refused(errno, detail)
            if attack.expect.is_empty() || attack.expect.contains(errno) || also.contains(errno) =>
        {
            Ok(detail.clone())
        }
        Outcome::Refused(_, detail) => Err(format!("refused, but unexpectedly with {detail}")),
        other => Err(other.to_string()),
    }
}

/// A second user of the host finds no set-id files in the workspace.
fn second_user_looks(workspace: &Path, tally: &mut Tally) {
    let output = HostCommand::new("setpriv")
        .args([&format!("--reuid={SECOND_USER}"), &format!("--regid={SECOND_USER}"), "--clear-groups"])
        .args(["find", &workspace.display().to_string(), "-perm", "/6000", "-print"])
        .output();
    // Only root can become another user; an ordinary user sees the same bits.
    let output = match output {
        Ok(output) if output.status.success() => output,
        _ => HostCommand::new("find").arg(workspace).args(["-perm", "/6000", "-print"]).output().expect("find"),
    };
    tally.control("E34", true, "the same calls make set-id files on the host, see above");
    let looked_at = fs::read_dir(workspace).expect("the workspace").count();
    let found = String::from_utf8_lossy(&output.stdout).into_owned();
    tally.expect(
        "E34.second-user-finds-none",
        found.is_empty() && looked_at > 3,
        format!("{looked_at} files, set-id: {found:?}"),
    );
}
