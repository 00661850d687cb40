//! The request that creates a container, as data.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountBindOptions,
    MountBindOptionsPropagationEnum, MountType, MountVolumeOptions,
};
use sandbar_guest::{host_facts::COVERED, protocol::Launch};
use sandbar_machine::{Access, MachineError, MachinePath, MachineSpec, Result};

use super::{
    Network,
    engine::Engine,
    image::Image,
    options::Options,
    upload::{ETC, GUEST, GUEST_DIR, HOME, HOMES, WORKSPACE},
    users::UserChoice,
};
use crate::sockets;

/// Minimum memory that an engine accepts, in bytes.
const LEAST_MEMORY: u64 = 6 << 20;

/// The input of a plan.
pub(super) struct PlanInput<'a> {
    pub(super) engine: &'a Engine,
    pub(super) options: &'a Options,
    pub(super) spec: &'a MachineSpec,
    pub(super) launch: &'a Launch,
    pub(super) image: &'a Image,
    pub(super) user: &'a UserChoice,
    /// Labels that identify the creator; options cannot replace them.
    pub(super) labels: HashMap<String, String>,
}

/// The whole container.
pub(super) fn body(input: PlanInput<'_>) -> Result<ContainerCreateBody> {
    let PlanInput { engine, options, spec, launch, image, user, labels: ours } = input;
    let mut labels: HashMap<_, _> = options.labels.clone().into_iter().collect();
    labels.extend(ours);
    let powers = powers(options, launch, user);
    let user = if powers.is_empty() { user.text() } else { "0:0" };
    let cap_add = (!powers.is_empty()).then(|| powers.iter().map(|&power| power.to_owned()).collect());
    let mounts = mounts(engine, options, launch, &labels)?;
    let log = HostConfigLogConfig { typ: Some("none".to_owned()), config: None };
    let tmp = format!("rw,exec,nosuid,nodev,mode=1777,size={}", spec.limits.tmp_room());
    let memory = memory(spec.limits.memory.unwrap_or(options.memory))?;
    let host = HostConfig {
        mounts: Some(mounts),
        tmpfs: Some([("/tmp".to_owned(), tmp)].into()),
        shm_size: Some(number("tmp_bytes", spec.limits.tmp_room())?),
        network_mode: Some(network(&options.network, &spec.network)),
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: match spec.limits.cpus {
            Some(share) => Some(i64::from(share.as_thousandths()) * 1_000_000),
            None => options.cpus.map(cpus).transpose()?,
        },
        pids_limit: Some(number("pids", options.pids.unwrap_or(spec.limits.pids))?),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add,
        masked_paths: Some(masked()),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        readonly_rootfs: Some(options.read_only),
        runtime: options.runtime.clone(),
        log_config: Some(log),
        ipc_mode: Some("private".to_owned()),
        auto_remove: Some(true),
        // PID 1 is the guest.
        init: Some(false),
        ..HostConfig::default()
    };
    Ok(ContainerCreateBody {
        image: Some(image.id.clone()),
        user: Some(user.to_owned()),
        hostname: Some("sandbar".to_owned()),
        entrypoint: Some(vec![GUEST.to_owned(), "serve".to_owned()]),
        cmd: Some(Vec::new()),
        working_dir: Some("/".to_owned()),
        // Disables the image's health check, which would run beside the guest.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        open_stdin: Some(true),
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        labels: Some(labels),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    })
}

/// The paths that local machines mask and those that engines mask by default: a list in the request replaces the
/// default.
fn masked() -> Vec<String> {
    let covered = COVERED.iter().map(|name| format!("/proc/{name}"));
    covered.chain(["/proc/timer_stats", "/sys/firmware", "/sys/devices/virtual/powercap"].map(str::to_owned)).collect()
}

