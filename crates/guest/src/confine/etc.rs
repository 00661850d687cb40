//! A synthetic `/etc`: what programs need to run, nothing that says whose host this is.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::{
        fd::BorrowedFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};

use super::root::{self, Source};
use crate::failure::{Setup, Step};

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n\
                      nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1\tlocalhost sandbar\n::1\tlocalhost ip6-localhost ip6-loopback\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n\
                        protocols: files\nnetworks: files\n";

/// Taken from the host as they are: how programs find each other, certificates, time zone, terminals.
const FROM_HOST: &[&str] = &[
    "alternatives",
    "bash.bashrc",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "os-release",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "rpc",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Language runtimes keep configuration they cannot start without in directories named like this.
const FROM_HOST_BY_PREFIX: &[&str] = &["java-", "python2", "python3", "perl"];

/// Small files are copied: cheaper than a mount, now and when the machine ends.
const COPY_AT_MOST: u64 = 8 * 1024;

/// Fills `new_root/etc`.
pub(crate) fn build(new_root: BorrowedFd<'_>, host_network: bool) -> Setup<()> {
    root::directory(new_root, b"etc", 0o755)?;
    let mut from_host: Vec<String> = FROM_HOST.iter().map(|name| (*name).to_owned()).collect();
    from_host.extend(by_prefix());
    if host_network {
        from_host.extend(["resolv.conf".to_owned(), "hosts".to_owned()]);
    } else {
        put(new_root, "resolv.conf", "")?;
        put(new_root, "hosts", HOSTS)?;
    }
    for name in from_host {
        bring(new_root, &name)?;
    }
    put(new_root, "passwd", PASSWD)?;
    put(new_root, "group", GROUP)?;
    put(new_root, "nsswitch.conf", NSSWITCH)?;
    put(new_root, "hostname", "sandbar\n")?;
    put(new_root, "shells", "/bin/sh\n/bin/bash\n")?;
    put(new_root, "profile", "export PATH\n")
}

fn by_prefix() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/etc") else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| FROM_HOST_BY_PREFIX.iter().any(|prefix| name.starts_with(prefix))).collect()
}

fn put(new_root: BorrowedFd<'_>, name: &str, text: &str) -> Setup<()> {
    write(new_root, name, text.as_bytes()).step(&format!("write /etc/{name}"))
}

fn write(new_root: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(new_root, format!("etc/{name}"), flags, Mode::from_raw_mode(0o644))?;
    std::fs::File::from(file).write_all(bytes)
}

/// Shows one thing of the host's `/etc`: a link as a link, a small file as a copy, anything else as a mount. What is
/// missing or unreadable is left out.
fn bring(new_root: BorrowedFd<'_>, name: &str) -> Setup<()> {
    let host = format!("/etc/{name}");
    let follow = if name == "resolv.conf" { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
    let Ok(stat) = rustix::fs::statat(CWD, host.as_str(), follow) else { return Ok(()) };
    let inside = format!("etc/{name}");
    if let Some((parent, _)) = inside.rsplit_once('/') {
        root::directory(new_root, parent.as_bytes(), 0o755)?;
    }
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => {
            let Ok(target) = std::fs::read_link(&host) else { return Ok(()) };
            let target = target.into_os_string().into_vec();
            rustix::fs::symlinkat(OsStr::from_bytes(&target), new_root, inside.as_str())
                .step(&format!("link /etc/{name}"))
        }
        FileType::RegularFile if stat.st_size as u64 <= COPY_AT_MOST => {
            let Ok(bytes) = std::fs::read(&host) else { return Ok(()) };
            write(new_root, name, &bytes).step(&format!("copy /etc/{name}"))
        }
        FileType::RegularFile | FileType::Directory => {
            let Ok(source) = Source::named(&host) else { return Ok(()) };
            source.read_only().step(&format!("protect /etc/{name}"))?.show(new_root, inside.as_bytes())
        }
        _ => Ok(()),
    }
}

/// Whether a file of the host's `/etc` is one that machines see; for the Landlock level, where `/etc` is the real one.
pub(crate) fn visible() -> impl Iterator<Item = String> {
    let fixed = FROM_HOST.iter().map(|name| format!("/etc/{name}"));
    let accounts = ["passwd", "group", "nsswitch.conf", "hosts", "hostname", "resolv.conf", "host.conf", "profile"];
    fixed
        .chain(by_prefix().into_iter().map(|name| format!("/etc/{name}")))
        .chain(accounts.into_iter().map(|name| format!("/etc/{name}")))
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_secret_is_on_the_list() {
        for secret in ["/etc/shadow", "/etc/ssl/private", "/etc/ssl", "/etc/ssh", "/etc/sudoers", "/etc/gshadow"] {
            assert!(super::visible().all(|name| name != secret), "{secret}");
        }
    }
}
