//! Decompression of answers: gzip and brotli, piece by piece, each piece as soon as possible.

use std::io::{self, Write};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};
use bytes::{Buf, Bytes};
use flate2::write::MultiGzDecoder;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};

/// The content encodings that requests accept.
pub(crate) const ACCEPTED: &str = "gzip, br";

/// Bytes of a gzip stream that are decompressed at once: one byte can become a thousand.
const INPUT: usize = 1 << 10;
/// Maximum number of bytes that a brotli stream yields at once: a few bytes can become millions.
const OUTPUT: usize = 64 << 10;
/// Maximum size of a decompressed answer. Lines and events have smaller limits of their own; this one is for everything
/// else.
const LARGEST: u64 = 1 << 30;

type Brotli = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

enum Coding {
    Identity,
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Brotli(Box<Brotli>),
    /// An unsupported encoding.
    Unknown(String),
}

/// A body that is being decompressed.
pub(crate) struct Body {
    coding: Coding,
    /// Bytes that arrived and are not decompressed yet.
    input: Bytes,
    /// Number of decompressed bytes that may still follow.
    room: u64,
}

impl Body {
    /// The body that these headers describe.
    pub(crate) fn new(headers: &HeaderMap) -> Self {
        let named = headers.get_all(CONTENT_ENCODING).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let named = named.collect::<Vec<_>>().join(", ").trim().to_lowercase();
        let coding = match named.as_str() {
            "" | "identity" => Coding::Identity,
            "gzip" | "x-gzip" => Coding::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            "br" => {
                let alloc = StandardAlloc::default;
                Coding::Brotli(Box::new(BrotliState::new(alloc(), alloc(), alloc())))
            }
            other => Coding::Unknown(other.chars().take(100).collect()),
        };
        Self { coding, input: Bytes::new(), room: LARGEST }
    }

    /// A body that is not compressed.
    pub(crate) fn plain() -> Self {
        Self { coding: Coding::Identity, input: Bytes::new(), room: LARGEST }
    }

    /// Whether the body is not compressed.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.coding, Coding::Identity)
    }

    /// Adds bytes that arrived; only after [`next`](Self::next) returned `None`.
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.input = piece;
    }

    /// The next decompressed bytes, in bounded pieces; `None` if more input is needed.
    ///
    /// # Errors
    /// If the bytes are not valid in their encoding, or too many.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, String> {
        let (name, plain) = match &mut self.coding {
            Coding::Identity => return Ok(Some(std::mem::take(&mut self.input)).filter(|piece| !piece.is_empty())),
            Coding::Gzip(decoder) => ("gzip", gunzip(decoder, &mut self.input)),
            Coding::Brotli(state) => ("br", unbrotli(state, &mut self.input)),
            Coding::Unknown(name) => {
                return Err(format!("it has the content encoding {name:?}, and only gzip and br can be read"));
            }
        };
        let plain = plain.map_err(|error| format!("it is no valid {name}: {error}"))?;
        let size = plain.as_ref().map_or(0, Bytes::len) as u64;
        let too_large = || format!("it is larger than {LARGEST} bytes when decompressed");
        self.room = self.room.checked_sub(size).ok_or_else(too_large)?;
        Ok(plain)
    }
}

fn gunzip(decoder: &mut MultiGzDecoder<Vec<u8>>, input: &mut Bytes) -> io::Result<Option<Bytes>> {
    while !input.is_empty() {
        let some = input.split_to(input.len().min(INPUT));
        decoder.write_all(&some)?;
        // Returns what is decompressed so far, instead of waiting for a full buffer.
        decoder.flush()?;
        if !decoder.get_ref().is_empty() {
            return Ok(Some(std::mem::take(decoder.get_mut()).into()));
        }
    }
    Ok(None)
}

