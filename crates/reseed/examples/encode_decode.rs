//! Encodes the embedded sample to latents, decodes it again, and prints the loss.
//!
//!     cargo run --release --example encode_decode [MODEL]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example prints")]

use std::error::Error;

use reseed::Session;
use reseed::media::metrics;

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).unwrap_or("nano".into());
    let mut clip = reseed::media::sample();
    let mut frames = Vec::new();
    while let Some(frame) = clip.next()? {
        frames.push(frame);
    }

    let session = Session::builder().model(model).open()?;
    let vae = session.vae()?;
    let encoded = vae.encode(&frames)?;
    let (latent, channels) = (encoded.latent.thw, encoded.latent.channels());
    println!("{} frames of {} to a latent of {latent} with {channels} channels", frames.len(), encoded.size);

    let decoded = vae.decode(&encoded)?;
    let psnr: f64 = frames.iter().zip(&decoded).map(|(a, b)| metrics::psnr(a, b)).sum();
    println!("PSNR of the decoded frames: {:.2} dB", psnr / frames.len() as f64);
    Ok(())
}
