//! Sockets of container engines and of user agents: a machine that can reach one of them controls the whole host.

use std::{
    env, fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::process::geteuid;
use sandbar_machine::{MachineError, Result};

/// Sockets of system services. They are refused whether they exist or not: a service may start at any time.
const SYSTEM: [&str; 17] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/incus/unix.socket",
    "/var/lib/incus/unix.socket",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/libvirt/libvirt-sock",
    "/run/libvirt/virtqemud-sock",
    "/run/snapd.socket",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/pcscd/pcscd.comm",
];
/// Sockets of the user's services, below `/run/user/UID`.
const RUNTIME: [&str; 9] = [
    "docker.sock",
    "podman/podman.sock",
    "bus",
    "systemd/private",
    "gnupg/S.gpg-agent",
    "keyring/control",
    "ssh-agent.socket",
    "openssh_agent",
    "gcr/ssh",
];
/// Sockets below the user's home. They are refused only if they exist: homes are mounted more often than `/run`.
const HOME: [&str; 9] = [
    ".docker/run/docker.sock",
    ".docker/desktop/docker.sock",
    ".colima/default/docker.sock",
    ".rd/docker.sock",
    ".orbstack/run/docker.sock",
    ".gnupg/S.gpg-agent",
    ".gnupg/S.gpg-agent.ssh",
    ".1password/agent.sock",
    ".bitwarden-ssh-agent.sock",
];
/// Variables that name the socket of an agent or an engine.
const VARIABLES: [&str; 6] =
    ["SSH_AUTH_SOCK", "DOCKER_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "GPG_AGENT_INFO", "BUILDKIT_HOST"];

/// Refuses to mount a path that is, or contains, a socket of an engine or an agent. `more` holds sockets that are known
/// in addition to the usual ones.
pub(crate) fn refuse<'a>(host: &Path, more: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let known = known_from_env().into_iter().chain(more.into_iter().map(Path::to_owned));
    match first_below(host, known) {
        None => Ok(()),
        Some(socket) => Err(MachineError::invalid(
            format!("showing {}", host.display()),
            format!(
                "would show the socket {}, and with it the whole host; show only the directories that are needed",
                socket.display()
            ),
        )),
    }
}

/// The usual sockets, and those that environment variables name.
fn known_from_env() -> Vec<PathBuf> {
    let runtime = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let mut known: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
    known.extend(RUNTIME.iter().map(|name| runtime.join(name)));
    if let Some(home) = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()) {
        known.extend(HOME.iter().map(|name| home.join(name)).filter(|socket| fs::symlink_metadata(socket).is_ok()));
    }
    known.extend(VARIABLES.iter().filter_map(|name| named(&env::var(name).ok()?)));
    known
}

/// The path in `PATH`, `unix://PATH`, `unix:path=PATH,…` or `PATH:PID:1`.
fn named(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix("unix:path=").or_else(|| address.strip_prefix("unix://")).unwrap_or(address);
    let path = path.split([',', ';', ':']).next().unwrap_or_default();
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// The first of these sockets that mounting the path would make visible, under any name.
fn first_below(host: &Path, mut sockets: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let shown = identity(host);
    sockets.find(|socket| {
        let real = fs::canonicalize(socket).unwrap_or_else(|_| socket.clone());
        real.starts_with(host) || socket.starts_with(host) || shown.is_some() && identity(socket) == shown
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::{fs::symlink, net::UnixListener};

    use super::*;

    #[test]
    fn engines_and_agents_are_refused_and_what_is_beside_them_is_not() {
        let refused = |path: &str| refuse(Path::new(path), []).err().map(|error| error.to_string());
        for path in ["/run/docker.sock", "/run", "/", "/run/podman", "/run/user", "/run/containerd"] {
            assert!(refused(path).is_some_and(|why| why.contains("would show the socket /")), "{path}");
        }
        for path in ["/usr", "/etc", "/run/lock", "/home"] {
            assert_eq!(refused(path), None, "{path}");
        }
    }

    #[test]
    fn a_socket_is_known_by_its_name_by_a_link_and_by_another_name() {
        let place = tempfile::tempdir().expect("tempdir");
        let place = fs::canonicalize(place.path()).expect("a path");
        let [socket, link, other] = ["agent.sock", "link", "other"].map(|name| place.join(name));
        let _agent = UnixListener::bind(&socket).expect("a socket");
        symlink(&socket, &link).expect("a link");
        fs::hard_link(&socket, &other).expect("another name");
        for shown in [&place, &socket, &other] {
            for known in [&socket, &link] {
                assert!(refuse(shown, [known.as_path()]).is_err(), "{} of {}", shown.display(), known.display());
            }
        }
        fs::create_dir(place.join("beside")).expect("a directory");
        assert!(refuse(&place.join("beside"), [socket.as_path()]).is_ok());
    }

    #[test]
    fn variables_name_sockets_in_several_ways() {
        let table = [
            ("/tmp/ssh-x/agent.1", Some("/tmp/ssh-x/agent.1")),
            ("unix:///run/user/1000/docker.sock", Some("/run/user/1000/docker.sock")),
            ("unix:path=/run/user/1000/bus,guid=1", Some("/run/user/1000/bus")),
            ("/home/me/.gnupg/S.gpg-agent:0:1", Some("/home/me/.gnupg/S.gpg-agent")),
            ("tcp://localhost:2375", None),
            ("unix:abstract=/tmp/dbus-x", None),
            ("", None),
        ];
        for (address, path) in table {
            assert_eq!(named(address), path.map(PathBuf::from), "{address}");
        }
    }
}
