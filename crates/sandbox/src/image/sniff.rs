//! Recognises the format of a file by its first bytes.

use ::image::ImageFormat as Format;

/// Bytes at the beginning of a file in which `<svg` is searched.
const SVG_WINDOW: usize = 2048;

/// Format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pixels(Format),
    /// A drawing, which models cannot view.
    Svg,
}

/// Format of the bytes, if it is known.
pub(super) fn kind(bytes: &[u8]) -> Option<Kind> {
    let signatures: &[(&[u8], Format)] = &[
        (b"\x89PNG\r\n\x1a\n", Format::Png),
        (b"\xff\xd8\xff", Format::Jpeg),
        (b"GIF87a", Format::Gif),
        (b"GIF89a", Format::Gif),
        (b"BM", Format::Bmp),
        (b"II*\0", Format::Tiff),
        (b"MM\0*", Format::Tiff),
        (b"II+\0", Format::Tiff),
        (b"MM\0+", Format::Tiff),
    ];
    if let Some((_, format)) = signatures.iter().find(|(signature, _)| bytes.starts_with(signature)) {
        return Some(Kind::Pixels(*format));
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Some(Kind::Pixels(Format::WebP));
    }
    is_svg(bytes).then_some(Kind::Svg)
}

fn is_svg(bytes: &[u8]) -> bool {
    let window = String::from_utf8_lossy(&bytes[..bytes.len().min(SVG_WINDOW)]).to_ascii_lowercase();
    let text = window.trim_start_matches('\u{feff}').trim_start();
    text.starts_with("<svg") || (text.starts_with("<?xml") && text.contains("<svg"))
}

/// Whether the name is that of an SVG; used only if the bytes are not recognised, as for a compressed SVG.
pub(super) fn is_named_svg(path: &str) -> bool {
    let extension = path.rsplit('/').next().and_then(|name| Some(name.rsplit_once('.')?.1));
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("svg") || extension.eq_ignore_ascii_case("svgz"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_decide_the_format() {
        let late = format!("<?xml version=\"1.0\"?><!--{}--><svg>", "x".repeat(SVG_WINDOW));
        let table: &[(&[u8], Option<Kind>)] = &[
            (b"\x89PNG\r\n\x1a\nrest", Some(Kind::Pixels(Format::Png))),
            (b"\xff\xd8\xff\xe0", Some(Kind::Pixels(Format::Jpeg))),
            (b"GIF87a", Some(Kind::Pixels(Format::Gif))),
            (b"GIF89a", Some(Kind::Pixels(Format::Gif))),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some(Kind::Pixels(Format::WebP))),
            (b"BM", Some(Kind::Pixels(Format::Bmp))),
            (b"II*\0", Some(Kind::Pixels(Format::Tiff))),
            (b"MM\0*", Some(Kind::Pixels(Format::Tiff))),
            (b"MM\0+", Some(Kind::Pixels(Format::Tiff))),
            (b"  \n<SVG xmlns=", Some(Kind::Svg)),
            ("\u{feff}<svg>".as_bytes(), Some(Kind::Svg)),
            (b"<?xml version=\"1.0\"?>\n<svg>", Some(Kind::Svg)),
            (b"<?xml version=\"1.0\"?>\n<html>", None),
            (late.as_bytes(), None),
            (b"RIFF\0\0\0\0WAVE", None),
            (b"\xff\xd8", None),
            (b"GIF88a", None),
            (b"GIF8", None),
            (b"hello <svg", None),
            (b"", None),
        ];
        for (bytes, expected) in table {
            assert_eq!(kind(bytes), *expected, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_name_is_used_for_drawings_only() {
        for (path, expected) in
            [("a.svg", true), ("a/b.SVGZ", true), ("a.svg/b", false), ("svg", false), ("a.png", false)]
        {
            assert_eq!(is_named_svg(path), expected, "{path}");
        }
    }
}
