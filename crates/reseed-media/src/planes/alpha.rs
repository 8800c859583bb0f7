//! A plane of alpha codes of full range.

use crate::frame::{Depth, Samples, Size};

/// A converter for the alpha of one stream.
pub(crate) struct AlphaPlane {
    pixels: usize,
    bits: u8,
}

impl AlphaPlane {
    pub fn new(size: Size, bits: u8) -> AlphaPlane {
        AlphaPlane { pixels: size.pixels(), bits }
    }

    pub fn bytes(&self) -> usize {
        self.pixels * if self.bits == 8 { 1 } else { 2 }
    }

    fn opaque(&self) -> f32 {
        ((1u32 << self.bits) - 1) as f32
    }

    pub fn decode(&self, plane: &[u8]) -> Samples {
        assert_eq!(plane.len(), self.bytes(), "bytes of {} alpha samples", self.pixels);
        if self.bits == 8 {
            return Samples::U8(plane.to_vec());
        }
        let codes = plane.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
        let unit: Vec<f32> = codes.map(|code| f32::from(code) / self.opaque()).collect();
        Samples::from_unit(&unit, Depth::for_bits(self.bits))
    }

    /// Appends the codes of alpha; a frame without alpha is opaque.
    pub fn encode(&self, alpha: Option<&Samples>, planes: &mut Vec<u8>) {
        let mut unit = vec![1.0; self.pixels];
        if let Some(alpha) = alpha {
            alpha.copy_to_unit(0..self.pixels, &mut unit);
        }
        let codes = unit.iter().map(|value| value * self.opaque() + 0.5);
        match self.bits {
            8 => planes.extend(codes.map(|code| code as u8)),
            _ => planes.extend(codes.flat_map(|code| (code as u16).to_le_bytes())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_conversion_to_samples_and_back() {
        for bits in [8, 10, 12, 16] {
            let codes = 1usize << bits;
            let plane = AlphaPlane::new(Size { h: 1, w: codes }, bits);
            let codes: Vec<u8> = match bits {
                8 => (0..codes).map(|code| code as u8).collect(),
                _ => (0..codes).flat_map(|code| (code as u16).to_le_bytes()).collect(),
            };
            let mut again = Vec::new();
            plane.encode(Some(&plane.decode(&codes)), &mut again);
            assert!(again == codes, "{bits} bits");
        }
    }

    #[test]
    fn a_frame_without_alpha_is_opaque() {
        let mut planes = Vec::new();
        AlphaPlane::new(Size { h: 1, w: 1 }, 10).encode(None, &mut planes);
        assert_eq!(planes, 1023u16.to_le_bytes());
    }
}
