//! Planes of green, blue and red codes.

use crate::frame::{Depth, Frame, Samples, Size};

/// The positions of green, blue and red in an RGB pixel.
const CHANNELS: [usize; 3] = [1, 2, 0];

/// A converter for the frames of one stream.
pub(crate) struct Gbr {
    size: Size,
    bits: u8,
}

impl Gbr {
    pub fn new(size: Size, bits: u8) -> Gbr {
        Gbr { size, bits }
    }

    pub fn frame_bytes(&self) -> usize {
        3 * self.size.pixels() * if self.bits == 8 { 1 } else { 2 }
    }

    fn white(&self) -> f32 {
        ((1u32 << self.bits) - 1) as f32
    }

    pub fn decode(&self, planes: &[u8]) -> Frame {
        assert_eq!(planes.len(), self.frame_bytes(), "bytes of a {} frame", self.size);
        let mut unit = vec![0.0; 3 * self.size.pixels()];
        let white = self.white();
        for (plane, channel) in planes.chunks_exact(planes.len() / 3).zip(CHANNELS) {
            let values = unit.iter_mut().skip(channel).step_by(3);
            match self.bits {
                8 => values.zip(plane).for_each(|(v, code)| *v = f32::from(*code) / white),
                _ => {
                    let codes = plane.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
                    values.zip(codes).for_each(|(v, code)| *v = f32::from(code) / white);
                }
            }
        }
        Frame { size: self.size, samples: Samples::from_unit(&unit, Depth::for_bits(self.bits)), alpha: None }
    }

    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        frame.assert_fits(self.size);
        planes.clear();
        let (unit, white) = (frame.to_unit(), self.white());
        for channel in CHANNELS {
            let codes = unit.iter().skip(channel).step_by(3).map(|v| v * white + 0.5);
            match self.bits {
                8 => planes.extend(codes.map(|code| code as u8)),
                _ => planes.extend(codes.flat_map(|code| (code as u16).to_le_bytes())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_conversion_to_rgb_and_back() {
        for bits in [8, 10, 12, 16] {
            let codes = 1usize << bits;
            let gbr = Gbr::new(Size { h: 1, w: codes }, bits);
            let samples = (0..3 * codes).map(|i| ((i * 7 + i / codes) % codes) as u16);
            let planes: Vec<u8> = match bits {
                8 => samples.map(|code| code as u8).collect(),
                _ => samples.flat_map(u16::to_le_bytes).collect(),
            };
            let mut again = Vec::new();
            gbr.encode(&gbr.decode(&planes), &mut again);
            assert!(again == planes, "{bits} bits");
        }
    }

    #[test]
    fn the_first_plane_is_green() {
        let gbr = Gbr::new(Size { h: 1, w: 1 }, 8);
        assert_eq!(gbr.decode(&[200, 30, 4]).samples, Samples::U8(vec![4, 200, 30]));
    }
}
