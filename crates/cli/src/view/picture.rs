//! Size of an image in bytes and pixels, from its URL.

/// Number of bytes in a `data:` URL or in bare base64; `None` for other URLs.
pub(super) fn bytes(url: &str) -> Option<u64> {
    let data = match url.strip_prefix("data:") {
        Some(rest) => rest.split_once(";base64,")?.1,
        None if url.is_empty() || url.contains(':') => return None,
        None => url,
    };
    let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
    Some(((data.len() - padding) as u64).saturating_mul(3) / 4)
}

/// Width and height of a PNG in pixels.
pub(super) fn dimensions(url: &str) -> Option<(u32, u32)> {
    let data = url.strip_prefix("data:image/png;base64,")?;
    let start = decoded(data.as_bytes().get(..32)?)?;
    let number = |at: usize| Some(u32::from_be_bytes(start.get(at..at + 4)?.try_into().ok()?));
    (start.get(12..16)? == b"IHDR").then_some((number(16)?, number(20)?))
}

/// Base64 without padding, of a whole number of groups.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::new();
    for group in text.chunks_exact(4) {
        let mut bits = 0;
        for byte in group {
            bits = bits << 6 | value(*byte)?;
        }
        bytes.extend(&bits.to_be_bytes()[1..]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_image_is_read_from_its_url() {
        let png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAA";
        assert_eq!(dimensions(png), Some((640, 480)));
        assert_eq!(bytes(png), Some(36));
        assert_eq!(bytes("data:image/png;base64,QUI="), Some(2));
        assert_eq!((bytes("https://x/y.png"), bytes("")), (None, None));
        for broken in ["data:image/png;base64,", "data:image/png;base64,****************************************", "x"]
        {
            assert_eq!(dimensions(broken), None, "{broken}");
        }
    }
}
