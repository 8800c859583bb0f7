//! Frames of a small VapourSynth, in memory.

use std::collections::BTreeMap;

use reseed_vapoursynth::api::VsVideoFormat;

/// A value of a map.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(i64),
    Float(f64),
    Text(String),
}

pub type Properties = BTreeMap<String, Value>;

/// A frame: planes with rows further apart than they are long.
#[derive(Clone, Debug, PartialEq)]
pub struct FakeFrame {
    pub format: VsVideoFormat,
    pub size: [usize; 2],
    pub planes: Vec<Vec<u8>>,
    pub properties: Properties,
}

/// Bytes after each row.
const GAP: usize = 24;

impl FakeFrame {
    pub fn new(format: VsVideoFormat, size: [usize; 2], properties: Properties) -> FakeFrame {
        let mut frame = FakeFrame { format, size, planes: Vec::new(), properties };
        frame.planes = (0..format.num_planes as usize).map(|p| vec![0; frame.stride(p) * frame.plane(p)[1]]).collect();
        frame
    }

    pub fn plane(&self, plane: usize) -> [usize; 2] {
        let [w, h] = self.size;
        let chroma = plane > 0;
        [w >> (self.format.sub_sampling_w * i32::from(chroma)), h >> (self.format.sub_sampling_h * i32::from(chroma))]
    }

    pub fn stride(&self, plane: usize) -> usize {
        self.plane(plane)[0] * self.format.bytes_per_sample as usize + GAP
    }

    /// The samples of all planes without gaps.
    pub fn bytes(&self) -> Vec<u8> {
        let rows = |plane: usize| {
            let (stride, length) = (self.stride(plane), self.stride(plane) - GAP);
            self.planes[plane].chunks_exact(stride).flat_map(move |row| row[..length].to_vec())
        };
        (0..self.planes.len()).flat_map(rows).collect()
    }

    /// The same with other samples.
    pub fn with_bytes(mut self, bytes: &[u8]) -> FakeFrame {
        let mut rest = bytes;
        for plane in 0..self.planes.len() {
            let stride = self.stride(plane);
            for row in self.planes[plane].chunks_exact_mut(stride) {
                let (these, others) = rest.split_at(stride - GAP);
                row[..stride - GAP].copy_from_slice(these);
                rest = others;
            }
        }
        assert!(rest.is_empty(), "samples are left");
        self
    }
}
