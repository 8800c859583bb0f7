//! Conversion between planes of YUV codes and RGB frames.

use std::borrow::Cow;

use super::filter::{Axis, Filter, RowWindow};
use crate::format::{Chroma, Matrix, Range};
use crate::frame::{Depth, Frame, Samples, Size};
use crate::rows;

/// The codes of black, white and neutral chroma.
#[derive(Debug, Clone, Copy)]
struct Codes {
    black: f32,
    luma_span: f32,
    grey: f32,
    chroma_span: f32,
    max: f32,
}

impl Codes {
    fn new(range: Range, bits: u8) -> Codes {
        let step = f32::from(1u16 << (bits - 8));
        let max = 256.0 * step - 1.0;
        let grey = 128.0 * step;
        match range {
            Range::Limited => {
                Codes { black: 16.0 * step, luma_span: 219.0 * step, grey, chroma_span: 224.0 * step, max }
            }
            Range::Full => Codes { black: 0.0, luma_span: max, grey, chroma_span: max, max },
        }
    }

    /// The code of 0 and the number of codes from 0 to 1.
    fn luma(self) -> [f32; 2] {
        [self.black, self.luma_span]
    }

    fn chroma(self) -> [f32; 2] {
        [self.grey, self.chroma_span]
    }
}

/// The positions of chroma, vertically and horizontally.
struct Siting {
    v: Axis,
    h: Axis,
}

impl Siting {
    fn of(chroma: Chroma) -> Option<Siting> {
        use Axis::{Centred, CoSited, Same};
        match chroma {
            Chroma::Jpeg420 => Some(Siting { v: Centred, h: Centred }),
            Chroma::Mpeg420 => Some(Siting { v: Centred, h: CoSited }),
            Chroma::Paldv420 => Some(Siting { v: CoSited, h: CoSited }),
            Chroma::Yuv422 => Some(Siting { v: Same, h: CoSited }),
            Chroma::Yuv444 => Some(Siting { v: Same, h: Same }),
            Chroma::Mono => None,
        }
    }
}

/// The size of the chroma planes, and the filters to and from it.
struct Subsampling {
    size: Size,
    up: Filters,
    down: Filters,
}

struct Filters {
    v: Filter,
    h: Filter,
}

impl Subsampling {
    fn new(siting: Siting, luma: Size) -> Subsampling {
        let Siting { v, h } = siting;
        Subsampling {
            size: Size { h: v.chroma_len(luma.h), w: h.chroma_len(luma.w) },
            up: Filters { v: Filter::up(v, luma.h), h: Filter::up(h, luma.w) },
            down: Filters { v: Filter::down(v, luma.h), h: Filter::down(h, luma.w) },
        }
    }
}

/// A converter for the frames of one stream.
pub(crate) struct Yuv {
    size: Size,
    bits: u8,
    codes: Codes,
    matrix: Matrix,
    subsampling: Option<Subsampling>,
}

impl Yuv {
    pub fn new(size: Size, chroma: Chroma, bits: u8, range: Range, matrix: Matrix) -> Yuv {
        Yuv {
            size,
            bits,
            codes: Codes::new(range, bits),
            matrix,
            subsampling: Siting::of(chroma).map(|siting| Subsampling::new(siting, size)),
        }
    }

    /// Bytes of all planes of a frame.
    pub fn frame_bytes(&self) -> usize {
        let chroma = self.subsampling.as_ref().map_or(0, |subsampling| subsampling.size.pixels());
        (self.size.pixels() + 2 * chroma) * self.bytes_per_sample()
    }

    fn bytes_per_sample(&self) -> usize {
        if self.bits == 8 { 1 } else { 2 }
    }

    /// R = Y + 2 (1 - kr) Cr
    /// G = (Y - kr R - kb B) / kg
    /// B = Y + 2 (1 - kb) Cb        Y in [0, 1]; Cb, Cr in [-1/2, 1/2]
    ///
    /// The frame reuses the memory of `spare` if its depth and length match.
    pub fn decode(&self, planes: &[u8], spare: Option<Samples>) -> Frame {
        assert_eq!(planes.len(), self.frame_bytes(), "bytes of a {} frame", self.size);
        let Size { h, w } = self.size;
        let row_bytes = w * self.bytes_per_sample();
        let (luma, chroma) = planes.split_at(h * row_bytes);
        let (cb, cr) = chroma.split_at(chroma.len() / 2);
        let mut chroma = self.subsampling.as_ref().map(|s| [cb, cr].map(|plane| ChromaRows::new(self, s, plane)));

        let (depth, count) = (Depth::for_bits(self.bits), 3 * self.size.pixels());
        let spare = spare.filter(|spare| (spare.depth(), spare.len()) == (depth, count));
        let mut samples = spare.unwrap_or_else(|| Samples::black(depth, count));
        let (scale, grey) = (self.codes.luma(), vec![0.0; w]);
        // Without chroma, these weights make R, G and B bit-identical to luma.
        let weights = if chroma.is_some() { self.matrix.weights() } else { [0.0, 1.0, 0.0] };
        for (y, luma) in luma.chunks_exact(row_bytes).enumerate() {
            let chroma: [&[f32]; 2] = match &mut chroma {
                None => [&grey; 2],
                Some([cb, cr]) => [cb.row(y), cr.row(y)],
            };
            let row = 3 * w * y..3 * w * (y + 1);
            match &mut samples {
                Samples::U8(samples) => rows::pixels_8(luma, scale, chroma, weights, &mut samples[row]),
                Samples::U16(samples) => rows::pixels_16(luma, scale, chroma, weights, &mut samples[row]),
                Samples::F32(_) => unreachable!("video has integer codes"),
            }
        }
        Frame { size: self.size, samples, alpha: None }
    }

