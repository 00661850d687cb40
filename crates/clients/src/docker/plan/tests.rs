//! The request that creates a container, as tables.

use sandbar_guest::protocol::{HostPath, LaunchMount};

use super::*;

fn planned(options: &Options, launch: &Launch) -> Result<ContainerCreateBody> {
    let (engine, spec, image) = (Engine::local(), MachineSpec::default(), Image::default());
    let labels = [("sandbar.session".to_owned(), "x".to_owned())].into();
    body(PlanInput {
        engine: &engine,
        options,
        spec: &spec,
        launch,
        image: &image,
        user: &UserChoice::new(None, None, ""),
        labels,
    })
}

fn shown(host: &str, inside: &str, writable: bool) -> LaunchMount {
    let host = HostPath { path: host.into(), device: 0, inode: 0 };
    LaunchMount { host, inside: inside.into(), writable }
}

#[test]
fn the_default_is_hardened() {
    let body = planned(&Options::default(), &Launch::default()).expect("a plan");
    let host = body.host_config.expect("a host part");
    assert_eq!(body.user.as_deref(), Some("1000:1000"));
    assert_eq!(host.cap_drop, Some(vec!["ALL".to_owned()]));
    assert_eq!((host.cap_add, host.privileged, host.pid_mode, host.devices), (None, None, None, None));
    assert_eq!(host.security_opt, Some(vec!["no-new-privileges:true".to_owned()]));
    assert_eq!(host.network_mode.as_deref(), Some("none"));
    assert_eq!((host.memory, host.memory_swap, host.pids_limit), (Some(4 << 30), Some(4 << 30), Some(1024)));
    assert_eq!(host.log_config.and_then(|log| log.typ).as_deref(), Some("none"));
    assert_eq!((host.auto_remove, body.stdin_once), (Some(true), Some(true)));
    let mounts = host.mounts.expect("mounts");
    let [workspace] = mounts.as_slice() else { panic!("{mounts:?}") };
    assert_eq!(
        (workspace.target.as_deref(), workspace.typ, &workspace.source),
        (Some("/workspace"), Some(MountType::VOLUME), &None)
    );
    assert!(workspace.volume_options.as_ref().is_some_and(|volume| volume.labels == body.labels));
}

#[test]
fn chosen_options_are_in_the_request() {
    let options = Options {
        network: Network::Named("mine".to_owned()),
        memory: 64 << 20,
        cpus: Some(1.5),
        pids: Some(9),
        runtime: Some("runsc".to_owned()),
        read_only: true,
        volumes: vec![("cache".to_owned(), MachinePath::new("/cache").expect("path"))],
        workspace_volume: Some("kept".to_owned()),
        labels: [("mine", "yes"), ("sandbar.session", "another's")].map(|(a, b)| (a.to_owned(), b.to_owned())).into(),
        ..Options::default()
    };
    let body = planned(&options, &Launch::default()).expect("a plan");
    let host = body.host_config.expect("a host part");
    assert_eq!((host.network_mode.as_deref(), host.runtime.as_deref()), (Some("mine"), Some("runsc")));
    assert_eq!((host.memory, host.nano_cpus, host.pids_limit), (Some(64 << 20), Some(1_500_000_000), Some(9)));
    // The guest needs the capabilities only to change the owner of the volumes, then drops them.
    assert_eq!((body.user.as_deref(), host.cap_add.map(|caps| caps.len())), (Some("0:0"), Some(4)));
    let labels = body.labels.expect("labels");
    assert_eq!((labels["mine"].as_str(), labels["sandbar.session"].as_str()), ("yes", "x"));
    assert_eq!(host.readonly_rootfs, Some(true));
    let mounts = host.mounts.expect("mounts").into_iter().map(|mount| (mount.target.unwrap_or_default(), mount.source));
    let named = |name: &str| Some(name.to_owned());
    let expected =
        [("/workspace", named("kept")), ("/.sandbar", None), ("/home/agent", None), ("/cache", named("cache"))];
    assert!(mounts.eq(expected.map(|(target, source)| (target.to_owned(), source))));
}

#[test]
fn a_read_only_mount_is_not_recursive() {
    let mounts = vec![shown("/usr/share", "/a", false), shown("/usr/lib", "/b", true)];
    let body = planned(&Options::default(), &Launch { mounts, ..Launch::default() }).expect("a plan");
    let mounts = body.host_config.and_then(|host| host.mounts).expect("mounts");
    let how = |mount: &Mount| (mount.read_only, mount.bind_options.as_ref().and_then(|bind| bind.non_recursive));
    assert_eq!(
        mounts.iter().skip(1).map(how).collect::<Vec<_>>(),
        [(Some(true), Some(true)), (Some(false), Some(false))]
    );
}

#[test]
fn the_engines_socket_is_never_mounted() {
    for place in ["/var/run/docker.sock", "/run/docker.sock", "/run", "/var/run", "/", "/run/containerd"] {
        let launch = Launch { mounts: vec![shown(place, "/a", false)], ..Launch::default() };
        assert!(planned(&Options::default(), &launch).is_err(), "{place}");
        let workspace = Some((HostPath { path: place.into(), device: 0, inode: 0 }, true));
        assert!(planned(&Options::default(), &Launch { workspace, ..Launch::default() }).is_err(), "{place}");
        let inside = MachinePath::new("/a").expect("path");
        let options = Options { binds: vec![(place.into(), inside, Access::ReadOnly)], ..Options::default() };
        assert!(planned(&options, &Launch::default()).is_err(), "{place}");
    }
}

#[test]
fn odd_limits_are_refused() {
    for cpus in [0.0, -1.0, f64::NAN, 1e12] {
        assert!(planned(&Options { cpus: Some(cpus), ..Options::default() }, &Launch::default()).is_err(), "{cpus}");
    }
    for memory in [0, 1 << 20, u64::MAX] {
        assert!(planned(&Options { memory, ..Options::default() }, &Launch::default()).is_err(), "{memory}");
    }
}
