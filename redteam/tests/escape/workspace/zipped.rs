//! Zip archives made by hand, every number of which can be a lie.

use super::tarball::{BLOCK, CHAR, DIR, FIFO, FILE, LINK, Member, crc32};

/// One member as its two records tell it.
pub(super) struct Zipped {
    pub(super) name: Vec<u8>,
    /// What the record before the bytes says, if it says something else.
    pub(super) other_name: Option<Vec<u8>>,
    pub(super) bytes: Vec<u8>,
    pub(super) method: u16,
    pub(super) crc: u32,
    /// What it says it is when unpacked.
    pub(super) size: u32,
    pub(super) mode: u32,
}

impl Zipped {
    pub(super) fn new(name: &str, bytes: &[u8]) -> Self {
        Self {
            name: name.into(),
            other_name: None,
            bytes: bytes.to_vec(),
            method: 0,
            crc: crc32(bytes),
            size: bytes.len() as u32,
            mode: 0o100_644,
        }
    }

    /// The same member as in a tar archive; `None` if zip archives have no such thing.
    fn of(member: &Member<'_>) -> Option<Self> {
        let Member(kind, name, link, mode, bytes) = member;
        let (kind, bytes) = match *kind {
            FILE => (0o100_000, *bytes),
            DIR => (0o040_000, *bytes),
            LINK => (0o120_000, link.as_bytes()),
            FIFO => (0o010_000, *bytes),
            CHAR => (0o020_000, *bytes),
            BLOCK => (0o060_000, *bytes),
            _ => return None,
        };
        Some(Self { mode: kind | mode, ..Self::new(name, bytes) })
    }

    fn numbers(&self, name: &[u8]) -> Vec<u8> {
        let mut out = self.method.to_le_bytes().to_vec();
        out.extend([0; 4]);
        for number in [self.crc, self.bytes.len() as u32, self.size] {
            out.extend(number.to_le_bytes());
        }
        out.extend((name.len() as u16).to_le_bytes());
        out.extend([0; 2]);
        out
    }
}

pub(super) fn zip(members: &[Member<'_>]) -> Option<Vec<u8>> {
    let members: Option<Vec<Zipped>> = members.iter().map(Zipped::of).collect();
    members.map(|members| zip_of(&members))
}

pub(super) fn zip_of(members: &[Zipped]) -> Vec<u8> {
    let (mut out, mut central) = (Vec::new(), Vec::new());
    for member in members {
        central.extend(b"PK\x01\x02\x14\x03\x14\0\0\0");
        central.extend(member.numbers(&member.name));
        central.extend([0; 6]);
        central.extend((member.mode << 16).to_le_bytes());
        central.extend((out.len() as u32).to_le_bytes());
        central.extend(&member.name);
        let name = member.other_name.as_ref().unwrap_or(&member.name);
        out.extend(b"PK\x03\x04\x14\0\0\0");
        out.extend(member.numbers(name));
        out.extend(name);
        out.extend(&member.bytes);
    }
    let (start, count) = (out.len() as u32, (members.len() as u16).to_le_bytes());
    out.extend(&central);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend([count, count].concat());
    out.extend((central.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0; 2]);
    out
}
