//! Generated images, and files that only claim to be images, read from an in-memory machine.

use std::io::Cursor;

use ::image::{DynamicImage, GenericImageView, ImageFormat as Format, Rgb, RgbImage};
use sandbar_machine::{MachinePath, MemoryMachine, once};

use super::*;

fn picture(width: u32, height: u32) -> DynamicImage {
    #[allow(clippy::cast_possible_truncation, reason = "a pattern")]
    let pixel = |x: u32, y: u32| Rgb([(x / 8) as u8, (y / 8) as u8, ((x ^ y) / 16) as u8]);
    DynamicImage::ImageRgb8(RgbImage::from_fn(width, height, pixel))
}

fn encoded(image: &DynamicImage, format: Format) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    image.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

struct Gallery {
    machine: MemoryMachine,
    viewer: ImageViewer,
    paths: Paths,
}

impl Gallery {
    async fn with(path: &str, bytes: impl Into<Bytes>) -> Self {
        let gallery = Self {
            machine: MemoryMachine::new(),
            viewer: ImageViewer::new(),
            paths: Paths::new(MachinePath::workspace()),
        };
        let target = gallery.paths.target(path, Intent::Write).unwrap();
        gallery.machine.write(&target, once(bytes)).await.unwrap();
        gallery
    }

    async fn view(&self, path: &str, detail: Detail) -> ImageOutcome {
        let args = ViewImageArgs { detail, ..ViewImageArgs::new(path) };
        self.viewer.view(&self.machine, &self.paths, &args, None).await.unwrap()
    }
}

async fn seen(bytes: impl Into<Bytes>, detail: Detail) -> ImageView {
    match Gallery::with("a.txt", bytes).await.view("a.txt", detail).await {
        ImageOutcome::Image(image) => image,
        ImageOutcome::Refused(refusal) => panic!("{refusal}"),
    }
}

async fn refusal(path: &str, bytes: impl Into<Bytes>) -> String {
    match Gallery::with(path, bytes).await.view(path, Detail::High).await {
        ImageOutcome::Image(image) => panic!("{:?} {}x{}", image.format, image.width, image.height),
        ImageOutcome::Refused(refusal) => refusal.to_string(),
    }
}

/// A PNG that announces its size but has no pixels.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let chunk = |name: &[u8], data: &[u8]| {
        let body = [name, data].concat();
        let mut crc = flate2::Crc::new();
        crc.update(&body);
        [&u32::try_from(data.len()).unwrap().to_be_bytes(), body.as_slice(), &crc.sum().to_be_bytes()].concat()
    };
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    let empty = [0x78, 0x9c, 0x03, 0, 0, 0, 0, 1];
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", &empty), chunk(b"IEND", &[])].concat()
}

#[tokio::test]
async fn formats_that_models_accept_are_passed_on_unchanged() {
    for (format, expected) in
        [(Format::Png, ImageFormat::Png), (Format::Jpeg, ImageFormat::Jpeg), (Format::WebP, ImageFormat::WebP)]
    {
        let bytes = encoded(&picture(40, 30), format);
        let image = seen(bytes.clone(), Detail::High).await;
        assert_eq!((image.format, image.width, image.height), (expected, 40, 30));
        assert_eq!(image.bytes, bytes);
        let url = image.data_url();
        let (head, data) = url.split_once(',').unwrap();
        assert_eq!(head, format!("data:{};base64", expected.mime()));
        assert_eq!(base64::prelude::BASE64_STANDARD.decode(data).unwrap(), bytes);
    }
}

#[tokio::test]
async fn other_pictures_become_png() {
    for format in [Format::Gif, Format::Bmp, Format::Tiff] {
        let image = seen(encoded(&picture(40, 30), format), Detail::High).await;
        assert_eq!((image.format, image.width, image.height), (ImageFormat::Png, 40, 30), "{format:?}");
        let decoded = ::image::load_from_memory_with_format(&image.bytes, Format::Png).unwrap();
        if format != Format::Gif {
            assert_eq!(decoded.to_rgb8(), picture(40, 30).to_rgb8(), "{format:?}");
        }
    }
    let floats = DynamicImage::ImageRgb32F(picture(8, 8).to_rgb32f());
    assert_eq!(seen(encoded(&floats, Format::Tiff), Detail::High).await.format, ImageFormat::Png);
}

#[tokio::test]
async fn large_pictures_are_scaled_down_unless_the_original_is_requested() {
    let table = [
        (Format::Png, (3000, 40), (2048, 27), ImageFormat::Png),
        (Format::Jpeg, (40, 2500), (33, 2048), ImageFormat::Jpeg),
        (Format::WebP, (2100, 20), (2048, 20), ImageFormat::Png),
        (Format::Bmp, (5000, 10), (2048, 4), ImageFormat::Png),
    ];
    for (format, (width, height), fitted, expected) in table {
        let bytes = encoded(&picture(width, height), format);
        let image = seen(bytes.clone(), Detail::High).await;
        assert_eq!(((image.width, image.height), image.format), (fitted, expected), "{format:?}");
        let decoded = ::image::load_from_memory(&image.bytes).unwrap();
        assert_eq!(decoded.dimensions(), fitted);
        let image = seen(bytes, Detail::Original).await;
        assert_eq!((image.width, image.height), (width, height));
    }
}

