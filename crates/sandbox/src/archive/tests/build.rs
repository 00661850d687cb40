//! Builds archives by hand, valid and hostile.

use std::io::{Cursor, Write};

use flate2::{Compress, Compression, Crc, FlushCompress};
use sandbar_machine::tar::{Kind, Member, end, padding};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use super::Format;

/// Description of a member.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) kind: Kind,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) mode: u32,
}

fn given(kind: Kind, path: &str, link: &str, data: &[u8]) -> Given {
    Given { kind, path: path.into(), link: link.into(), data: data.into(), mode: 0o644 }
}

pub(super) fn file(path: &str, data: &[u8]) -> Given {
    given(Kind::File, path, "", data)
}

pub(super) fn dir(path: &str) -> Given {
    Given { mode: 0o755, ..given(Kind::Dir, path, "", b"") }
}

pub(super) fn symlink(path: &str, to: &str) -> Given {
    given(Kind::Symlink, path, to, b"")
}

pub(super) fn hard(path: &str, to: &str) -> Given {
    given(Kind::HardLink, path, to, b"")
}

pub(super) fn special(flag: u8, path: &str) -> Given {
    given(Kind::Other(flag), path, "", b"")
}

pub(super) fn tar(members: &[Given]) -> Vec<u8> {
    let mut out = Vec::new();
    for given in members {
        let mut member = Member::new(given.kind, &given.path, given.mode);
        member.link.clone_from(&given.link);
        member.size = given.data.len() as u64;
        out.extend_from_slice(&member.encode());
        out.extend_from_slice(&given.data);
        out.resize(out.len() + padding(member.size), 0);
    }
    out.extend_from_slice(&end());
    out
}

pub(super) fn compress(tar: &[u8], format: Format) -> Vec<u8> {
    match format {
        Format::TarGz => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(tar).expect("memory");
            encoder.finish().expect("memory")
        }
        Format::TarZst => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
            encoder.include_checksum(true).expect("an option");
            encoder.write_all(tar).expect("memory");
            encoder.finish().expect("memory")
        }
        Format::Tar | Format::Zip => tar.to_vec(),
    }
}

/// A zip archive of these members; `None` if zip cannot hold one of them.
pub(super) fn zip(members: &[Given]) -> Option<Vec<u8>> {
    if members.is_empty() {
        return Some(ZipWriter::new(Cursor::new(Vec::new())).finish().expect("memory").into_inner());
    }
    let mut entries = Vec::new();
    for given in members {
        let (kind, data) = match given.kind {
            Kind::File => (0o100_000, &given.data),
            Kind::Dir => (0o040_000, &given.data),
            Kind::Symlink => (0o120_000, &given.link),
            Kind::Other(b'6') => (0o010_000, &given.data),
            Kind::Other(_) => (0o020_000, &given.data),
            Kind::HardLink => return None,
        };
        entries.push(Zipped { external: (kind | given.mode) << 16, ..Zipped::new(&given.path, data) });
    }
    Some(zip_of(&entries))
}

