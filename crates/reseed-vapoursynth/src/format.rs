//! Conversion between VapourSynth's frames and those of the library, as Y4M files are converted: codes of YUV by their
//! matrix, range and chroma position.

use std::ffi::{CStr, c_int};

use half::f16;
use reseed::media::planes::{Layout, Matrix, Model, Planes};
use reseed::media::y4m::{Chroma, Range};
use reseed::media::{Depth, Frame, Size};

use crate::api::{FLOAT, GREY, INTEGER, RGB, VsVideoFormat, VsVideoInfo, YUV};
use crate::host::{FrameRef, Host, Map, NewFrame};

/// Bits of the codes that YUV of floats is converted through.
const FLOAT_BITS: u8 = 16;
/// The planes of green, blue and red.
const GBR: [usize; 3] = [1, 2, 0];
/// The matrix property of frames without a tag.
const UNSPECIFIED: i64 = 2;

const MATRIX: &CStr = c"_Matrix";

/// The format of a clip, and the sizes of its frames before and after.
#[derive(Clone, Copy, Debug)]
pub struct ClipFormat {
    format: VsVideoFormat,
    input: Size,
    output: Size,
    /// Whether the sides have different factors, so that pixels change their shape.
    reshapes: bool,
}

impl ClipFormat {
    /// Checks that a clip can be converted. Its output has the size of its input until [`ClipFormat::with_output`].
    pub fn new(host: Host, info: &VsVideoInfo) -> Result<ClipFormat, String> {
        let VsVideoInfo { format, width, height, .. } = *info;
        if format.color_family == 0 || width <= 0 || height <= 0 {
            return Err("the clip's format and size must be constant; convert it first".into());
        }
        let name = || host.format_name(&format);
        let samples = (format.sample_type, format.bits_per_sample);
        if !matches!(samples, (INTEGER, 8..=16) | (FLOAT, 16 | 32)) {
            return Err(format!("{}: use 8 to 16 bits, or half or single floats", name()));
        }
        let chroma = [format.sub_sampling_w, format.sub_sampling_h];
        if !matches!((format.color_family, chroma), (GREY | RGB, _) | (YUV, [0, 0] | [1, 0] | [1, 1])) {
            return Err(format!("{}: use RGB, grey, or YUV of 4:4:4, 4:2:2 or 4:2:0", name()));
        }
        let size = Size { h: height as usize, w: width as usize };
        if !size.is_plausible() {
            return Err(format!("{size} frames are larger than {} pixels per side", Size::MAX_SIDE));
        }
        Ok(ClipFormat { format, input: size, output: size, reshapes: false })
    }

    /// The same with frames of another size as output.
    pub fn with_output(self, output: Size, reshapes: bool) -> ClipFormat {
        ClipFormat { output, reshapes, ..self }
    }

    /// Size of the input.
    pub fn input(&self) -> Size {
        self.input
    }

    /// Columns and rows of the output.
    pub fn output(&self) -> [c_int; 2] {
        [self.output.w as c_int, self.output.h as c_int]
    }

    /// The depth that holds the samples.
    pub fn depth(&self) -> Depth {
        match (self.is_float(), self.format.color_family, self.format.bits_per_sample) {
            (true, RGB, _) => Depth::Float,
            (false, _, 8) => Depth::Eight,
            _ => Depth::Sixteen,
        }
    }

    /// Whether the sides of a frame must be even.
    pub fn is_subsampled(&self) -> bool {
        self.format.sub_sampling_w > 0
    }

    fn is_float(&self) -> bool {
        self.format.sample_type == FLOAT
    }

    /// How a frame of the input stores colour, by its properties.
    pub fn layout(&self, properties: &Map) -> Result<Layout, String> {
        if properties.int(c"_FieldBased").is_some_and(|order| order != 0) {
            return Err("the clip is interlaced; deinterlace it first, or set _FieldBased to 0".into());
        }
        let range = range(properties)?;
        let bits = if self.is_float() { FLOAT_BITS } else { self.format.bits_per_sample as u8 };
        let model = match self.format.color_family {
            RGB if range == Some(Range::Limited) => {
                return Err("RGB of limited range; convert it to full range first".into());
            }
            RGB => Model::Gbr,
            _ => Model::Yuv {
                chroma: self.chroma(properties)?,
                // Floats have no range: black is 0, white is 1.
                range: if self.is_float() { Range::Full } else { range.unwrap_or(Range::Limited) },
                matrix: matrix(properties)?.unwrap_or(Matrix::for_size(self.input)),
            },
        };
        Ok(Layout { model, bits, alpha: false })
    }

