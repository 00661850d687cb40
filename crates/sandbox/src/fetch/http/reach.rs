//! How far a question may go: anywhere, or only to servers that everybody can reach.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

use super::trouble::causes;

/// Which addresses may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All of them: whoever wrote the address down may have meant this host or its network.
    Anywhere,
    /// Public ones: a stranger chose where to go, and this host can reach what the stranger cannot.
    Public,
}

impl Reach {
    /// How far the next question may go, after this server chose it. A server that nobody can name counts as a stranger.
    pub(super) fn after(self, server: Option<SocketAddr>) -> Self {
        match server {
            Some(server) if !is_public(server.ip()) => self,
            _ => Self::Public,
        }
    }

    /// Whether an address that holds no name but numbers may be asked. Names are judged when they are resolved.
    pub(super) fn allows_literal(self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
        literal.map_or(true, |ip| self.allows(ip))
    }

    fn allows(self, ip: IpAddr) -> bool {
        self == Self::Anywhere || is_public(ip)
    }
}

/// Whether an address is one that everybody can reach, and not this host, its networks, or nobody's.
pub(in crate::fetch) fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [first, second, third, _] = ip.octets();
    let not_public = first == 0
        || ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_multicast()
        || ip.is_documentation()
        // Reserved, and the broadcast address.
        || first >= 240
        // Behind a provider's translation of addresses.
        || (first == 100 && second & 0xc0 == 64)
        // For protocols, and for measurements.
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && second & 0xfe == 18);
    !not_public
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let words = ip.segments();
    let below = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match words {
        // Addresses of IPv4 in other clothes: mapped, translated, tunnelled.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            below(high, low)
        }
        // For documentation and for measurements, and a tunnel that hides its ends.
        [0x2001, 0xdb8, ..] | [0x2001, 0 | 2, ..] => false,
        // Everything that was ever given to the public begins with these three bits.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// Finds servers by name, and refuses those out of reach. What is judged is what is connected to, so a name that changes its
/// meaning gains nothing.
pub(super) struct Names {
    reach: Reach,
    inner: Arc<dyn Resolve>,
}

impl Names {
    /// This host's own resolver, within this reach.
    pub(super) fn new(reach: Reach) -> Self {
        Self { reach, inner: Arc::new(ThisHost) }
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, found) = (self.reach, self.inner.resolve(name));
        Box::pin(async move {
            let found: Vec<SocketAddr> = found.await?.collect();
            if !found.iter().all(|server| reach.allows(server.ip())) {
                return Err(OutOfReach.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

struct ThisHost;

impl Resolve for ThisHost {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A name that leads where it may not.
#[derive(Debug)]
struct OutOfReach;

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address is not a public one")
    }
}

impl std::error::Error for OutOfReach {}

/// Whether a question failed because its name led out of reach.
pub(super) fn was_refused(error: &reqwest::Error) -> bool {
    causes(error).any(|cause| cause.is::<OutOfReach>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_not_everybody_can_reach_are_known() {
        let public = ["1.1.1.1", "8.8.8.8", "100.63.0.1", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.0.1.1"];
        let public_six = ["2606:4700::1111", "2a00::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"];
        for ip in public.iter().chain(&public_six) {
            assert!(is_public(ip.parse().unwrap()), "{ip}");
        }
        let not = [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.18.0.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "febf::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "fec0::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::1",
            "2001:db8::1",
            "2001::1",
        ];
        for ip in not {
            assert!(!is_public(ip.parse().unwrap()), "{ip}");
        }
    }

    #[test]
    fn numbers_are_judged_however_they_are_written() {
        let table = [
            ("http://1.1.1.1/", true),
            ("http://[2606:4700::1111]/", true),
            ("http://example.org/", true),
            ("http://127.0.0.1:8080/", false),
            ("http://127.1/", false),
            ("http://2130706433/", false),
            ("http://0x7f.0.0.1/", false),
            ("http://0177.0.0.1/", false),
            ("http://127.0.0.1./", false),
            ("http://169.254.169.254/latest/meta-data", false),
            ("http://[::1]/", false),
            ("http://[::ffff:10.0.0.1]/", false),
            ("http://0/", false),
        ];
        for (text, public) in table {
            let url = Url::parse(text).unwrap();
            assert_eq!(Reach::Public.allows_literal(&url), public, "{text}");
            assert!(Reach::Anywhere.allows_literal(&url));
        }
    }

    #[test]
    fn once_a_stranger_chose_the_way_it_stays_public() {
        let server = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        let table = [
            (Reach::Anywhere, server("127.0.0.1:80"), Reach::Anywhere),
            (Reach::Anywhere, server("10.0.0.1:80"), Reach::Anywhere),
            (Reach::Anywhere, server("1.1.1.1:80"), Reach::Public),
            (Reach::Anywhere, None, Reach::Public),
            (Reach::Public, server("127.0.0.1:80"), Reach::Public),
            (Reach::Public, server("1.1.1.1:80"), Reach::Public),
        ];
        for (before, server, after) in table {
            assert_eq!(before.after(server), after, "{before:?} {server:?}");
        }
    }

    struct Says(Vec<SocketAddr>);

    impl Resolve for Says {
        fn resolve(&self, _name: Name) -> Resolving {
            let found = self.0.clone();
            Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
        }
    }

    #[tokio::test]
    async fn a_name_is_refused_if_any_of_its_addresses_is_out_of_reach() {
        let table = [
            (Reach::Public, vec!["1.1.1.1:0"], true),
            (Reach::Public, vec!["127.0.0.1:0"], false),
            (Reach::Public, vec!["1.1.1.1:0", "10.0.0.1:0"], false),
            (Reach::Public, vec!["1.1.1.1:0", "[fe80::1]:0"], false),
            (Reach::Anywhere, vec!["127.0.0.1:0"], true),
        ];
        for (reach, addresses, fine) in table {
            let found: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            let names = Names { reach, inner: Arc::new(Says(found.clone())) };
            let resolved = names.resolve("rebound.example".parse().unwrap()).await;
            assert_eq!(resolved.is_ok(), fine, "{addresses:?}");
            if let Ok(resolved) = resolved {
                assert_eq!(resolved.collect::<Vec<_>>(), found);
            }
        }
    }
}