/// A zip archive as an ordinary program writes it.
pub(super) fn ordinary_zip(members: &[Given]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (at, given) in members.iter().enumerate() {
        let method = if at % 2 == 0 { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let options = SimpleFileOptions::default().compression_method(method).unix_permissions(given.mode);
        let name = String::from_utf8_lossy(&given.path).into_owned();
        match given.kind {
            Kind::Dir => writer.add_directory(name, options).expect("memory"),
            Kind::Symlink => {
                writer.add_symlink(name, String::from_utf8_lossy(&given.link).into_owned(), options).expect("memory");
            }
            _ => {
                writer.start_file(name, options).expect("memory");
                writer.write_all(&given.data).expect("memory");
            }
        }
    }
    writer.finish().expect("memory").into_inner()
}

/// One member of a zip archive; every number can be set to a false value.
#[derive(Clone, Debug)]
pub(super) struct Zipped {
    pub(super) name: Vec<u8>,
    pub(super) local_name: Option<Vec<u8>>,
    pub(super) data: Vec<u8>,
    pub(super) method: u16,
    pub(super) flags: u16,
    pub(super) local_flags: Option<u16>,
    pub(super) crc: u32,
    pub(super) local_crc: Option<u32>,
    pub(super) size: u32,
    pub(super) local_size: Option<u32>,
    pub(super) external: u32,
    pub(super) extra: Vec<u8>,
    pub(super) offset: Option<u32>,
    pub(super) disk: u16,
    /// Its size and checksum come after its content.
    pub(super) late: bool,
    /// Size in a zip64 field.
    pub(super) wide: Option<u64>,
}

impl Zipped {
    pub(super) fn new(name: &[u8], content: &[u8]) -> Self {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(content).expect("memory");
        let data = encoder.finish().expect("memory");
        let mut crc = Crc::new();
        crc.update(content);
        Self {
            name: name.to_vec(),
            local_name: None,
            data,
            method: 8,
            flags: 0,
            local_flags: None,
            crc: crc.sum(),
            local_crc: None,
            size: u32::try_from(content.len()).expect("small"),
            local_size: None,
            external: 0o100_644 << 16,
            extra: Vec::new(),
            offset: None,
            disk: 0,
            late: false,
            wide: None,
        }
    }

    fn flags(&self) -> u16 {
        self.flags | if self.late { 8 } else { 0 }
    }

    /// The zip64 field with the sizes, followed by `extra`.
    fn extra(&self) -> Vec<u8> {
        let mut extra = self.extra.clone();
        if let Some(size) = self.wide {
            let packed = self.data.len() as u64;
            extra.extend([&[1, 0, 16, 0], size.to_le_bytes().as_slice(), &packed.to_le_bytes()].concat());
        }
        extra
    }

    fn sizes(&self) -> [u32; 2] {
        let packed = u32::try_from(self.data.len()).expect("small");
        if self.wide.is_some() { [u32::MAX; 2] } else { [packed, self.size] }
    }

    fn local(&self) -> Vec<u8> {
        let name = self.local_name.as_ref().unwrap_or(&self.name);
        let mut out = b"PK\x03\x04\x14\0".to_vec();
        let extra = self.extra();
        out.extend(self.local_flags.unwrap_or(self.flags()).to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend([0; 4]);
        let [packed, size] = self.sizes();
        let numbers = [self.local_crc.unwrap_or(self.crc), packed, self.local_size.unwrap_or(size)];
        for number in if self.late { [0; 3] } else { numbers } {
            out.extend(number.to_le_bytes());
        }
        out.extend(u16::try_from(name.len()).expect("short").to_le_bytes());
        out.extend(u16::try_from(extra.len()).expect("short").to_le_bytes());
        out.extend(name);
        out.extend(extra);
        out.extend(&self.data);
        if self.late {
            out.extend(b"PK\x07\x08");
            out.extend(self.crc.to_le_bytes());
            out.extend(self.sizes().map(u32::to_le_bytes).concat());
        }
        out
    }

    fn central(&self, offset: u32) -> Vec<u8> {
        let mut out = b"PK\x01\x02\x14\x03\x14\0".to_vec();
        let extra = self.extra();
        out.extend(self.flags().to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend([0; 4]);
        out.extend(self.crc.to_le_bytes());
        out.extend(self.sizes().map(u32::to_le_bytes).concat());
        out.extend(u16::try_from(self.name.len()).expect("short").to_le_bytes());
        out.extend(u16::try_from(extra.len()).expect("short").to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.disk.to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.external.to_le_bytes());
        out.extend(self.offset.unwrap_or(offset).to_le_bytes());
        out.extend(&self.name);
        out.extend(extra);
        out
    }
}

pub(super) fn zip_of(entries: &[Zipped]) -> Vec<u8> {
    zip_records(entries, false)
}

/// A zip archive, with the end records of zip64 if wanted.
pub(super) fn zip_records(entries: &[Zipped], wide: bool) -> Vec<u8> {
    let (mut out, mut central) = (Vec::new(), Vec::new());
    for entry in entries {
        central.extend(entry.central(u32::try_from(out.len()).expect("small")));
        out.extend(entry.local());
    }
    let (start, size, count) = (out.len() as u64, central.len() as u64, entries.len() as u64);
    out.extend(central);
    if wide {
        let place = out.len() as u64;
        out.extend(b"PK\x06\x06");
        out.extend([44, 0x0003_002d_002d].map(u64::to_le_bytes).concat().iter().take(12));
        out.extend([0; 8]);
        out.extend([count, count, size, start].map(u64::to_le_bytes).concat());
        out.extend(b"PK\x06\x07\0\0\0\0");
        out.extend(place.to_le_bytes());
        out.extend(1u32.to_le_bytes());
    }
    out.extend(b"PK\x05\x06\0\0\0\0");
    let count = u16::try_from(count).expect("few").to_le_bytes();
    out.extend([count, count].concat());
    let narrow = |number: u64| if wide { u32::MAX } else { u32::try_from(number).expect("small") };
    out.extend([narrow(size), narrow(start)].map(u32::to_le_bytes).concat());
    out.extend([0; 2]);
    out
}

/// Deflate stream of `count` zeros; fast, since it repeats one independent block.
pub(super) fn zeros(count: u64) -> Vec<u8> {
    let block = vec![0; 16 << 20];
    let mut compressor = Compress::new(Compression::best(), false);
    let mut one = Vec::with_capacity(1 << 20);
    compressor.compress_vec(&block, &mut one, FlushCompress::Full).expect("it fits");
    let times = usize::try_from(count / block.len() as u64).expect("small");
    let mut out = one.repeat(times);
    out.extend([3, 0]);
    out
}

/// Deflate stream of `bytes` that another one can follow.
pub(super) fn stored(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).expect("short");
    [&[0], length.to_le_bytes().as_slice(), &(!length).to_le_bytes(), bytes].concat()
}

/// Gzip stream of deflate streams, without a trailer: no reader should get that far.
pub(super) fn gzip_of(parts: &[&[u8]]) -> Vec<u8> {
    [b"\x1f\x8b\x08\0\0\0\0\0\0\xff".as_slice(), &parts.concat()].concat()
}
