//! Tar archives made by hand and packed as tar, tar.gz and tar.zst, honest and otherwise.

/// One member: its kind, name, link target, mode and bytes.
#[derive(Clone, Copy)]
pub(super) struct Member<'a>(
    pub(super) u8,
    pub(super) &'a str,
    pub(super) &'a str,
    pub(super) u32,
    pub(super) &'a [u8],
);

pub(super) const FILE: u8 = b'0';
pub(super) const HARD: u8 = b'1';
pub(super) const LINK: u8 = b'2';
pub(super) const CHAR: u8 = b'3';
pub(super) const BLOCK: u8 = b'4';
pub(super) const DIR: u8 = b'5';
pub(super) const FIFO: u8 = b'6';
pub(super) const LONG_NAME: u8 = b'L';
pub(super) const PAX: u8 = b'x';
pub(super) const PAX_GLOBAL: u8 = b'g';

/// One header, with a size that need not be the truth.
pub(super) fn header(member: &Member<'_>, size: u64) -> [u8; 512] {
    let Member(kind, name, link, mode, _) = member;
    let mut header = [0u8; 512];
    let fill = |field: &mut [u8], text: &str| field[..text.len()].copy_from_slice(text.as_bytes());
    fill(&mut header[..100], name);
    fill(&mut header[100..108], &format!("{mode:07o}"));
    fill(&mut header[108..116], "0000000");
    fill(&mut header[116..124], "0000000");
    fill(&mut header[124..136], &format!("{size:011o}"));
    fill(&mut header[136..148], "00000000000");
    header[156] = *kind;
    fill(&mut header[157..257], link);
    header[257..265].copy_from_slice(b"ustar\x0000");
    fill(&mut header[329..337], "0000001");
    fill(&mut header[337..345], "0000003");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}

pub(super) fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut tar = Vec::new();
    for member in members {
        tar.extend_from_slice(&header(member, member.4.len() as u64));
        tar.extend_from_slice(member.4);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend_from_slice(&[0; 1024]);
    tar
}

/// One record of a pax header, with its own length in front.
pub(super) fn pax(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n").into_bytes()
}

pub(super) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Bytes as a deflate stream that does not compress.
fn deflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let pieces: Vec<&[u8]> = bytes.chunks(0xffff).collect();
    for (at, piece) in pieces.iter().enumerate() {
        let length = piece.len() as u16;
        out.push(u8::from(at + 1 == pieces.len()));
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&(!length).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

const GZIP: &[u8] = b"\x1f\x8b\x08\0\0\0\0\0\0\xff";

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let end = [crc32(bytes).to_le_bytes(), (bytes.len() as u32).to_le_bytes()].concat();
    [GZIP, &deflated(bytes), &end].concat()
}

/// A deflate stream of about so many zeros, 158 of them in a byte: one literal and then "the same 258 times".
pub(super) fn zeros_deflated(count: u64) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(0b011, 3);
    bits.code(0b0011_0000, 8);
    for _ in 0..count / 258 {
        bits.code(0b1100_0101, 8);
        bits.code(0, 5);
    }
    bits.code(0, 7);
    bits.finish()
}

#[derive(Default)]
struct Bits {
    out: Vec<u8>,
    held: u64,
    count: u32,
}

impl Bits {
    fn put(&mut self, bits: u64, count: u32) {
        self.held |= bits << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push(self.held as u8);
            self.held >>= 8;
            self.count -= 8;
        }
    }

    /// A code of Huffman's, which goes the other way round.
    fn code(&mut self, code: u64, count: u32) {
        self.put(code.reverse_bits() >> (64 - count), count);
    }

    fn finish(mut self) -> Vec<u8> {
        self.put(0, 7);
        self.out
    }
}

/// A gzip stream that begins with these bytes and goes on with zeros, without an end.
pub(super) fn gzip_bomb(begin: &[u8], zeros: u64) -> Vec<u8> {
    let mut first = deflated(begin);
    first[0] = 0;
    [GZIP, &first, &zeros_deflated(zeros)].concat()
}

const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd\x00\x38";
const ZSTD_BLOCK: usize = 128 << 10;

fn zstd_block(last: bool, kind: u32, size: usize) -> [u8; 3] {
    let word = (u32::from(last) | kind << 1 | (size as u32) << 3).to_le_bytes();
    [word[0], word[1], word[2]]
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut out = ZSTD.to_vec();
    let pieces: Vec<&[u8]> = bytes.chunks(ZSTD_BLOCK).collect();
    for (at, piece) in pieces.iter().enumerate() {
        out.extend_from_slice(&zstd_block(at + 1 == pieces.len(), 0, piece.len()));
        out.extend_from_slice(piece);
    }
    out
}

/// A Zstandard stream that begins with these bytes and goes on with zeros, 32,768 of them in a byte.
pub(super) fn zstd_bomb(begin: &[u8], zeros: u64) -> Vec<u8> {
    let mut out = ZSTD.to_vec();
    out.extend_from_slice(&zstd_block(false, 0, begin.len()));
    out.extend_from_slice(begin);
    for _ in 0..zeros / ZSTD_BLOCK as u64 {
        out.extend_from_slice(&zstd_block(false, 1, ZSTD_BLOCK));
        out.push(0);
    }
    out.extend_from_slice(&zstd_block(true, 0, 0));
    out
}
