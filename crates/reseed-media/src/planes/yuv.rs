//! Planes of YUV codes to RGB frames and back.

use super::filter::{Axis, Filter};
use super::{Matrix, depth};
use crate::frame::{Frame, Samples, Size};
use crate::y4m::{Chroma, Range};

/// Where codes put black, white and grey chroma.
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
}

/// Where chroma lies, down and across.
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

/// The size of the chroma planes and the way to and from them.
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
    pub fn decode(&self, planes: &[u8]) -> Frame {
        assert_eq!(planes.len(), self.frame_bytes(), "bytes of a {} frame", self.size);
        let Size { h, w } = self.size;
        let (kr, kg, kb) = (self.matrix.kr(), self.matrix.kg(), self.matrix.kb());
        let row_bytes = w * self.bytes_per_sample();
        let (luma, chroma) = planes.split_at(h * row_bytes);
        let mut chroma = self.subsampling.as_ref().map(|subsampling| ChromaRows::new(self, subsampling, chroma));

        let mut samples = Samples::with_capacity(depth(self.bits), 3 * self.size.pixels());
        let row = || vec![0.0; w];
        let (mut y_row, mut r, mut g, mut b) = (row(), row(), row(), row());
        for (y, luma) in luma.chunks_exact(row_bytes).enumerate() {
            self.read_codes(luma, self.codes.black, self.codes.luma_span, &mut y_row);
            match &mut chroma {
                None => [&mut r, &mut g, &mut b].map(|row| row.copy_from_slice(&y_row)),
                Some(chroma) => {
                    let (cb, cr) = chroma.row(y);
                    r.iter_mut().zip(&y_row).zip(cr).for_each(|((r, y), cr)| *r = y + 2.0 * (1.0 - kr) * cr);
                    b.iter_mut().zip(&y_row).zip(cb).for_each(|((b, y), cb)| *b = y + 2.0 * (1.0 - kb) * cb);
                    let rb = r.iter().zip(&b);
                    g.iter_mut().zip(&y_row).zip(rb).for_each(|((g, y), (r, b))| *g = (y - kr * r - kb * b) / kg);
                    [(); 3]
                }
            };
            samples.extend_from_channels([&r, &g, &b]);
        }
        Frame { size: self.size, samples, alpha: None }
    }

    /// Cb = (B - Y) / 2 (1 - kb)
    /// Cr = (R - Y) / 2 (1 - kr)
    pub fn encode(&self, frame: &Frame, planes: &mut Vec<u8>) {
        frame.assert_fits(self.size);
        planes.clear();
        let Size { h, w } = self.size;
        let (kr, kg, kb) = (self.matrix.kr(), self.matrix.kg(), self.matrix.kb());
        let chroma_width = self.subsampling.as_ref().map_or(0, |subsampling| subsampling.size.w);

        let row = || vec![0.0; w];
        let (mut r, mut g, mut b) = (row(), row(), row());
        let (mut y_row, mut cb_row, mut cr_row) = (row(), row(), row());
        // Already narrow, not yet low: rows are filtered once all are there.
        let (mut cb, mut cr) = (vec![0.0; h * chroma_width], vec![0.0; h * chroma_width]);
        for y in 0..h {
            frame.samples.copy_to_channels(3 * w * y..3 * w * (y + 1), [&mut r, &mut g, &mut b]);
            let rgb = r.iter().zip(&g).zip(&b);
            y_row.iter_mut().zip(rgb).for_each(|(y, ((r, g), b))| *y = kr * r + kg * g + kb * b);
            cb_row.iter_mut().zip(&y_row).zip(&b).for_each(|((cb, y), b)| *cb = (b - y) / (2.0 * (1.0 - kb)));
            cr_row.iter_mut().zip(&y_row).zip(&r).for_each(|((cr, y), r)| *cr = (r - y) / (2.0 * (1.0 - kr)));
            self.write_codes(&y_row, self.codes.black, self.codes.luma_span, planes);
            if let Some(subsampling) = &self.subsampling {
                let narrow = y * chroma_width..(y + 1) * chroma_width;
                subsampling.down.h.along(&cb_row, &mut cb[narrow.clone()]);
                subsampling.down.h.along(&cr_row, &mut cr[narrow]);
            }
        }
        if let Some(subsampling) = &self.subsampling {
            self.write_chroma(subsampling, &cb, planes);
            self.write_chroma(subsampling, &cr, planes);
        }
    }

    fn write_chroma(&self, subsampling: &Subsampling, narrow: &[f32], planes: &mut Vec<u8>) {
        let mut row = vec![0.0; subsampling.size.w];
        for y in 0..subsampling.size.h {
            subsampling.down.v.across(narrow, y, &mut row);
            self.write_codes(&row, self.codes.grey, self.codes.chroma_span, planes);
        }
    }

    /// Values from codes: `zero` is the code of 0, `span` the codes from 0 to 1.
    fn read_codes(&self, bytes: &[u8], zero: f32, span: f32, values: &mut [f32]) {
        let value = |code: f32| (code - zero) / span;
        if self.bits == 8 {
            values.iter_mut().zip(bytes).for_each(|(v, byte)| *v = value(f32::from(*byte)));
        } else {
            let codes = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            values.iter_mut().zip(codes).for_each(|(v, code)| *v = value(f32::from(code)));
        }
    }

    /// Codes from values, rounded to nearest and kept within what the bits can say.
    fn write_codes(&self, values: &[f32], zero: f32, span: f32, bytes: &mut Vec<u8>) {
        let code = |value: &f32| (value * span + zero + 0.5).min(self.codes.max);
        let start = bytes.len();
        bytes.resize(start + values.len() * if self.bits == 8 { 1 } else { 2 }, 0);
        let bytes = &mut bytes[start..];
        if self.bits == 8 {
            bytes.iter_mut().zip(values).for_each(|(byte, value)| *byte = code(value) as u8);
        } else {
            let pairs = bytes.chunks_exact_mut(2).zip(values);
            pairs.for_each(|(pair, value)| pair.copy_from_slice(&(code(value) as u16).to_le_bytes()));
        }
    }
}

/// Chroma at luma's positions, row by row.
struct ChromaRows<'a> {
    subsampling: &'a Subsampling,
    cb: Vec<f32>,
    cr: Vec<f32>,
    narrow: Vec<f32>,
    cb_row: Vec<f32>,
    cr_row: Vec<f32>,
}

impl<'a> ChromaRows<'a> {
    fn new(yuv: &Yuv, subsampling: &'a Subsampling, planes: &[u8]) -> ChromaRows<'a> {
        let values = |bytes: &[u8]| {
            let mut values = vec![0.0; subsampling.size.pixels()];
            yuv.read_codes(bytes, yuv.codes.grey, yuv.codes.chroma_span, &mut values);
            values
        };
        let (cb, cr) = planes.split_at(planes.len() / 2);
        let row = || vec![0.0; yuv.size.w];
        let narrow = vec![0.0; subsampling.size.w];
        ChromaRows { subsampling, cb: values(cb), cr: values(cr), narrow, cb_row: row(), cr_row: row() }
    }

    fn row(&mut self, y: usize) -> (&[f32], &[f32]) {
        let Filters { v, h } = &self.subsampling.up;
        v.across(&self.cb, y, &mut self.narrow);
        h.along(&self.narrow, &mut self.cb_row);
        v.across(&self.cr, y, &mut self.narrow);
        h.along(&self.narrow, &mut self.cr_row);
        (&self.cb_row, &self.cr_row)
    }
}

#[cfg(test)]
mod tests;