fn unbrotli(state: &mut Brotli, input: &mut Bytes) -> io::Result<Option<Bytes>> {
    let mut output = vec![0; OUTPUT];
    let (mut read, mut written, mut total) = (0, 0, 0);
    let (mut available_in, mut available_out) = (input.len(), output.len());
    let result = BrotliDecompressStream(
        &mut available_in,
        &mut read,
        input,
        &mut available_out,
        &mut written,
        &mut output,
        &mut total,
        state,
    );
    input.advance(read);
    match result {
        BrotliResult::ResultFailure => return Err(io::Error::other("it is damaged")),
        BrotliResult::ResultSuccess if read == 0 && written == 0 && !input.is_empty() => {
            return Err(io::Error::other("something follows its end"));
        }
        BrotliResult::ResultSuccess | BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
    }
    output.truncate(written);
    Ok(Some(Bytes::from(output)).filter(|plain| !plain.is_empty()))
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};
    use reqwest::header::HeaderValue;

    use super::*;

    fn body(encoding: &'static str) -> Body {
        Body::new(&HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(encoding))]))
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).expect("compress");
        encoder.finish().expect("compress")
    }

    /// 64 MiB of line breaks.
    const BROTLI_BOMB: &[u8] = &[
        0xcf, 0xff, 0xff, 0x7f, 0xf8, 0x25, 0x14, 0xe2, 0xb1, 0x40, 0x20, 0xf7, 0xfe, 0x9f, 0xff, 0xff, 0xff, 0xf0,
        0x4b, 0x00, 0xc4, 0x61, 0x01, 0x80, 0xee, 0xfd, 0x3f, 0xff, 0xff, 0xff, 0xe1, 0x97, 0x00, 0x88, 0xc3, 0x22,
        0x00, 0xdd, 0xfb, 0xff, 0xfc, 0xff, 0xff, 0xc7, 0x2f, 0x01, 0x10, 0x87, 0x05, 0x00, 0xba, 0xf7, 0xff,
    ];

    /// Encodes a text as uncompressed brotli: the window's size, one block, and the empty block at the end.
    fn brotli(text: &[u8]) -> Vec<u8> {
        let bits = (text.len() as u32 - 1) << 4 | 1 << 20;
        let header = bits.to_le_bytes();
        [&header[..3], text, &[3]].concat()
    }

    fn all(body: &mut Body, pieces: impl Iterator<Item = Vec<u8>>) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        for piece in pieces {
            body.push(piece.into());
            while let Some(more) = body.next()? {
                assert!(more.len() <= 2 << 20, "{} bytes at once", more.len());
                plain.extend_from_slice(&more);
            }
        }
        Ok(plain)
    }

    #[test]
    fn a_body_is_the_same_however_it_is_cut() {
        let text = b"data: one\n\ndata: two\n\n".repeat(500);
        for size in [1, 7, 4096] {
            let packed = gzip(&text);
            let pieces = packed.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(all(&mut body("gzip"), pieces).expect("gzip"), text);
            let twice = [gzip(&text), gzip(b"more")].concat();
            let pieces = twice.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(all(&mut body("x-gzip"), pieces).expect("two members"), [&text[..], b"more"].concat());
            assert_eq!(all(&mut body("identity"), text.chunks(size).map(<[u8]>::to_vec)).expect("as it is"), text);
            let packed = brotli(&text);
            let pieces = packed.chunks(size).map(<[u8]>::to_vec);
            assert_eq!(all(&mut body("BR"), pieces).expect("br"), text);
        }
    }

    #[test]
    fn a_bomb_is_given_in_small_pieces_and_has_an_end() {
        for (encoding, packed) in [("gzip", gzip(&vec![b'\n'; 64 << 20])), ("br", BROTLI_BOMB.to_vec())] {
            let plain = all(&mut body(encoding), std::iter::once(packed.clone())).expect("a body");
            assert_eq!(plain.len(), 64 << 20, "{encoding}");
            let mut bomb = Body { room: 32 << 20, ..body(encoding) };
            let error = all(&mut bomb, std::iter::once(packed)).expect_err("too large");
            assert!(error.contains("larger than"), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_decompressed_says_so() {
        for encoding in ["gzip", "br"] {
            let error = all(&mut body(encoding), std::iter::once(b"data: hello\n\n".repeat(9))).expect_err("not it");
            assert!(error.contains(&format!("no valid {encoding}")), "{error}");
        }
        for encoding in ["zstd", "gzip, br", "deflate"] {
            let error = body(encoding).next().expect_err("not known");
            assert!(error.contains(encoding), "{error}");
        }
    }
}