    /// Cb = (B - Y) / 2 (1 - kb)
    /// Cr = (R - Y) / 2 (1 - kr)
    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        frame.assert_fits(self.size);
        planes.resize(self.frame_bytes(), 0);
        let Size { h, w } = self.size;
        let row_bytes = w * self.bytes_per_sample();
        let (luma, chroma) = planes.split_at_mut(h * row_bytes);
        let (cb, cr) = chroma.split_at_mut(chroma.len() / 2);
        let mut chroma = self.subsampling.as_ref().map(|s| [cb, cr].map(|plane| ChromaPlane::new(self, s, plane)));

        let ([zero, span], weights) = (self.codes.luma(), self.matrix.weights());
        let scale = [zero, span, self.codes.max];
        let [mut cb_row, mut cr_row] = [(); 2].map(|()| vec![0.0; w]);
        let rounded = match frame.depth() {
            Depth::Float => Cow::Owned(frame.samples.to_depth(Depth::for_bits(self.bits))),
            _ => Cow::Borrowed(&frame.samples),
        };
        for (y, luma) in luma.chunks_exact_mut(row_bytes).enumerate() {
            let (row, rows) = (3 * w * y..3 * w * (y + 1), [&mut cb_row[..], &mut cr_row]);
            match &*rounded {
                Samples::U8(samples) => rows::planes_8(&samples[row], weights, scale, luma, rows),
                Samples::U16(samples) => rows::planes_16(&samples[row], weights, scale, luma, rows),
                Samples::F32(_) => unreachable!("floats are rounded above"),
            }
            if let Some([cb, cr]) = &mut chroma {
                cb.push(y, &cb_row);
                cr.push(y, &cr_row);
            }
        }
    }

    fn read_codes(&self, bytes: &[u8], scale: [f32; 2], values: &mut [f32]) {
        let read = if self.bits == 8 { rows::values_of_8 } else { rows::values_of_16 };
        read(bytes, scale, values);
    }

    fn write_codes(&self, values: &[f32], scale: [f32; 2], bytes: &mut [u8]) {
        let write = if self.bits == 8 { rows::codes_of_8 } else { rows::codes_of_16 };
        write(values, scale, self.codes.max, bytes);
    }
}

/// Reads a chroma plane as rows at luma positions.
struct ChromaRows<'a> {
    yuv: &'a Yuv,
    subsampling: &'a Subsampling,
    plane: &'a [u8],
    rows: RowWindow,
    /// A row after vertical filtering, at chroma width.
    narrow: Vec<f32>,
    /// A row after horizontal filtering, at luma width.
    wide: Vec<f32>,
}

impl<'a> ChromaRows<'a> {
    fn new(yuv: &'a Yuv, subsampling: &'a Subsampling, plane: &'a [u8]) -> ChromaRows<'a> {
        let w = subsampling.size.w;
        let (rows, narrow, wide) = (RowWindow::new(w), vec![0.0; w], vec![0.0; yuv.size.w]);
        ChromaRows { yuv, subsampling, plane, rows, narrow, wide }
    }

    fn row(&mut self, y: usize) -> &[f32] {
        let ChromaRows { yuv, subsampling: Subsampling { size, up, .. }, plane, rows, narrow, wide } = self;
        let bytes = size.w * yuv.bytes_per_sample();
        let read = |i: usize, row: &mut [f32]| yuv.read_codes(&plane[i * bytes..][..bytes], yuv.codes.chroma(), row);
        rows.fill_to(up.v.last_row(y), read);
        up.v.vertical(rows, y, narrow);
        up.h.horizontal(narrow, wide);
        wide
    }
}

/// Writes a chroma plane from rows at luma positions.
struct ChromaPlane<'a> {
    yuv: &'a Yuv,
    subsampling: &'a Subsampling,
    plane: &'a mut [u8],
    /// Rows after horizontal filtering.
    rows: RowWindow,
    /// The index of the next output row.
    next: usize,
    output: Vec<f32>,
}

impl<'a> ChromaPlane<'a> {
    fn new(yuv: &'a Yuv, subsampling: &'a Subsampling, plane: &'a mut [u8]) -> ChromaPlane<'a> {
        let w = subsampling.size.w;
        ChromaPlane { yuv, subsampling, plane, rows: RowWindow::new(w), next: 0, output: vec![0.0; w] }
    }

    /// Adds row `y` and writes the output rows that it completes.
    fn push(&mut self, y: usize, row: &[f32]) {
        let ChromaPlane { yuv, subsampling: Subsampling { size, down, .. }, plane, rows, next, output } = self;
        rows.fill_to(y, |_, narrow| down.h.horizontal(row, narrow));
        let bytes = size.w * yuv.bytes_per_sample();
        while *next < size.h && down.v.last_row(*next) <= y {
            down.v.vertical(rows, *next, output);
            yuv.write_codes(output, yuv.codes.chroma(), &mut plane[*next * bytes..][..bytes]);
            *next += 1;
        }
    }
}

#[cfg(test)]
mod tests;
