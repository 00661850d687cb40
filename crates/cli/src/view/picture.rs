//! Size of an image in bytes and pixels, from its URL.

use base64::{Engine as _, engine::general_purpose::STANDARD};

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
    let start = STANDARD.decode(data.get(..32)?).ok()?;
    let number = |at: usize| Some(u32::from_be_bytes(start.get(at..at + 4)?.try_into().ok()?));
    (start.get(12..16)? == b"IHDR").then_some((number(16)?, number(20)?))
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
