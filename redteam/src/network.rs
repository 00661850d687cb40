//! Group G: reaching anything over a network that is off.

use libc::{EAFNOSUPPORT, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EPERM};

use crate::{
    Args, Attack,
    Control::{Host, Namespaces},
    Outcome,
    sys::{addr, addr_mut, at, call, close, inet_address},
};

const FAR: &[i32] = &[ENETUNREACH, EHOSTUNREACH];

/// A socket of a family or protocol that a network namespace does not contain.
macro_rules! family {
    ($name:literal, $promise:literal, $family:expr, $kind:expr, $protocol:expr) => {
        Attack {
            name: $name,
            promise: $promise,
            control: Host,
            expect: &[EAFNOSUPPORT],
            run: |_| Outcome::of(call(libc::SYS_socket, [$family as u64, $kind as u64, $protocol as u64])),
        }
    };
}

pub(crate) const ATTACKS: &[Attack] = &[
    Attack {
        name: "G50.host-loopback",
        promise: "A port of the host's loopback cannot be reached.",
        control: Host,
        expect: &[ECONNREFUSED],
        run: |a| tcp([127, 0, 0, 1], a),
    },
    Attack {
        name: "G50.host-loopback-ipv6",
        promise: "Nor by IPv6.",
        control: Host,
        expect: &[ECONNREFUSED, ENETUNREACH, libc::EADDRNOTAVAIL],
        run: tcp6,
    },
    Attack {
        name: "G50.host-address",
        promise: "No address of the host's network can be reached.",
        control: Host,
        expect: FAR,
        run: |a| {
            a.get("address").parse::<std::net::Ipv4Addr>().map_or_else(
                |_| Outcome::Error("the host has no address".to_owned()),
                |address| tcp(address.octets(), a),
            )
        },
    },
    Attack {
        name: "G50.metadata-service",
        promise: "A cloud's metadata service cannot be reached.",
        control: Host,
        expect: FAR,
        run: |_| datagram([169, 254, 169, 254], 80),
    },
    Attack {
        name: "G50.internet",
        promise: "No packet leaves for the internet.",
        control: Host,
        expect: FAR,
        run: |_| datagram([198, 51, 100, 1], 9),
    },
    Attack {
        name: "G50.broadcast",
        promise: "No packet reaches the local network.",
        control: Host,
        expect: FAR,
        run: |_| datagram([224, 0, 0, 251], 5353),
    },
    Attack {
        name: "G50.raw-socket",
        promise: "Packets cannot be made by hand.",
        control: Namespaces,
        expect: &[EPERM],
        run: |_| Outcome::of(call(libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_RAW as u64, 1])),
    },
    Attack {
        name: "G51.dns",
        promise: "No name can be looked up, so none can carry a secret out.",
        control: Host,
        expect: FAR,
        run: |_| datagram([198, 51, 100, 53], 53),
    },
    family!(
        "G52.vsock",
        "The hypervisor cannot be reached, which no network namespace prevents.",
        libc::AF_VSOCK,
        libc::SOCK_STREAM,
        0
    ),
    family!("G52.packet", "Frames cannot be read from a wire.", libc::AF_PACKET, libc::SOCK_RAW, 0x0300),
    family!("G52.kernel-crypto", "The kernel's crypto sockets cannot be used.", libc::AF_ALG, libc::SOCK_SEQPACKET, 0),
    family!("G52.netlink-generic", "Kernel subsystems cannot be spoken to.", libc::AF_NETLINK, libc::SOCK_RAW, 16),
    family!("G52.netlink-firewall", "The firewall cannot be spoken to.", libc::AF_NETLINK, libc::SOCK_RAW, 12),
    family!("G52.netlink-events", "Device events cannot be listened to.", libc::AF_NETLINK, libc::SOCK_RAW, 15),
    Attack {
        name: "G52.socketpair-of-another-family",
        promise: "Nor by making sockets in pairs.",
        control: Host,
        expect: &[EAFNOSUPPORT],
        run: |_| {
            let mut pair = [0i32; 2];
            Outcome::of(call(
                libc::SYS_socketpair,
                [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0, addr_mut(&mut pair)],
            ))
        },
    },
];

fn tcp(ip: [u8; 4], a: &Args) -> Outcome {
    let address = inet_address(ip, a.number("port") as u16);
    Outcome::of(call(libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_STREAM as u64, 0]).and_then(|socket| {
        let connected = call(libc::SYS_connect, [socket as u64, addr(&address), 16]);
        close(socket as i32);
        connected
    }))
}

fn tcp6(a: &Args) -> Outcome {
    let mut address = [0u8; 28];
    address[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
    address[2..4].copy_from_slice(&(a.number("port6") as u16).to_be_bytes());
    address[23] = 1;
    Outcome::of(call(libc::SYS_socket, [libc::AF_INET6 as u64, libc::SOCK_STREAM as u64, 0]).and_then(|socket| {
        let connected = call(libc::SYS_connect, [socket as u64, addr(&address), 28]);
        close(socket as i32);
        connected
    }))
}

fn datagram(ip: [u8; 4], port: u16) -> Outcome {
    let address = inet_address(ip, port);
    Outcome::of(call(libc::SYS_socket, [libc::AF_INET as u64, libc::SOCK_DGRAM as u64, 0]).and_then(|socket| {
        let sent = call(libc::SYS_sendto, [socket as u64, at(c"x"), 1, 0, addr(&address), 16]);
        close(socket as i32);
        sent
    }))
}
