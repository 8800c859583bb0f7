//! The plugin in a host that has the functions of VapourSynth that it calls.
#![allow(clippy::unwrap_used)]

mod fake_frame;
mod fake_host;
mod frames;
mod upscale;