/// The capabilities that the guest needs to start. It drops all of them, or keeps those for switching between users and
/// drops these for every command.
fn powers(options: &Options, launch: &Launch, user: &UserChoice) -> Vec<&'static str> {
    let are_many = launch.accounts.need_many();
    // Volumes belong to root, and in a read-only tree nothing can be changed before the start: the guest changes their
    // owner when it starts.
    let settles = options.read_only && (are_many || !user.is_root());
    let mut powers = Vec::new();
    if are_many || settles {
        powers.extend(["SETUID", "SETGID", "SETPCAP"]);
    }
    if are_many {
        powers.push("KILL");
    }
    if settles {
        powers.push("CHOWN");
    }
    powers
}

/// A machine that asks for the host's network gets the engine's: the host's cannot be shared.
fn network(chosen: &Network, asked: &sandbar_machine::Network) -> String {
    match (chosen, asked) {
        (Network::None, sandbar_machine::Network::Off) => "none".to_owned(),
        (Network::None | Network::Bridge, _) => "bridge".to_owned(),
        (Network::Named(name), _) => name.clone(),
    }
}

fn cpus(count: f64) -> Result<i64> {
    if !(0.01..=100_000.0).contains(&count) {
        return Err(MachineError::invalid(format!("cpus {count}"), "must be between 0.01 and what the host has"));
    }
    Ok((count * 1e9) as i64)
}

fn memory(bytes: u64) -> Result<i64> {
    if bytes < LEAST_MEMORY {
        return Err(MachineError::invalid(
            format!("memory of {bytes} bytes"),
            "is less than the 6 MiB an engine demands",
        ));
    }
    number("memory", bytes)
}

fn number(what: &str, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| MachineError::invalid(format!("limit {what}"), "is too large"))
}

fn mounts(engine: &Engine, options: &Options, launch: &Launch, labels: &HashMap<String, String>) -> Result<Vec<Mount>> {
    let volume = |name: Option<&String>, at: &str| Mount {
        target: Some(at.to_owned()),
        source: name.cloned(),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions { labels: Some(labels.clone()), ..MountVolumeOptions::default() }),
        ..Mount::default()
    };
    let mut mounts = Vec::new();
    match &launch.workspace {
        Some((host, writable)) => mounts.push(bind(engine, &path(&host.path), WORKSPACE.to_owned(), *writable)?),
        None => mounts.push(volume(options.workspace_volume.as_ref(), WORKSPACE)),
    }
    if options.read_only {
        mounts.push(volume(None, GUEST_DIR));
        // Engines fill a new volume with the image's files at that path.
        match launch.accounts.need_many() {
            true => mounts.extend([volume(None, ETC), volume(None, HOMES)]),
            false => mounts.push(volume(None, HOME)),
        }
    }
    for (name, inside) in &options.volumes {
        mounts.push(volume(Some(name), &text(inside)?));
    }
    for (host, inside, access) in &options.binds {
        let host = fs::canonicalize(host).unwrap_or_else(|_| host.clone());
        mounts.push(bind(engine, &host, text(inside)?, *access == Access::ReadWrite)?);
    }
    for mount in &launch.mounts {
        let inside = MachinePath::new(OsString::from_vec(mount.inside.clone()))?;
        mounts.push(bind(engine, &path(&mount.host.path), text(&inside)?, mount.writable)?);
    }
    Ok(mounts)
}

fn path(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}

fn text(path: &MachinePath) -> Result<String> {
    let text = path.as_os_str().to_str().map(str::to_owned);
    text.ok_or_else(|| MachineError::invalid(format!("mount at {path}"), "an engine takes only UTF-8 for a path"))
}

fn bind(engine: &Engine, host: &Path, inside: String, writable: bool) -> Result<Mount> {
    sockets::refuse(host, engine.socket())?;
    let Some(source) = host.to_str() else {
        let what = format!("showing {}", host.display());
        return Err(MachineError::invalid(what, "an engine takes only UTF-8 for a path"));
    };
    let options = MountBindOptions {
        propagation: Some(MountBindOptionsPropagationEnum::RPRIVATE),
        // A file system mounted below a read-only bind would stay writable.
        non_recursive: Some(!writable),
        ..MountBindOptions::default()
    };
    Ok(Mount {
        target: Some(inside),
        source: Some(source.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(!writable),
        bind_options: Some(options),
        ..Mount::default()
    })
}

#[cfg(test)]
mod tests;
