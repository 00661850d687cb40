//! Reports about the container engine: of the doctor, and of commands that need an engine.

use std::{
    fs,
    io::{Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixListener},
    path::Path,
    process::Command,
    thread,
};

use serde_json::Value;

use super::rig::{PATIENCE, Run, Sandbar, finish, has_engine, until};

/// An engine that gives every client the same answer and closes the connection.
fn fake(place: &Path, answer: &'static [u8]) -> String {
    let socket = place.join("engine.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let _asked = stream.read(&mut [0; 1024]);
            let _gone = stream.write_all(answer);
        }
    });
    format!("unix://{}", socket.display())
}

fn run(sandbar: &Sandbar, words: &[&str], engine: &str) -> Run {
    finish(sandbar.command(words).env("DOCKER_HOST", engine).spawn().expect("spawn"))
}

fn engine(sandbar: &Sandbar, address: &str) -> Value {
    let run = run(sandbar, &["doctor", "--json"], address);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""), "an engine is not what `exec` needs: {run:?}");
    let report: Value = serde_json::from_str(&run.stdout).expect("json");
    report["providers"]["docker"].clone()
}

const EXEC: [&str; 5] = ["exec", "--sandbox", "docker:sandbar-test:empty", "--", "true"];

#[test]
fn a_missing_engine_is_reported_once_with_a_fix() {
    let sandbar = Sandbar::own();
    for address in ["unix:///no/such/docker.sock", "tcp://127.0.0.1:1"] {
        let refused = run(&sandbar, &EXEC, address);
        let expected = format!(
            "sandbar: cannot start the machine: cannot reach the Docker engine at {address}: nothing listens there; \
             start one (`systemctl start docker`), or set DOCKER_HOST to where one does\n"
        );
        assert_eq!((refused.code, refused.stderr.as_str()), (125, expected.as_str()), "{refused:?}");
        let told = engine(&sandbar, address);
        assert_eq!((told["reached"].as_bool(), told["address"].as_str()), (Some(false), Some(address)), "{told}");
        assert_eq!(told["reason"], "nothing listens there");
        assert!(told["fix"].as_str().is_some_and(|fix| fix.contains("DOCKER_HOST")), "{told}");
    }
    let shown = run(&sandbar, &["doctor"], "unix:///no/such/docker.sock");
    let line = shown.stdout.lines().find(|line| line.starts_with("docker ")).expect("a line");
    assert!(line.contains("none at unix:///no/such/docker.sock: nothing listens there; start one"), "{line}");
    assert!(engine(&sandbar, "ssh://me@host")["reason"].as_str().is_some_and(|reason| reason.contains("unix://")));
}

#[test]
fn a_forbidden_engine_is_reported_once_with_a_fix() {
    let sandbar = Sandbar::unprivileged();
    let address = fake(sandbar.dir(), b"");
    fs::set_permissions(sandbar.dir().join("engine.sock"), fs::Permissions::from_mode(0o600)).expect("chmod");
    let refused = run(&sandbar, &EXEC, &address);
    assert_eq!((refused.code, refused.stderr.lines().count()), (125, 1), "{refused:?}");
    for words in ["may not open its socket", "group `docker`", "DOCKER_HOST", "rootless"] {
        assert_eq!(refused.stderr.matches(words).count(), 1, "{words}: {refused:?}");
    }
    for words in ["Permission denied", "sandbar doctor", "hyper"] {
        assert!(!refused.stderr.contains(words), "{words}: {refused:?}");
    }
    let told = engine(&sandbar, &address);
    assert_eq!(
        (told["reached"].as_bool(), told["reason"].as_str()),
        (Some(false), Some("this user may not open its socket"))
    );
    assert!(told["fix"].as_str().is_some_and(|fix| fix.contains("docker.sock")), "{told}");
}

#[test]
fn an_invalid_engine_does_not_stop_the_rest_of_the_report() {
    let table: [&'static [u8]; 4] = [
        b"",
        b"\0\xffgarbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\": [",
        b"HTTP/1.1 500 Internal\r\nContent-Length: 11\r\n\r\nwhy\x1b[2Jnot\n",
    ];
    for answer in table {
        let sandbar = Sandbar::own();
        let address = fake(sandbar.dir(), answer);
        let told = engine(&sandbar, &address);
        assert_eq!((told["reached"].as_bool(), told["fix"].is_null()), (Some(false), true), "{answer:?}: {told}");
        assert!(told["reason"].as_str().is_some_and(|reason| reason.contains("was asked to")), "{told}");
        let shown = run(&sandbar, &["doctor"], &address);
        assert!(shown.stdout.contains("reaches full isolation") && !shown.stdout.contains('\x1b'), "{shown:?}");
    }
    // Some numbers are of another kind than expected: that is nonsense too, and no crash.
    let sandbar = Sandbar::own();
    let odd = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"Runtimes\":7}";
    assert_eq!(engine(&sandbar, &fake(sandbar.dir(), odd))["reached"], false);
}

#[test]
fn the_doctor_describes_a_real_engine_and_this_hosts_control_groups() {
    let sandbar = Sandbar::own();
    let mut shown = sandbar.run(&["doctor"]);
    assert!(shown.stdout.lines().any(|line| line.starts_with("cgroups ")), "{shown:?}");
    if !has_engine("sandbar-test:empty") {
        return;
    }
    // One that is busy with something else is not waited for long.
    let mut told = Value::Null;
    until("the engine answers in time", PATIENCE, || {
        (shown, told) = (sandbar.run(&["doctor"]), engine(&sandbar, "unix:///var/run/docker.sock"));
        shown.stdout.contains("images for ") && told["reached"] == true
    });
    assert_eq!((told["reached"].as_bool(), told["platform_fits"].as_bool()), (Some(true), Some(true)), "{told}");
    let own = |format: &str| {
        let output = Command::new("docker").args(["info", "--format", format]).output().expect("the engine's client");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let table = [
        ("version", "{{.ServerVersion}}"),
        ("storage", "{{.Driver}}"),
        ("cgroup_driver", "{{.CgroupDriver}}"),
        ("cgroup_version", "{{.CgroupVersion}}"),
        ("default_runtime", "{{.DefaultRuntime}}"),
    ];
    for (key, format) in table {
        assert_eq!(told[key].as_str(), Some(own(format).as_str()), "{key}: {told}");
    }
    let names = |key: &str| told[key].as_array().expect("a list").clone();
    assert!(names("runtimes").iter().any(|name| name == "runc"), "{told}");
    assert_eq!(told["rootless"].as_bool(), Some(names("security").iter().any(|name| name == "rootless")));
    for words in ["docker ", "images for linux/", "runtimes ", "storage "] {
        assert!(shown.stdout.contains(words), "{words}: {shown:?}");
    }
    let missing = sandbar.run(&["exec", "--sandbox", "docker:127.0.0.1:1/no/such:1", "--", "true"]);
    assert_eq!((missing.code, missing.stderr.lines().count()), (125, 1), "{missing:?}");
    for words in ["cannot be pulled", "docker pull 127.0.0.1:1/no/such:1", "docker build -t 127.0.0.1:1/no/such:1"] {
        assert_eq!(missing.stderr.matches(words).count(), 1, "{words}: {missing:?}");
    }
    assert!(!missing.stderr.contains("sandbar doctor"), "{missing:?}");
}
