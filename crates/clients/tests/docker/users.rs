//! Several users in one container: their ids, the rights that they cannot get, and what an image needs for them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sandbar_clients::{
    Docker,
    docker::{InnerWalls, Network},
};
use sandbar_machine::{
    Access, Accounts, Command, Lifetime, Machine, MachinePath, MachineSpec, Output, SandboxClient, Target, Workspace,
    collect, once,
};

use crate::bench::{BUSYBOX, DEBIAN, EMPTY, client, engine, has_engine, nonroot, nothing_left, soon};

fn with_users() -> MachineSpec {
    let accounts = Accounts::default().user("ada").user("bob").user("www-data").group("staff", ["bob", "agent"]);
    MachineSpec::default().accounts(accounts)
}

async fn create(client: &Docker, spec: MachineSpec) -> Arc<dyn Machine> {
    soon(client.create(spec)).await.expect("create")
}

const SOON: Duration = Duration::from_secs(60);

/// Output of a script that this user runs.
async fn says(machine: &dyn Machine, user: Option<&str>, script: &str) -> String {
    let mut command = Command::new(["sh", "-c", script]).cwd(MachinePath::root());
    if let Some(user) = user {
        command = command.user(user);
    }
    let mut process = soon(machine.spawn(command)).await.expect("spawn");
    let mut text = Vec::new();
    loop {
        match soon(process.output.recv()).await.transpose().expect("output") {
            Some(Output::Stdout(bytes) | Output::Stderr(bytes)) => text.extend_from_slice(&bytes),
            Some(Output::Omitted(_)) => {}
            Some(Output::Exit(_)) | None => return String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_the_image_and_of_the_machine_are_known_together() {
    if !has_engine().await {
        return;
    }
    for client in [client(DEBIAN), client(DEBIAN).read_only()] {
        let machine = create(&client, with_users()).await;
        assert!(machine.features().users);
        let table = [
            (None, "uid=1000(agent) gid=1000(agent) groups=1000(agent),1003(staff)\n"),
            (Some("agent"), "uid=1000(agent) gid=1000(agent) groups=1000(agent),1003(staff)\n"),
            (Some("ada"), "uid=1001(ada) gid=1001(ada) groups=1001(ada)\n"),
            (Some("bob"), "uid=1002(bob) gid=1002(bob) groups=1002(bob),1003(staff)\n"),
            // Users of the image.
            (Some("www-data"), "uid=33(www-data) gid=33(www-data) groups=33(www-data)\n"),
            (Some("games"), "uid=5(games) gid=60(games) groups=60(games)\n"),
            (Some("root"), "uid=0(root) gid=0(root) groups=0(root)\n"),
        ];
        for (user, expected) in table {
            let expected = expected.replace("1003(staff)", "50(staff)");
            assert_eq!(says(&*machine, user, "id").await, expected, "{user:?}");
        }
        assert_eq!(
            says(&*machine, None, "echo $HOME; cd && : >x && stat -c '%U %a' .").await,
            "/home/agent\nagent 755\n"
        );
        assert_eq!(
            says(&*machine, Some("bob"), "echo $HOME; cd && : >x && stat -c '%U %a' .").await,
            "/home/bob\nbob 700\n"
        );
        assert_eq!(
            says(&*machine, Some("root"), "stat -c '%U %a' /etc/passwd /etc/group").await,
            "root 644\nroot 644\n"
        );
        soon(machine.stop()).await.expect("stop");
    }
}

/// Waits until this many processes sleep.
async fn sleepers(machine: &dyn Machine, wanted: &str) {
    let (begun, mut last) = (Instant::now(), String::new());
    while last != wanted {
        let found = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; cat $p/stat; done 2>&1";
        assert!(begun.elapsed() < SOON, "{last:?}, not {wanted:?}: {}", says(machine, None, found).await);
        last = says(machine, None, "cat /proc/[0-9]*/comm 2>/dev/null | grep -c '^sleep$'").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_user_can_become_another_or_have_powers() {
    if !has_engine().await {
        return;
    }
    for client in [client(DEBIAN), client(DEBIAN).read_only(), client(DEBIAN).network(Network::Bridge)] {
        let machine = create(&client, with_users()).await;
        for layer in ["no capabilities", "landlock", "no_new_privs", "seccomp"] {
            assert!(machine.features().layers.iter().any(|found| found.starts_with(layer)), "{layer}");
        }
        for user in [None, Some("ada"), Some("bob"), Some("root")] {
            let status = says(&*machine, user, "grep -E 'Cap|NoNewPrivs|Seccomp:|Uid' /proc/self/status").await;
            assert_eq!(status.matches("0000000000000000").count(), 5, "{user:?}: {status}");
            assert!(status.contains("NoNewPrivs:\t1") && status.contains("Seccomp:\t2"), "{user:?}: {status}");
            let numbers: std::collections::BTreeSet<&str> = status
                .lines()
                .find_map(|line| line.strip_prefix("Uid:"))
                .expect("numbers")
                .split_whitespace()
                .collect();
            assert_eq!(numbers.len(), 1, "{user:?}: {status}");
            for become_other in [
                "import os; os.setuid(1002 if os.getuid() != 1002 else 1001)",
                "import os; os.setresuid(-1, 0 if os.getuid() else 1000, -1)",
                "import os; os.setgid(50 if os.getgid() != 50 else 0)",
                "import os; os.setgroups([0, 50, 1002])",
                "import os; os.chown('/tmp/own', 1003, 1003)",
                "import os; os.kill(1, 9); os.stat('/proc/1/nothing')",
                "open('/proc/1/environ').read()",
                "open('/proc/1/mem')",
                "open('/.sandbar/guest', 'a')",
            ] {
                let script =
                    format!("touch /tmp/own 2>/dev/null; python3 -c \"{become_other}\" 2>/dev/null && echo done");
                assert_eq!(says(&*machine, user, &script).await, "", "{user:?}: {become_other}");
            }
            says(&*machine, user, "rm -f /tmp/own").await;
            let su = "cp /bin/su /tmp/su 2>/dev/null; su root -c id </dev/null >/dev/null 2>&1 && test $(id -u) != 0 && echo done";
            assert_eq!(says(&*machine, user, su).await, "", "{user:?}");
            says(&*machine, user, "rm -f /tmp/su").await;
        }
        // The whole process tree of another user ends with its command.
        let script = "setsid sleep 1000 >/dev/null 2>&1 & sleep 1000";
        let process = soon(machine.spawn(Command::new(["sh", "-c", script]).user("ada"))).await.expect("spawn");
        sleepers(&*machine, "2\n").await;
        drop(process);
        sleepers(&*machine, "0\n").await;
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_of_a_read_only_image_stay_as_they_were_made() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).read_only().label("sandbar.test", "fixed");
    let machine = create(&client, with_users()).await;
    for place in ["/etc/passwd", "/etc/new", "/usr/new", "/home/new"] {
        let refused = says(&*machine, Some("ada"), &format!("echo x 2>/dev/null >>{place} || echo refused")).await;
        assert_eq!(refused, "refused\n", "{place}");
    }
    for place in ["/etc/passwd", "/etc/new", "/usr/new"] {
        let refused = says(&*machine, Some("root"), &format!("(echo x >>{place}) 2>/dev/null || echo refused")).await;
        assert_eq!(refused, "refused\n", "{place}");
    }
    assert_eq!(says(&*machine, None, "cat /etc/debian_version | grep -c .; cat /etc/hostname").await, "1\nsandbar\n");
    soon(machine.stop()).await.expect("stop");
    nothing_left("sandbar.test=fixed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_without_accounts_gets_them() {
    if !has_engine().await {
        return;
    }
    for client in [client(EMPTY), client(EMPTY).read_only()] {
        let machine = create(&client, with_users()).await;
        let at = |path: &str, user: &str| Target::from(MachinePath::new(path).expect("a path")).user(user);
        soon(machine.write(&at("/home/ada/note", "ada"), once("hers"))).await.expect("her own home");
        assert!(soon(machine.read(&at("/home/ada/note", "bob"))).await.is_err(), "bob reads it");
        let passwd = soon(machine.read(&at("/etc/passwd", "bob"))).await.expect("it is there");
        let passwd = soon(collect(passwd, 1 << 20)).await.expect("it can be read");
        let passwd = String::from_utf8_lossy(&passwd).into_owned();
        assert!(passwd.starts_with("agent:x:1000:1000:") && passwd.contains("\nbob:x:1002:1002:"), "{passwd}");
        assert!(soon(machine.write(&at("/etc/passwd", "bob"), once("x"))).await.is_err());
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_user_is_who_it_would_be_without_others() {
    if !has_engine().await {
        return;
    }
    let machine = create(&nonroot(), with_users()).await;
    assert_eq!(says(&*machine, None, "id -u; id -g; id -un").await, "4321\n1234\nagent\n");
    assert_eq!(says(&*machine, Some("ada"), "id -un").await, "ada\n");
    soon(machine.stop()).await.expect("stop");
    let host = tempfile::tempdir().expect("a directory");
    std::os::unix::fs::chown(host.path(), Some(2345), Some(2345)).expect("another owner");
    let workspace = Workspace::Host { path: host.path().to_owned(), access: Access::ReadWrite };
    let machine = create(&client(BUSYBOX), with_users().workspace(workspace)).await;
    assert_eq!(says(&*machine, None, "id -u; : >/workspace/made && echo made").await, "2345\nmade\n");
    assert_eq!(says(&*machine, Some("ada"), "(: >/workspace/hers) 2>/dev/null || echo refused").await, "refused\n");
    soon(machine.stop()).await.expect("stop");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_there_can_be_only_one_user_more_are_refused_with_the_fix() {
    if !has_engine().await {
        return;
    }
    let table = [
        (client(DEBIAN).user("www-data"), "leave out the user"),
        (client(DEBIAN).user("1000"), "leave out the user"),
        (client(DEBIAN).user("root"), "leave out the user"),
        (client(DEBIAN).inner_walls(InnerWalls::EngineOnly), "InnerWalls::Required"),
    ];
    for (client, fix) in table {
        let client = client.label("sandbar.test", "alone");
        let refused = soon(client.create(with_users())).await.map(drop).expect_err("only one");
        assert_eq!(refused.code(), "users", "{refused}");
        assert!(refused.to_string().contains(fix), "{refused}");
        // The default user `agent` does not count as an additional one.
        let accounts = Accounts::default().user("agent");
        let machine = create(&client, MachineSpec::default().accounts(accounts)).await;
        assert!(!machine.features().users);
        soon(machine.stop()).await.expect("stop");
    }
    nothing_left("sandbar.test=alone").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_has_no_more_powers_than_its_users_take() {
    if !has_engine().await {
        return;
    }
    let table = [
        (client(DEBIAN), MachineSpec::default(), vec![]),
        (client(DEBIAN), with_users(), vec!["KILL", "SETGID", "SETPCAP", "SETUID"]),
        (client(DEBIAN).read_only(), MachineSpec::default(), vec!["CHOWN", "SETGID", "SETPCAP", "SETUID"]),
        (client(DEBIAN).read_only(), with_users(), vec!["CHOWN", "KILL", "SETGID", "SETPCAP", "SETUID"]),
    ];
    for (client, spec, expected) in table {
        let machine = create(&client, spec).await;
        let handle = machine.handle();
        let name = handle.state["container"].as_str().expect("a name");
        let about = soon(engine().inspect_container(name, None)).await.expect("inspect");
        let mut added = about.host_config.and_then(|host| host.cap_add).unwrap_or_default();
        added.sort();
        let added: Vec<&str> = added.iter().map(|name| name.trim_start_matches("CAP_")).collect();
        assert_eq!(added, expected);
        soon(machine.stop()).await.expect("stop");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_still_there_when_a_machine_is_found_again() {
    if !has_engine().await {
        return;
    }
    let client = client(DEBIAN).label("sandbar.test", "again");
    let handle = create(&client, with_users().lifetime(Lifetime::Detached)).await.handle();
    let machine = soon(client.attach(&handle)).await.expect("attach").expect("it lives");
    assert!(machine.features().users);
    assert_eq!(says(&*machine, Some("ada"), "id -un").await, "ada\n");
    // The bridge runs as root, which no command here does.
    let bridge = "for p in /proc/[0-9]*; do case $(cat $p/cmdline 2>/dev/null | tr '\\0' ' ') in \
                  /.sandbar/guest\\ bridge*) \
                  kill -9 ${p#/proc/} 2>/dev/null && echo killed; grep -E 'CapEff|CapPrm' $p/status; esac; done";
    for user in [None, Some("ada"), Some("root")] {
        let said = says(&*machine, user, bridge).await;
        assert_eq!(said, "CapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n", "{user:?}");
    }
    soon(machine.stop()).await.expect("stop");
    nothing_left("sandbar.test=again").await;
}