    fn chroma(&self, properties: &Map) -> Result<Chroma, String> {
        let location = properties.int(c"_ChromaLocation").unwrap_or(0);
        let unsupported = || format!("_ChromaLocation {location}: use left (0), centre (1) or top left (2)");
        match (self.format.color_family, self.format.sub_sampling_w, self.format.sub_sampling_h) {
            (GREY, ..) => Ok(Chroma::Mono),
            (_, 0, 0) => Ok(Chroma::Yuv444),
            (_, 1, 0) if matches!(location, 0 | 2) => Ok(Chroma::Yuv422),
            (_, 1, 0) => Err(format!("_ChromaLocation {location}: use left (0) for 4:2:2")),
            _ => match location {
                0 => Ok(Chroma::Mpeg420),
                1 => Ok(Chroma::Jpeg420),
                2 => Ok(Chroma::Paldv420),
                _ => Err(unsupported()),
            },
        }
    }

    /// The frame of the library.
    pub fn to_frame(&self, source: &FrameRef, layout: Layout) -> Frame {
        if self.is_float() && layout.model == Model::Gbr {
            return Frame::from_unit(self.input, &self.interleaved(source), self.depth());
        }
        let mut planes = Vec::new();
        for plane in self.planes() {
            let size = self.plane_size(self.input, plane);
            for row in source.rows(plane, size.w * self.format.bytes_per_sample as usize) {
                match self.is_float() {
                    true => planes.extend(self.floats(row).flat_map(|value| code(value, plane).to_le_bytes())),
                    false => planes.extend_from_slice(row),
                }
            }
        }
        Planes::new(self.input, layout).decode(&planes, None)
    }

    /// A frame of the output with the properties of its source.
    pub fn from_frame(&self, host: Host, frame: &Frame, source: &FrameRef, layout: Layout) -> FrameRef {
        let retagged = self.retagged(&source.properties(), layout);
        host.new_frame(&self.format, self.output(), source, |new| {
            if self.is_float() && layout.model == Model::Gbr {
                self.write_interleaved(&frame.to_unit(), new);
            } else {
                let mut planes = Vec::new();
                Planes::new(self.output, retagged).encode(frame, &mut planes);
                self.write_planes(&planes, new);
            }
            self.set_properties(source, retagged, new);
        })
    }

    /// The layout of the output: without a tag, its own size determines the matrix.
    fn retagged(&self, properties: &Map, layout: Layout) -> Layout {
        let tagged = matrix(properties).is_ok_and(|matrix| matrix.is_some());
        match layout.model {
            Model::Yuv { chroma, range, .. } if !tagged => {
                Layout { model: Model::Yuv { chroma, range, matrix: Matrix::for_size(self.output) }, ..layout }
            }
            _ => layout,
        }
    }

    /// Corrects what does not hold for the new frame.
    fn set_properties(&self, source: &FrameRef, layout: Layout, new: &mut NewFrame) {
        let (before, mut properties) = (source.properties(), new.properties());
        // A frame of the old size.
        properties.remove(c"_Alpha");
        if let Model::Yuv { chroma, matrix, .. } = layout.model
            && chroma != Chroma::Mono
        {
            let tag = before.int(MATRIX).filter(|tag| *tag != UNSPECIFIED);
            properties.set(MATRIX, tag.unwrap_or(if matrix == Matrix::Bt709 { 1 } else { 6 }));
        }
        let aspect = before.int(c"_SARNum").zip(before.int(c"_SARDen")).filter(|(num, den)| *num > 0 && *den > 0);
        if let Some((num, den)) = aspect.filter(|_| self.reshapes) {
            let side = |side: usize| side as i128;
            let num = i128::from(num) * side(self.input.w) * side(self.output.h);
            let den = i128::from(den) * side(self.input.h) * side(self.output.w);
            let common = divisor(num, den);
            if let (Ok(num), Ok(den)) = (i64::try_from(num / common), i64::try_from(den / common)) {
                properties.set(c"_SARNum", num);
                properties.set(c"_SARDen", den);
            }
        }
    }

