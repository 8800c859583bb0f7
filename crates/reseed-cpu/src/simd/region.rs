//! Regions of a convolution's output, and the input that they read.

use std::ops::Range;

use reseed_ops::Hw;

/// The spatial geometry of a convolution.
#[derive(Clone, Copy)]
pub struct Window {
    /// Size of an input frame.
    pub plane: Hw,
    /// Channels of an input pixel.
    pub channels: usize,
    /// Rows and columns of the kernel.
    pub taps: Hw,
    /// Stride.
    pub stride: Hw,
    /// Zero rows above the plane and zero columns left of it.
    pub before: Hw,
}

/// One temporal tap: a frame and the weights that multiply it.
pub struct Tap<'a, E, W> {
    /// Pixels of the frame.
    pub frame: &'a [E],
    /// Weights of the convolution.
    pub weights: &'a W,
    /// Temporal tap of the weights.
    pub part: usize,
}

impl<E, W> Clone for Tap<'_, E, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E, W> Copy for Tap<'_, E, W> {}

/// Most temporal taps of a convolution.
pub const MOST_TAPS: usize = 3;

/// The temporal taps of an output frame.
pub struct Taps<'a, E, W> {
    taps: [Tap<'a, E, W>; MOST_TAPS],
    count: usize,
}

impl<'a, E, W> Taps<'a, E, W> {
    /// Collects 1 to [`MOST_TAPS`] taps.
    pub fn new(taps: impl IntoIterator<Item = Tap<'a, E, W>>) -> Self {
        let mut taps = taps.into_iter();
        let mut all = [taps.next().expect("an output frame has taps"); MOST_TAPS];
        let mut count = 1;
        for tap in taps {
            all[count] = tap;
            count += 1;
        }
        Taps { taps: all, count }
    }

    /// The same taps with the weights in another representation.
    pub fn map_weights<V>(self, weights: impl Fn(&'a W) -> &'a V) -> Taps<'a, E, V> {
        let tap = |tap: Tap<'a, E, W>| Tap { frame: tap.frame, weights: weights(tap.weights), part: tap.part };
        Taps { taps: self.taps.map(tap), count: self.count }
    }
}

impl<'a, E, W> std::ops::Deref for Taps<'a, E, W> {
    type Target = [Tap<'a, E, W>];
    fn deref(&self) -> &[Tap<'a, E, W>] {
        &self.taps[..self.count]
    }
}

/// A rectangle of output pixels and the panels of output channels to compute for it.
#[derive(Clone, Debug)]
pub struct Region {
    /// Output rows.
    pub rows: Range<usize>,
    /// Output columns.
    pub columns: Range<usize>,
    /// Panels of output channels.
    pub panels: Range<usize>,
}

/// Regions per thread. With several of them all threads finish at about the same time.
pub const REGIONS_PER_THREAD: usize = 4;
