//! Promises about several users on one machine: files of a user are private, and a group gives access to its members only.

use super::rig::{Ran, Rig, finish, once_written, soon};
use crate::{Accounts, Command, MachinePath, MachineSpec, SandboxClient, Target, once};

/// A machine with the users ada, bob and eve; bob and eve are in the group staff.
fn staffed() -> MachineSpec {
    MachineSpec::default().accounts(Accounts::default().user("ada").user("bob").group("staff", ["bob", "eve"]))
}

async fn rig(client: &dyn SandboxClient) -> Rig {
    Rig::with(client, staffed()).await
}

fn path(text: &str) -> MachinePath {
    MachinePath::new(text).expect("a path")
}

async fn run_as(rig: &Rig, user: &str, words: &[&str]) -> Ran {
    rig.run(Command::new(words.iter().copied()).user(user).cwd(MachinePath::root())).await
}

/// Writes a file as this user.
async fn put_as(rig: &Rig, user: &str, at: &str, mode: u32) {
    let target = Target::from(path(at)).user(user).mode(mode);
    soon("write", rig.machine.write(&target, once(format!("{user}'s")))).await.expect("the file is written");
}

/// A machine creates the users of its specification, each with its own number, groups and home. A client that cannot create
/// users refuses the machine.
pub async fn a_machine_knows_its_users_or_is_not_made(client: &dyn SandboxClient) {
    let rig = match soon("create", client.create(staffed())).await {
        Ok(machine) => Rig { machine },
        Err(error) => {
            assert_eq!(error.code(), "users", "{error}");
            let plain = Rig::new(client).await;
            return assert!(!plain.machine.features().users, "a machine that could have users does: {error}");
        }
    };
    assert!(rig.machine.features().users, "a machine with users says so");
    let said = |ran: Ran| ran.text();
    let mut numbers = Vec::new();
    for (user, groups) in [("ada", "ada"), ("bob", "bob staff"), ("eve", "eve staff")] {
        assert_eq!(said(run_as(&rig, user, &["id", "-un"]).await), format!("{user}\n"));
        assert_eq!(said(run_as(&rig, user, &["id", "-Gn"]).await), format!("{groups}\n"));
        let told =
            said(run_as(&rig, user, &["sh", "-c", r#"echo "$HOME $USER"; cd && : >mine && stat -c %a ."#]).await);
        assert_eq!(told, format!("/home/{user} {user}\n700\n"));
        numbers.push(said(run_as(&rig, user, &["id", "-u"]).await));
    }
    assert_eq!(numbers, ["1001\n", "1002\n", "1003\n"]);
    assert_eq!(rig.run(Command::new(["id", "-un"])).await.text(), "agent\n", "the default user stays");
    assert!(soon("spawn", rig.machine.spawn(Command::new(["id"]).user("mallory"))).await.is_err());
}

/// What only its owner may read is closed to others, by command and by every file operation.
pub async fn what_is_private_to_one_user_is_closed_to_another(client: &dyn SandboxClient) {
    let rig = rig(client).await;
    put_as(&rig, "ada", "/tmp/open", 0o644).await;
    put_as(&rig, "ada", "/tmp/secret", 0o600).await;
    let at = |file: &str, user: &str| Target::from(path(file)).user(user);
    for user in ["ada", "bob"] {
        assert!(run_as(&rig, user, &["cat", "/tmp/open"]).await.exit.success(), "{user} can");
        let read = rig.read(&at("/tmp/open", user)).await.expect("it is readable");
        assert!(read.starts_with(b"ada's"));
        let may = user == "ada";
        assert_eq!(run_as(&rig, user, &["cat", "/tmp/secret"]).await.exit.success(), may);
        assert_eq!(rig.read(&at("/tmp/secret", user)).await.is_ok(), may);
        assert_eq!(run_as(&rig, user, &["sh", "-c", "echo x >>/tmp/open"]).await.exit.success(), may);
        assert_eq!(soon("list", rig.machine.list(&at("/home/ada", user))).await.is_ok(), may);
        let wrote = soon("write", rig.machine.write(&at("/home/ada/in", user), once("x"))).await;
        assert_eq!(wrote.is_ok(), may);
    }
    for (what, done) in [
        ("replaced", soon("write", rig.machine.write(&at("/tmp/open", "bob"), once("x"))).await),
        ("removed", soon("remove", rig.machine.remove(&at("/tmp/open", "bob"))).await),
        ("renamed", soon("rename", rig.machine.rename(&at("/tmp/open", "bob"), &at("/tmp/new", "bob"))).await),
    ] {
        assert!(done.is_err(), "a file of ada's was {what} by bob");
    }
    assert_eq!(rig.read(&at("/tmp/secret", "ada")).await.expect("it is untouched"), "ada's");
    // The default user has no special rights.
    assert!(rig.read(&Target::from(path("/tmp/secret"))).await.is_err());
}

/// A file that its group may read is readable for members of the group and for no other user.
pub async fn a_group_opens_to_its_members_only(client: &dyn SandboxClient) {
    let rig = rig(client).await;
    let given = run_as(&rig, "bob", &["sh", "-c", "umask 027; echo x >/tmp/ours && chgrp staff /tmp/ours"]).await;
    assert!(given.exit.success(), "{}", String::from_utf8_lossy(&given.stderr));
    for (user, may) in [("bob", true), ("eve", true), ("ada", false), ("agent", false)] {
        assert_eq!(run_as(&rig, user, &["cat", "/tmp/ours"]).await.exit.success(), may, "{user}");
        let target = Target::from(path("/tmp/ours")).user(user);
        assert_eq!(rig.read(&target).await.is_ok(), may, "{user}");
    }
    let taken = run_as(&rig, "ada", &["sh", "-c", "echo x >/tmp/mine && chgrp staff /tmp/mine"]).await;
    assert!(!taken.exit.success(), "ada gave a file to a group she is not in");
}

/// A file or directory that is made for a group belongs to it, and a replaced file keeps its group.
pub async fn what_is_made_for_a_group_belongs_to_it(client: &dyn SandboxClient) {
    let rig = rig(client).await;
    let file = rig.at("shared").group("staff").mode(0o640);
    soon("write", rig.machine.write(&file, once("one"))).await.expect("the file is written");
    let owner = async || rig.run(Command::new(["stat", "-c", "%U %G %a", "shared"])).await.text();
    assert_eq!(owner().await, "agent staff 640\n");
    soon("write", rig.machine.write(&rig.at("shared"), once("two"))).await.expect("the file is replaced");
    assert_eq!(owner().await, "agent staff 640\n");
    for (user, may) in [("eve", true), ("ada", false)] {
        assert_eq!(rig.read(&rig.at("shared").user(user)).await.is_ok(), may, "{user}");
    }
    assert!(soon("write", rig.machine.write(&rig.at("x").group("nowhere"), once("x"))).await.is_err());
    let dir = rig.at("room").group("staff").mode(0o770);
    match soon("make_dir", rig.machine.make_dir(&dir)).await {
        Ok(()) => assert_eq!(rig.run(Command::new(["stat", "-c", "%G %a", "room"])).await.text(), "staff 770\n"),
        Err(error) => assert_eq!(error.code(), "unsupported", "{error}"),
    }
}

/// A user cannot read or signal the processes of another user, but can see that they exist.
pub async fn one_users_processes_are_closed_to_another(client: &dyn SandboxClient) {
    let rig = rig(client).await;
    // No `exec` at the end: while a process executes another program, its variables cannot be read.
    let script = "echo $$ >/tmp/pid.new && mv /tmp/pid.new /tmp/pid; while :; do sleep 1; done";
    let running =
        rig.spawn(Command::new(["sh", "-c", script]).user("ada").env("SECRET", "s3").cwd(MachinePath::root()));
    let running = running.await;
    let pid = once_written(&rig, &path("/tmp/pid")).await;
    for (user, may) in [("bob", false), ("agent", false), ("ada", true)] {
        let read = run_as(&rig, user, &["cat", &format!("/proc/{pid}/environ")]).await;
        assert_eq!(read.text().contains("SECRET=s3"), may, "{user} reads variables of ada's");
        let killed = run_as(&rig, user, &["sh", "-c", &format!("kill -TERM {pid}")]).await;
        assert_eq!(killed.exit.success(), may, "{user} kills a process of ada's");
    }
    assert_eq!(finish(running).await.exit.code, 128 + 15);
}
