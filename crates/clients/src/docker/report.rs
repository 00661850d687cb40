//! What an engine reports about itself, as far as machines need it.

use std::fmt::Display;

use bollard::models::{SystemInfo, SystemVersion};
use sandbar_machine::Result;
use serde::Serialize;

use super::{engine::Engine, image::processor};

/// Maximum number of characters of a text, and of entries in a list.
const LETTERS: usize = 200;
const NAMES: usize = 50;

/// The description of an engine that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EngineReport {
    /// Address of the engine.
    pub address: String,
    /// Version of the engine.
    pub version: String,
    /// Version of the engine's API.
    pub api_version: String,
    /// Whether the engine runs without root, so that a process that escapes from a container is not root.
    pub rootless: bool,
    /// Names of the runtimes.
    pub runtimes: Vec<String>,
    /// Name of the default runtime.
    pub default_runtime: String,
    /// The engine's security features: `seccomp`, `apparmor`, `selinux`, `userns`, …
    pub security: Vec<String>,
    /// Version of the control groups that limit containers.
    pub cgroup_version: String,
    /// The driver of the control groups.
    pub cgroup_driver: String,
    /// The storage driver of images and containers.
    pub storage: String,
    /// Platform of the engine's images, like `linux/amd64`.
    pub platform: String,
    /// Whether this program's guest runs on that platform.
    pub platform_fits: bool,
    /// Limits that the engine cannot enforce.
    pub unlimited: Vec<String>,
}

impl Engine {
    /// Requests the description of the engine.
    ///
    /// # Errors
    /// [`sandbar_machine::MachineError::Start`] if the engine does not answer; its source is
    /// [`crate::registry::Unreachable`] if the engine cannot be reached.
    pub async fn describe(&self) -> Result<EngineReport> {
        let docker = self.connect()?;
        let info = self.ask("describe itself", docker.info()).await?;
        let version = self.ask("tell its version", docker.version()).await?;
        Ok(report(self.to_string(), info, version))
    }
}

fn report(address: String, info: SystemInfo, version: SystemVersion) -> EngineReport {
    let (os, arch) = (or_unknown(version.os.or(info.os_type)), or_unknown(version.arch.or(info.architecture)));
    let arch = processor(&arch).to_owned();
    let security: Vec<String> =
        info.security_options.unwrap_or_default().iter().take(NAMES).map(|option| named(option)).collect();
    let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().take(NAMES).map(short).collect();
    runtimes.sort_unstable();
    let limits = [("memory", info.memory_limit), ("processes", info.pids_limit), ("cpu", info.cpu_cfs_quota)];
    let unlimited = limits.iter().filter(|(_, can)| *can != Some(true)).map(|(name, _)| (*name).to_owned()).collect();
    EngineReport {
        address,
        version: or_unknown(info.server_version.or(version.version)),
        api_version: or_unknown(version.api_version),
        rootless: security.iter().any(|name| name == "rootless"),
        runtimes,
        default_runtime: or_unknown(info.default_runtime),
        security,
        cgroup_version: or_unknown(info.cgroup_version),
        cgroup_driver: or_unknown(info.cgroup_driver),
        storage: or_unknown(info.driver),
        platform_fits: os == "linux" && arch == processor(std::env::consts::ARCH),
        platform: format!("{os}/{arch}"),
        unlimited,
    }
}

/// The name in `name=seccomp,profile=default`.
fn named(option: &str) -> String {
    let parts = option.split(',').find_map(|part| part.strip_prefix("name="));
    short(parts.unwrap_or(option))
}

fn or_unknown(value: Option<impl Display>) -> String {
    value.map(short).filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

fn short(value: impl Display) -> String {
    value.to_string().chars().take(LETTERS).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn an_engine_is_described_whatever_it_leaves_out() {
        let empty = report("unix:///x".to_owned(), SystemInfo::default(), SystemVersion::default());
        assert_eq!((empty.version.as_str(), empty.platform.as_str()), ("unknown", "unknown/unknown"));
        assert!(!empty.platform_fits && !empty.rootless && empty.unlimited.len() == 3);
        let runtimes = ["runsc", "runc"].map(|name| (name.to_owned(), bollard::models::Runtime::default()));
        let info = SystemInfo {
            server_version: Some("27.1".to_owned()),
            security_options: Some(["name=seccomp,profile=builtin", "name=rootless", "odd"].map(str::to_owned).into()),
            runtimes: Some(HashMap::from(runtimes)),
            memory_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(false),
            os_type: Some("linux".to_owned()),
            architecture: Some(std::env::consts::ARCH.to_owned()),
            driver: Some("x".repeat(5000)),
            ..SystemInfo::default()
        };
        let told = report("unix:///x".to_owned(), info, SystemVersion::default());
        assert!(told.rootless && told.platform_fits, "{told:?}");
        assert_eq!(told.security, ["seccomp", "rootless", "odd"]);
        assert_eq!((told.runtimes.join(" "), told.unlimited.join(" ")), ("runc runsc".to_owned(), "cpu".to_owned()));
        assert_eq!(told.storage.len(), LETTERS);
    }
}
