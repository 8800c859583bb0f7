//! Small copies of finished frames, for callbacks that show them.

use std::time::{Duration, Instant};

use reseed::media::Frame;

use crate::buffer::Buffer;
use crate::dtype::Dtype;
use crate::frames::Frames;

/// The longest side of a preview.
const SIDE: usize = 512;
/// Shortest time between two previews.
const PERIOD: Duration = Duration::from_millis(250);

/// Makes a preview of some frames, not of all.
#[derive(Default)]
pub struct Previews {
    last: Option<Instant>,
    made: Option<Frames>,
}

impl Previews {
    /// Whether the last one is not new.
    pub fn is_due(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= PERIOD)
    }

    /// Makes a preview of a frame, unless the last one is new.
    pub fn show(&mut self, frame: &Frame) {
        if self.is_due() {
            self.last = Some(Instant::now());
            self.made = small(frame);
        }
    }

    /// The preview that was made last, once.
    pub fn take(&mut self) -> Option<Frames> {
        self.made.take()
    }
}

/// Every n-th pixel of a frame, RGB in 8 bits.
fn small(frame: &Frame) -> Option<Frames> {
    let step = frame.size.h.max(frame.size.w).div_ceil(SIDE);
    let (rows, line) = (frame.size.h.div_ceil(step), 3 * frame.size.w);
    let columns = frame.size.w.div_ceil(step);
    let mut buffer = Buffer::zeros(3 * rows * columns)?;
    let mut unit = vec![0.0; line];
    for (y, to) in buffer.as_mut_slice().chunks_exact_mut(3 * columns).take(rows).enumerate() {
        frame.samples.copy_to_unit(y * step * line..(y * step + 1) * line, &mut unit);
        for (to, from) in to.chunks_exact_mut(3).zip(unit.chunks_exact(3).step_by(step)) {
            to.iter_mut().zip(from).for_each(|(to, value)| *to = (value * 255.0 + 0.5) as u8);
        }
    }
    Some(Frames::new(buffer, vec![rows, columns, 3], Dtype::U8))
}
