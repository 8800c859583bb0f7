//! TIFF files of grey and alpha, which the `image` crate does not decode.

use image::error::{DecodingError, LimitError, LimitErrorKind};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageError, ImageFormat, ImageResult, Limits};
use tiff::TiffError;
use tiff::decoder::{Decoder, DecodingResult};
use tiff::tags::Tag;

use super::guard::Input;

/// A decoder of a TIFF file with two samples per pixel.
pub(super) struct GreyAlphaDecoder<'a> {
    /// `None` only while its limits are set.
    decoder: Option<Decoder<Input<'a>>>,
    size: (u32, u32),
    color: ColorType,
}

/// Whether a TIFF file has two samples per pixel. Leaves `input` at its start.
pub(super) fn is_grey_alpha(input: &mut Input) -> ImageResult<bool> {
    let borrowed: Input = Box::new(&mut *input);
    let found = Decoder::new(borrowed).and_then(|mut decoder| decoder.colortype()).ok().and_then(two_samples);
    input.rewind()?;
    Ok(found.is_some())
}

fn two_samples(color: tiff::ColorType) -> Option<ColorType> {
    match color {
        tiff::ColorType::Multiband { bit_depth: 8, num_samples: 2 } => Some(ColorType::La8),
        tiff::ColorType::Multiband { bit_depth: 16, num_samples: 2 } => Some(ColorType::La16),
        _ => None,
    }
}

fn failed(cause: TiffError) -> ImageError {
    match cause {
        TiffError::IoError(cause) => ImageError::IoError(cause),
        TiffError::LimitsExceeded => ImageError::Limits(LimitError::from_kind(LimitErrorKind::InsufficientMemory)),
        cause => ImageError::Decoding(DecodingError::new(ImageFormat::Tiff.into(), cause)),
    }
}

fn damaged(reason: &str) -> ImageError {
    ImageError::Decoding(DecodingError::new(ImageFormat::Tiff.into(), reason.to_owned()))
}

impl<'a> GreyAlphaDecoder<'a> {
    pub fn new(input: Input<'a>) -> ImageResult<GreyAlphaDecoder<'a>> {
        let mut decoder = Decoder::new(input).map_err(failed)?;
        let color = decoder.colortype().map_err(failed)?;
        let color = two_samples(color).ok_or_else(|| damaged("not grey with alpha"))?;
        let size = decoder.dimensions().map_err(failed)?;
        Ok(GreyAlphaDecoder { decoder: Some(decoder), size, color })
    }
}

impl ImageDecoder for GreyAlphaDecoder<'_> {
    fn dimensions(&self) -> (u32, u32) {
        self.size
    }

    fn color_type(&self) -> ColorType {
        self.color
    }

    fn icc_profile(&mut self) -> ImageResult<Option<Vec<u8>>> {
        Ok(self.decoder.as_mut().and_then(|decoder| decoder.get_tag_u8_vec(Tag::IccProfile).ok()))
    }

    fn orientation(&mut self) -> ImageResult<Orientation> {
        let find = |decoder: &mut Decoder<Input>| decoder.find_tag_unsigned::<u8>(Tag::Orientation).ok().flatten();
        let tag = self.decoder.as_mut().and_then(find);
        Ok(tag.and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms))
    }

    fn set_limits(&mut self, limits: Limits) -> ImageResult<()> {
        let (image, most) = (self.total_bytes(), limits.max_alloc.unwrap_or(u64::MAX));
        let mut tiff_limits = tiff::decoder::Limits::default();
        tiff_limits.decoding_buffer_size = image as usize;
        tiff_limits.intermediate_buffer_size = most.saturating_sub(image) as usize;
        self.decoder = self.decoder.take().map(|decoder| decoder.with_limits(tiff_limits));
        Ok(())
    }

    fn read_image(mut self, buffer: &mut [u8]) -> ImageResult<()> {
        let decoder = self.decoder.as_mut().ok_or_else(|| damaged("no decoder"))?;
        let samples = decoder.read_image().map_err(failed)?;
        let bytes: &[u8] = match &samples {
            DecodingResult::U8(samples) => samples,
            DecodingResult::U16(samples) => bytemuck::cast_slice(samples),
            _ => return Err(damaged("samples of an unknown type")),
        };
        match bytes.len() == buffer.len() {
            true => buffer.copy_from_slice(bytes),
            false => return Err(damaged("samples are missing")),
        }
        Ok(())
    }

    fn read_image_boxed(self: Box<Self>, buffer: &mut [u8]) -> ImageResult<()> {
        (*self).read_image(buffer)
    }
}
