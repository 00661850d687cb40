//! Which servers a request may contact: all of them, or only those at public addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Which addresses may be contacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// All addresses: the author of the request may mean this host or its network.
    Anywhere,
    /// Public addresses: an untrusted server chose the target, and this host can reach more than that server.
    Public,
}

impl Reach {
    /// Reach of the next request, whose address this server chose. A server without a known address is not trusted.
    pub(super) fn after(self, server: Option<SocketAddr>) -> Self {
        match server {
            Some(server) if !is_public(server.ip()) => self,
            _ => Self::Public,
        }
    }
}

/// Whether an address is public: not this host, not a private network, and not reserved.
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
        // Carrier-grade NAT.
        || (first == 100 && second & 0xc0 == 64)
        // Protocol assignments, and benchmarks.
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && second & 0xfe == 18);
    !not_public
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let segments = ip.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // IPv4 addresses inside IPv6: mapped, NAT64, 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            embedded(high, low)
        }
        // Documentation, Teredo, and benchmarks.
        [0x2001, 0xdb8, ..] | [0x2001, 0 | 2, ..] => false,
        // All global unicast addresses begin with these three bits.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_and_reserved_addresses_are_not_public() {
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
    fn after_an_untrusted_redirect_only_public_addresses_are_allowed() {
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
}
