//! A clip's latent on the host.

use reseed_ops::Thw;

/// Values `[L, h, w, C]`: what lies between encoder and decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Frames, rows and columns.
    pub thw: Thw,
    /// The values, channels last.
    pub values: Vec<f32>,
}

impl Latent {
    /// Channels of each place.
    pub fn channels(&self) -> usize {
        self.values.len() / self.thw.count()
    }

    /// Collects planes `[h, w]` into a latent: `plane` says, for a channel and a frame, which plane of which values.
    pub(crate) fn gathered<'a>(
        thw: Thw,
        channels: usize,
        plane: impl Fn(usize, usize) -> (usize, &'a [f32]),
    ) -> Latent {
        let size = thw.h * thw.w;
        let mut values = vec![0.0; thw.count() * channels];
        for t in 0..thw.t {
            for c in 0..channels {
                let (number, from) = plane(c, t);
                let to = values[(t * size * channels) + c..].iter_mut().step_by(channels);
                to.zip(&from[number * size..][..size]).for_each(|(to, from)| *to = *from);
            }
        }
        Latent { thw, values }
    }
}
