//! The plugin in a host that has the functions of VapourSynth that it calls.
#![allow(clippy::unwrap_used)]
#![allow(clippy::undocumented_unsafe_blocks, reason = "the host made every pointer that it gets back from the plugin")]

mod fake_frame;
mod fake_host;
mod frames;
mod upscale;
