//! Options of video files, and options of the public command line that have no effect here.

use std::time::Duration;

use clap::Args;
use reseed::media::Rate;
use reseed::media::video::{Clip, Codec, Deinterlace, Options, is_option_name, parse_time};

use reseed_terminal::failure::{Failure, Result};

/// The part of a clip, and how its frames are read.
#[derive(Args, Clone)]
#[command(next_help_heading = "Video files")]
pub struct ClipArgs {
    /// Start of the part to process: seconds, or h:m:s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub start: Option<Duration>,
    /// End of the part to process: seconds, or h:m:s.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub end: Option<Duration>,
    /// How interlaced video becomes frames: auto, off, bob (a frame per
    /// field) or single (a frame per two fields)
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = deinterlace, verbatim_doc_comment)]
    pub deinterlace: Deinterlace,
    /// Restore the frames of a film from video with 3:2 pulldown.
    #[arg(long, conflicts_with = "deinterlace")]
    pub ivtc: bool,
    /// Rate of a folder of images, such as 24 or 30000/1001 [default: 25]
    #[arg(long, value_name = "RATE")]
    pub fps: Option<Rate>,
}

/// Options of video files.
#[derive(Args, Clone)]
#[command(next_help_heading = "Video files")]
pub struct VideoArgs {
    #[command(flatten)]
    pub part: ClipArgs,
    /// h264, hevc, av1, ffv1, prores, or in hardware, such as hevc-nvenc
    /// [default: h264; hevc for more than 8 bits; av1 in webm]
    #[arg(long, value_name = "CODEC", verbatim_doc_comment)]
    pub codec: Option<Codec>,
    /// Quality: lower is better and larger
    /// [default: 18 for h264, 20 for hevc, 28 for av1]
    #[arg(long, value_name = "N", verbatim_doc_comment)]
    pub crf: Option<u32>,
    /// An option of ffmpeg's encoder, such as preset=slow; repeatable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub encoder_arg: Vec<(String, String)>,
    /// Leave out audio.
    #[arg(long, alias = "no-copy-audio-streams")]
    pub no_audio: bool,
    /// Leave out subtitles.
    #[arg(long, alias = "no-copy-subtitle-streams")]
    pub no_subtitles: bool,
    /// Leave out chapters.
    #[arg(long)]
    pub no_chapters: bool,
    /// Leave out titles and other tags.
    #[arg(long)]
    pub no_metadata: bool,
    /// Leave out fonts and other attachments.
    #[arg(long)]
    pub no_attachments: bool,
    #[command(flatten)]
    pub public: PublicArgs,
}

impl ClipArgs {
    /// The part to process.
    pub fn clip(&self) -> Result<Clip> {
        match (self.start, self.end) {
            (start, Some(end)) if start.unwrap_or_default() >= end => {
                Err(Failure::Usage("--end must be later than --start".into()))
            }
            (start, end) => {
                let deinterlace = if self.ivtc { Deinterlace::InverseTelecine } else { self.deinterlace };
                Ok(Clip { start, end, deinterlace, rate: self.fps })
            }
        }
    }
}

impl VideoArgs {
    /// How the video is encoded.
    pub fn options(&self) -> Options {
        Options {
            codec: self.codec,
            crf: self.crf,
            encoder_args: self.encoder_arg.clone(),
            audio: !self.no_audio,
            subtitles: !self.no_subtitles,
            chapters: !self.no_chapters,
            metadata: !self.no_metadata,
            attachments: !self.no_attachments,
            ..Options::default()
        }
    }
}

/// Options of the public command line that the engine decides by itself: accepted without effect, so that a command can
/// be pasted.
#[derive(Args, Clone)]
pub struct PublicArgs {
    #[arg(long = "vae_encode_tiled", hide = true)]
    encode_tiled: bool,
    #[arg(long = "vae_decode_tiled", hide = true)]
    decode_tiled: bool,
    #[arg(long = "swap_io_components", hide = true)]
    swap_io: bool,
    #[arg(long = "vae_encode_tile_size", hide = true)]
    encode_tile_size: Option<String>,
    #[arg(long = "vae_encode_tile_overlap", hide = true)]
    encode_tile_overlap: Option<String>,
    #[arg(long = "vae_decode_tile_size", hide = true)]
    decode_tile_size: Option<String>,
    #[arg(long = "vae_decode_tile_overlap", hide = true)]
    decode_tile_overlap: Option<String>,
    #[arg(long = "blocks_to_swap", hide = true)]
    blocks_to_swap: Option<String>,
    #[arg(long = "chunk_size", hide = true)]
    chunk_size: Option<String>,
    #[arg(long = "dit_offload_device", hide = true)]
    dit_offload: Option<String>,
    #[arg(long = "vae_offload_device", hide = true)]
    vae_offload: Option<String>,
    #[arg(long = "tensor_offload_device", hide = true)]
    tensor_offload: Option<String>,
    #[arg(long = "attention_mode", hide = true)]
    attention: Option<String>,
    #[arg(long = "video_backend", hide = true)]
    video_backend: Option<String>,
}

impl PublicArgs {
    /// Those that were given.
    pub fn given(&self) -> Vec<&'static str> {
        let all = [
            ("--vae_encode_tiled", self.encode_tiled),
            ("--vae_decode_tiled", self.decode_tiled),
            ("--swap_io_components", self.swap_io),
            ("--vae_encode_tile_size", self.encode_tile_size.is_some()),
            ("--vae_encode_tile_overlap", self.encode_tile_overlap.is_some()),
            ("--vae_decode_tile_size", self.decode_tile_size.is_some()),
            ("--vae_decode_tile_overlap", self.decode_tile_overlap.is_some()),
            ("--blocks_to_swap", self.blocks_to_swap.is_some()),
            ("--chunk_size", self.chunk_size.is_some()),
            ("--dit_offload_device", self.dit_offload.is_some()),
            ("--vae_offload_device", self.vae_offload.is_some()),
            ("--tensor_offload_device", self.tensor_offload.is_some()),
            ("--attention_mode", self.attention.is_some()),
            ("--video_backend", self.video_backend.is_some()),
        ];
        all.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }
}

/// auto, off, bob or single; inverse telecine has an option of its own.
fn deinterlace(text: &str) -> std::result::Result<Deinterlace, String> {
    let known = ["auto", "off", "bob", "single"].contains(&text);
    text.parse().ok().filter(|_| known).ok_or_else(|| format!("`{text}` is not auto, off, bob or single"))
}

/// 90, 1:30 or 0:01:30.5.
pub(super) fn time(text: &str) -> std::result::Result<Duration, String> {
    parse_time(text).ok_or_else(|| format!("`{text}` is not a time such as 90, 1:30 or 0:01:30.5"))
}

fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if is_option_name(name) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not NAME=VALUE, such as preset=slow")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoder_options_have_a_name_and_a_value() {
        assert_eq!(pair("x265-params=a=b"), Ok(("x265-params".into(), "a=b".into())));
        assert!(["preset", "=slow", "-i=file", "a b=c"].iter().all(|text| pair(text).is_err()));
    }
}
