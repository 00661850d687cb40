//! Decodes images with limits, scales them, and encodes formats that models do not accept.

use std::io::Cursor;

use ::image::{
    ColorType, DynamicImage, ImageDecoder, ImageEncoder, ImageError, ImageFormat as Format, ImageReader, Limits,
    codecs::{jpeg::JpegEncoder, png::PngEncoder},
    imageops::FilterType,
};
use bytes::Bytes;

use super::{Detail, ImageFormat, ImageView};

/// Largest width and height that are decoded.
pub(super) const DIMENSION_LIMIT: u32 = 16_384;

/// Memory for the pixels of one image, in bytes.
const PIXEL_MEMORY: u64 = 256 << 20;

/// Largest width and height for a model, unless it requests the original.
const FIT: u32 = 2048;

const JPEG_QUALITY: u8 = 90;

/// Largest colour profile or Exif block that is passed on.
const METADATA_LIMIT: usize = 1 << 20;

/// Why an image cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// More pixels than allowed.
    Pixels,
    /// The data is broken.
    Broken,
}

impl From<ImageError> for DecodeError {
    fn from(error: ImageError) -> Self {
        if matches!(error, ImageError::Limits(_)) { Self::Pixels } else { Self::Broken }
    }
}

/// Colour profile and Exif data.
#[derive(Default)]
struct Metadata {
    icc: Option<Vec<u8>>,
    exif: Option<Vec<u8>>,
}

/// The image in a form that models accept. Every image is decoded, even if it is then passed on unchanged.
pub(super) fn make_ready(bytes: Bytes, format: Format, detail: Detail) -> Result<ImageView, DecodeError> {
    let (pixels, metadata) = decode(&bytes, format)?;
    let (width, height) = (pixels.width(), pixels.height());
    let fits = detail == Detail::Original || (width <= FIT && height <= FIT);
    let unchanged = match format {
        Format::Png => Some(ImageFormat::Png),
        Format::Jpeg if has_end(&bytes) => Some(ImageFormat::Jpeg),
        Format::WebP => Some(ImageFormat::WebP),
        _ => None,
    };
    if let (true, Some(format)) = (fits, unchanged) {
        return Ok(ImageView { format, bytes, width, height });
    }
    let pixels = if fits { pixels } else { shrink(pixels) };
    let (format, encoded) = if format == Format::Jpeg {
        (ImageFormat::Jpeg, encode_jpeg(&pixels, metadata)?)
    } else {
        (ImageFormat::Png, encode_png(pixels_for_png(&pixels), metadata)?)
    };
    Ok(ImageView { format, bytes: encoded.into(), width: pixels.width(), height: pixels.height() })
}

/// Whether a JPEG has an end marker. The decoder accepts a truncated JPEG and leaves the rest grey; other decoders may not,
/// so a truncated JPEG is encoded again.
fn has_end(bytes: &[u8]) -> bool {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes[..end].ends_with(&[0xFF, 0xD9])
}

fn decode(bytes: &[u8], format: Format) -> Result<(DynamicImage, Metadata), DecodeError> {
    let mut limits = Limits::default();
    limits.max_image_width = Some(DIMENSION_LIMIT);
    limits.max_image_height = Some(DIMENSION_LIMIT);
    limits.max_alloc = Some(PIXEL_MEMORY);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder()?;
    let (width, height) = decoder.dimensions();
    // Not every decoder respects the limits.
    if width > DIMENSION_LIMIT || height > DIMENSION_LIMIT || decoder.total_bytes() > PIXEL_MEMORY {
        return Err(DecodeError::Pixels);
    }
    if width == 0 || height == 0 {
        return Err(DecodeError::Broken);
    }
    let small = |metadata: &Vec<u8>| metadata.len() <= METADATA_LIMIT;
    let metadata = Metadata {
        // Decoded pixels are RGB; a profile for another colour space would distort the colours.
        icc: decoder.icc_profile().ok().flatten().filter(small).filter(|icc| icc.get(16..20) == Some(b"RGB ")),
        exif: decoder.exif_metadata().ok().flatten().filter(small),
    };
    Ok((DynamicImage::from_decoder(decoder)?, metadata))
}

/// Scales an image down to fit. A much larger image is first reduced by a coarse filter: the better filter needs four times
/// the memory.
fn shrink(pixels: DynamicImage) -> DynamicImage {
    let far = pixels.width() > 2 * FIT || pixels.height() > 2 * FIT;
    let pixels = if far { pixels.thumbnail(2 * FIT, 2 * FIT) } else { pixels };
    pixels.resize(FIT, FIT, FilterType::Triangle)
}

/// Pixels with eight or sixteen bits per channel, the only depths that a PNG can hold.
fn pixels_for_png(pixels: &DynamicImage) -> std::borrow::Cow<'_, DynamicImage> {
    use std::borrow::Cow;
    match pixels.color() {
        ColorType::Rgb32F => Cow::Owned(DynamicImage::ImageRgb8(pixels.to_rgb8())),
        ColorType::Rgba32F => Cow::Owned(DynamicImage::ImageRgba8(pixels.to_rgba8())),
        _ => Cow::Borrowed(pixels),
    }
}

fn encode_png(pixels: std::borrow::Cow<'_, DynamicImage>, metadata: Metadata) -> Result<Vec<u8>, DecodeError> {
    let mut encoded = Vec::new();
    let mut encoder = PngEncoder::new(&mut encoded);
    add(&mut encoder, metadata, pixels.color());
    pixels.write_with_encoder(encoder)?;
    Ok(encoded)
}

fn encode_jpeg(pixels: &DynamicImage, metadata: Metadata) -> Result<Vec<u8>, DecodeError> {
    let mut encoded = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut encoded, JPEG_QUALITY);
    add(&mut encoder, metadata, pixels.color());
    match pixels.color() {
        ColorType::L8 | ColorType::L16 => DynamicImage::ImageLuma8(pixels.to_luma8()).write_with_encoder(encoder)?,
        _ => DynamicImage::ImageRgb8(pixels.to_rgb8()).write_with_encoder(encoder)?,
    }
    Ok(encoded)
}

fn add(encoder: &mut impl ImageEncoder, metadata: Metadata, color: ColorType) {
    if let Some(icc) = metadata.icc.filter(|_| color.has_color()) {
        let _not_every_format_has_one = encoder.set_icc_profile(icc);
    }
    if let Some(exif) = metadata.exif {
        let _not_every_format_has_one = encoder.set_exif_metadata(exif);
    }
}
