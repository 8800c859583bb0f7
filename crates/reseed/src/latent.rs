//! The latent of a batch in host memory.

use reseed_ops::Thw;

/// A latent `[L, h, w, C]`: the output of the encoder, the transformer's condition and result, the input of the
/// decoder.
#[derive(Clone, Debug, PartialEq)]
pub struct Latent {
    /// Latent frames, rows and columns.
    pub thw: Thw,
    /// Values, channels last.
    pub values: Vec<f32>,
}

impl Latent {
    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.values.len() / self.thw.count()
    }

    /// Interleaves planes `[h, w]`: `plane(channel, frame)` returns the index of the plane and the values that hold it.
    pub(crate) fn from_planes<'a>(
        thw: Thw,
        channels: usize,
        plane: impl Fn(usize, usize) -> (usize, &'a [f32]),
    ) -> Latent {
        let size = thw.h * thw.w;
        let mut values = vec![0.0; thw.count() * channels];
        for t in 0..thw.t {
            for c in 0..channels {
                let (index, from) = plane(c, t);
                let to = values[(t * size * channels) + c..].iter_mut().step_by(channels);
                to.zip(&from[index * size..][..size]).for_each(|(to, from)| *to = *from);
            }
        }
        Latent { thw, values }
    }
}