    /// The planes in the order of the library.
    fn planes(&self) -> impl Iterator<Item = usize> + use<> {
        let planes: &'static [usize] = match self.format.color_family {
            RGB => &GBR,
            GREY => &[0],
            _ => &[0, 1, 2],
        };
        planes.iter().copied()
    }

    fn plane_size(&self, size: Size, plane: usize) -> Size {
        let [w, h] = match plane {
            0 => [0, 0],
            _ => [self.format.sub_sampling_w, self.format.sub_sampling_h],
        };
        Size { h: size.h >> h, w: size.w >> w }
    }

    /// The floats of a row, half or single.
    fn floats<'r>(&self, row: &'r [u8]) -> impl Iterator<Item = f32> + use<'r> {
        let bytes = self.format.bytes_per_sample as usize;
        row.chunks_exact(bytes).map(|sample| match *sample {
            [a, b] => f16::from_ne_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
            _ => 0.0,
        })
    }

    /// Writes floats to a row, half or single.
    fn write_floats(&self, values: impl Iterator<Item = f32>, row: &mut [u8]) {
        let bytes = self.format.bytes_per_sample as usize;
        for (sample, value) in row.chunks_exact_mut(bytes).zip(values) {
            match bytes {
                2 => sample.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
                _ => sample.copy_from_slice(&value.to_ne_bytes()),
            }
        }
    }

    /// RGB values of a frame of floats, pixel by pixel.
    fn interleaved(&self, source: &FrameRef) -> Vec<f32> {
        let Size { h, w } = self.input;
        let mut unit = vec![0.0; 3 * h * w];
        for plane in 0..3 {
            let rows = source.rows(plane, w * self.format.bytes_per_sample as usize);
            for (row, to) in rows.zip(unit.chunks_exact_mut(3 * w)) {
                to.iter_mut().skip(plane).step_by(3).zip(self.floats(row)).for_each(|(to, value)| *to = value);
            }
        }
        unit
    }

    fn write_interleaved(&self, unit: &[f32], new: &mut NewFrame) {
        let w = self.output.w;
        for plane in 0..3 {
            let rows = new.rows_mut(plane, w * self.format.bytes_per_sample as usize);
            for (row, from) in rows.zip(unit.chunks_exact(3 * w)) {
                self.write_floats(from.iter().skip(plane).step_by(3).copied(), row);
            }
        }
    }

    fn write_planes(&self, planes: &[u8], new: &mut NewFrame) {
        let (mut rest, bytes) = (planes, self.format.bytes_per_sample as usize);
        for plane in self.planes() {
            let size = self.plane_size(self.output, plane);
            let code_bytes = if self.is_float() { size_of::<u16>() } else { bytes };
            let (codes, others) = rest.split_at(size.pixels() * code_bytes);
            rest = others;
            for (row, codes) in new.rows_mut(plane, size.w * bytes).zip(codes.chunks_exact(size.w * code_bytes)) {
                match self.is_float() {
                    true => self.write_floats(codes.chunks_exact(2).map(|code| value([code[0], code[1]], plane)), row),
                    false => row.copy_from_slice(codes),
                }
            }
        }
    }
}

/// The code of full range of a float: luma is 0 to 1, chroma -1/2 to 1/2.
fn code(value: f32, plane: usize) -> u16 {
    let zero = if plane == 0 { 0.0 } else { 32768.0 };
    // Clamps, and maps NaN to 0.
    (value * 65535.0 + zero + 0.5) as u16
}

/// The float of a code.
fn value(code: [u8; 2], plane: usize) -> f32 {
    let zero = if plane == 0 { 0.0 } else { 32768.0 };
    (f32::from(u16::from_le_bytes(code)) - zero) / 65535.0
}

/// The range property. VapourSynth before API 4.2 had another one with the opposite values.
fn range(properties: &Map) -> Result<Option<Range>, String> {
    let old = || properties.int(c"_ColorRange").map(|value| 1 - value);
    match properties.int(c"_Range").or_else(old) {
        None => Ok(None),
        Some(0) => Ok(Some(Range::Limited)),
        Some(1) => Ok(Some(Range::Full)),
        Some(value) => Err(format!("_Range {value}: must be 0 or 1")),
    }
}

/// The matrix property; none for a frame without a tag.
fn matrix(properties: &Map) -> Result<Option<Matrix>, String> {
    match properties.int(MATRIX) {
        None | Some(UNSPECIFIED) => Ok(None),
        Some(1) => Ok(Some(Matrix::Bt709)),
        Some(4) => Ok(Some(Matrix::Fcc)),
        Some(5 | 6) => Ok(Some(Matrix::Bt601)),
        Some(7) => Ok(Some(Matrix::Smpte240m)),
        Some(9) => Ok(Some(Matrix::Bt2020)),
        Some(other) => Err(format!("_Matrix {other}: convert the clip to RGB, BT.601, BT.709 or BT.2020 first")),
    }
}

/// The greatest common divisor.
fn divisor(a: i128, b: i128) -> i128 {
    if b == 0 { a.max(1) } else { divisor(b, a % b) }
}
