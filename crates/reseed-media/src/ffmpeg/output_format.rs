//! The choice of container, codec, pixel format and encoder for an output.

use std::path::Path;

use super::color::{OutputColor, SourceFormat};
use super::encoder::EncoderConfig;
use super::tools::Tools;
use crate::error::{Error, Result};
use crate::planes::Planes;
use crate::stream::Info;
use crate::video::{Codec, Container, Family, Options, Pixels};

/// How an output is written.
pub(super) struct OutputFormat {
    pub container: Container,
    pub codec: Codec,
    pub planes: Planes,
    pub encoder: EncoderConfig,
}

impl OutputFormat {
    /// Chooses the format of the output of a source, and checks the options.
    pub fn choose(path: &Path, info: &Info, options: &Options) -> Result<OutputFormat> {
        let expected = "a name ending in .mp4, .mkv, .mov, .webm or .y4m";
        let unknown = || Error::UnknownOutput { path: path.to_owned(), expected };
        let container = Container::of(path).ok_or_else(unknown)?;
        let tools = Tools::find()?;
        let source = SourceFormat::of(info);
        let codec = options.codec.unwrap_or(Codec::default_for(container, source.pixels.bits));
        codec.check(path, container)?;
        codec.check_crf(options.crf)?;
        let (pixels, encoder_name) = choose_encoder(&tools, codec, source.pixels, options)?;
        codec.check_size(pixels, info.size, path)?;
        let color = OutputColor::new(&source, pixels, info.size, codec);
        let planes = Planes::new(info.size, pixels.layout(color.range, color.matrix, color.location.as_deref()));
        let encoder = EncoderConfig {
            tools,
            output: path.to_owned(),
            codec,
            size: info.size,
            frame_bytes: planes.frame_bytes(),
            pixels: pixels.name(),
            encoder_pixels: codec.encoder_pixels(pixels),
            filters: color.filters(source.aspect),
            settings: codec.settings(&encoder_name, pixels, options, &source.hdr),
            tags: color.options(),
            clock: source.clock,
            format: codec.segment_format(),
        };
        Ok(OutputFormat { container, codec, planes, encoder })
    }
}

/// The pixel format and the encoder of a codec. The option `pix_fmt` of the encoder overrides the format of the source.
fn choose_encoder(tools: &Tools, codec: Codec, source: Pixels, options: &Options) -> Result<(Pixels, String)> {
    let chosen = options.encoder_args.iter().rfind(|(name, _)| name == "pix_fmt");
    let pixels = chosen.and_then(|(_, value)| Pixels::parse(value)).unwrap_or_else(|| codec.stored_pixels(source));
    let common = Pixels { family: Family::Yuv420, ..pixels };
    let of = |pixels: Pixels| codec.encoders(pixels).into_iter().map(move |encoder| (pixels, encoder));
    // Not every ffmpeg has the encoder that stores more chroma.
    let choices: Vec<(Pixels, String)> = of(pixels).chain(of(common)).collect();
    let first = choices.first().cloned().ok_or_else(|| codec.no_encoder())?;
    // Without a choice, trying the encoder out shows whether it exists.
    if choices.iter().all(|(_, encoder)| *encoder == first.1) {
        return Ok(first);
    }
    for choice in choices {
        if tools.has_encoder(&choice.1)? {
            return Ok(choice);
        }
    }
    Err(codec.no_encoder())
}