#[tokio::test]
async fn a_refusal_explains_its_reason() {
    let png = encoded(&picture(40, 30), Format::Png);
    let unsupported = "image path `x.png` is not a supported image file";
    assert_eq!(refusal("x.png", "just text").await, unsupported);
    assert_eq!(refusal("x.png", "").await, unsupported);
    assert_eq!(refusal("x.png", "BM and so on").await, unsupported);
    assert_eq!(refusal("x.png", png[..png.len() / 2].to_vec()).await, unsupported);
    assert_eq!(refusal("x.png", bomb(10, 10)).await, unsupported);
    for (width, height) in [(60_000, 60_000), (16_385, 1), (1, 16_385), (16_384, 16_384)] {
        assert!(refusal("x.png", bomb(width, height)).await.contains("too many pixels"), "{width}x{height}");
    }
    let wide = [&b"GIF89a"[..], &60_000_u16.to_le_bytes(), &60_000_u16.to_le_bytes(), &[0; 40]].concat();
    assert!(refusal("x.png", wide).await.contains("too many pixels"));
    let drawing = "image path `x.svg` is an SVG, which models cannot view; convert it to PNG, or read it as text";
    assert_eq!(refusal("x.svg", "<svg/>").await, drawing);
    assert_eq!(refusal("x.svg", "\x1f\u{8b}").await, drawing);
    let large = "image path `x.png` is too large: the limit is 10MB; resize it first";
    assert_eq!(refusal("x.png", [png, vec![0; SIZE_LIMIT]].concat()).await, large);
}

#[tokio::test]
async fn a_truncated_jpeg_is_encoded_again() {
    let whole = encoded(&picture(200, 200), Format::Jpeg);
    let image = seen(whole[..whole.len() / 2].to_vec(), Detail::High).await;
    assert_eq!((image.format, image.width, image.height), (ImageFormat::Jpeg, 200, 200));
    assert!(image.bytes.ends_with(&[0xFF, 0xD9]));
}

#[tokio::test]
async fn other_truncated_pictures_are_refused() {
    for format in [Format::Png, Format::WebP, Format::Gif, Format::Bmp, Format::Tiff] {
        let whole = encoded(&picture(200, 200), format);
        for part in [whole.len() / 2, whole.len() - whole.len() / 8, 12] {
            let text = refusal("x.png", whole[..part].to_vec()).await;
            assert_eq!(text, "image path `x.png` is not a supported image file", "{format:?} {part}");
        }
    }
}

#[tokio::test]
async fn a_file_may_be_exactly_as_large_as_the_limit() {
    let mut bytes = encoded(&picture(4, 4), Format::Jpeg);
    bytes.resize(SIZE_LIMIT, 0);
    assert_eq!(seen(bytes, Detail::High).await.bytes.len(), SIZE_LIMIT);
}

#[tokio::test]
async fn only_files_of_the_workspace_are_opened() {
    let gallery = Gallery::with("dir/a.png", encoded(&picture(4, 4), Format::Png)).await;
    let text = |outcome| match outcome {
        ImageOutcome::Image(_) => "an image".to_owned(),
        ImageOutcome::Refused(refusal) => refusal.to_string(),
    };
    assert_eq!(text(gallery.view("dir", Detail::High).await), "image path `dir` is not a file");
    assert_eq!(text(gallery.view("no.png", Detail::High).await), "image path `no.png` was not found");
    assert_eq!(text(gallery.view("no/no.png", Detail::High).await), "image path `no/no.png` was not found");
    for path in ["/etc/x.png", "../x.png"] {
        let error = gallery.viewer.view(&gallery.machine, &gallery.paths, &ViewImageArgs::new(path), None).await;
        assert_eq!(error.unwrap_err().code(), "invalid_manifest_path", "{path}");
    }
    gallery.machine.stop().await.unwrap();
    assert_eq!(text(gallery.view("dir/a.png", Detail::High).await), "unable to read image at `dir/a.png`: gone");
}

#[tokio::test]
async fn the_same_picture_is_decoded_once() {
    let gallery = Gallery::with("a", encoded(&picture(20, 20), Format::Bmp)).await;
    let first = gallery.view("a", Detail::High).await;
    // Without a permit to decode, only a cached image can be returned.
    gallery.viewer.decoders.forget_permits(DECODERS);
    assert_eq!(gallery.view("a", Detail::High).await, first);
}
