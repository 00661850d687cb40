//! Group E, among the machine's own users: what one of them can do to another's files and processes.

use sandbar_machine::{Accounts, Command, Machine, MachinePath, MachineSpec, Target, collect, once};

use crate::escape::{
    rig::{Rig, run as run_inside, token, until},
    tally::Tally,
};

/// What bob tries on ada, who can do each of them to herself; `PID` is a process of hers.
const ATTACKS: &[(&str, &str)] = &[
    ("E33.users.read-private-file", "cat /home/ada/secret"),
    ("E33.users.list-home", "ls /home/ada"),
    ("E33.users.write-home", "touch /home/ada/planted"),
    ("E33.users.take-a-file-over", "chmod 666 /tmp/shown && echo x >>/tmp/shown"),
    ("E33.users.replace-in-tmp", "cp /tmp/shown /tmp/new.$USER && mv -f /tmp/new.$USER /tmp/shown"),
    ("E33.users.give-a-file-away", "cp /bin/true /tmp/own.$USER && chown ada /tmp/own.$USER"),
    ("E33.users.read-group-file", "cat /tmp/closed"),
    ("E33.users.read-environment", "cat /proc/PID/environ | grep -q TOKEN"),
    ("E33.users.open-a-descriptor", "cat /proc/PID/fd/9"),
    ("E33.users.enter-a-directory", "ls /proc/PID/cwd/"),
    ("E33.users.signal", "kill -CONT PID"),
];

pub(crate) async fn run(rig: &Rig) {
    let mut tally = Tally::new(rig.mode);
    let accounts = Accounts::default().user("ada").user("bob").group("closed", ["ada"]);
    let spec = MachineSpec::default().accounts(accounts);
    let machine = rig.create(spec).await;
    let secret = token();
    let script = format!(
        "cd && umask 077 && echo {secret} >secret && umask 022 && echo {secret} >/tmp/shown && chmod 644 /tmp/shown && \
         (umask 027; echo {secret} >/tmp/closed; chgrp closed /tmp/closed) && exec 9<secret && echo $$ >/tmp/pid && \
         exec sleep 600"
    );
    let ada = Command::new(["sh", "-c", &script]).user("ada").env("TOKEN", &secret);
    let running = machine.spawn(ada).await.expect("a process of ada's");
    // While the process executes `sleep`, no process can read its environment.
    let script = "read pid </tmp/pid && grep -qx sleep /proc/$pid/comm && echo $pid";
    let mut pid = String::new();
    let settled = until(async || {
        let look = Command::new(["sh", "-c", script]).user("ada").cwd(MachinePath::root());
        pid = run_inside(machine.as_ref(), look).await.stdout.trim().to_owned();
        pid.parse::<u32>().is_ok()
    })
    .await;
    assert!(settled, "a process of ada's: {pid}");
    let tried = async |user: &str, attack: &str| {
        let attack = attack.replace("PID", &pid);
        let command = Command::new(["sh", "-c", &attack]).user(user).cwd(MachinePath::root());
        run_inside(machine.as_ref(), command).await.exit.is_some_and(|exit| exit.success())
    };
    for (name, attack) in ATTACKS {
        let reached = tried("bob", attack).await;
        tally.control(name, tried("ada", attack).await, "ada does it to herself");
        tally.expect(name, !reached, *attack);
    }
    groups(machine.as_ref(), &mut tally).await;
    by_the_harness(machine.as_ref(), &secret, &mut tally).await;
    drop(running);
    machine.stop().await.expect("stop");
    tally.finish("users");
}

/// A user cannot join a group, neither by a call nor by a set-id program.
async fn groups(machine: &dyn Machine, tally: &mut Tally) {
    let words = ["setpriv", "--groups", "1003", "true"];
    let works = std::process::Command::new("setpriv").args(&words[1..]).status().is_ok_and(|status| status.success());
    tally.control("E33.users.join-a-group", works, "root of the host does it");
    let joined = run_inside(machine, Command::new(words).user("bob").cwd(MachinePath::root())).await;
    let reached = joined.exit.is_some_and(|exit| exit.success());
    tally.expect("E33.users.join-a-group", !reached, "setgroups with a group of ada's");
}

/// An operation of the harness for one user never has the rights of another user, however quickly they alternate.
async fn by_the_harness(machine: &dyn Machine, secret: &str, tally: &mut Tally) {
    let at = |user: &str| Target::from(MachinePath::new("/home/ada/secret").expect("a path")).user(user);
    let read = async |user: &str| match machine.read(&at(user)).await {
        Ok(bytes) => collect(bytes, 1 << 16).await.is_ok_and(|bytes| bytes.starts_with(secret.as_bytes())),
        Err(_) => false,
    };
    let (mut hers, mut leaked) = (0, 0);
    for _ in 0..500 {
        let target = at("bob");
        let (ada, bob, wrote) = tokio::join!(read("ada"), read("bob"), machine.write(&target, once("x")));
        hers += usize::from(ada);
        leaked += usize::from(bob) + usize::from(wrote.is_ok());
    }
    tally.control("E33.users.turns", hers == 500, "ada reads her own file each time");
    tally.expect("E33.users.turns", leaked == 0, format!("{leaked} of 1000 of bob's went through"));
}
