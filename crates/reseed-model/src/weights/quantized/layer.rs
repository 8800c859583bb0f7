//! One quantised matrix: its format, the tensors it consists of, and its values.

use reseed_ops::quant::{convrot, e2m1, e4m3, e8m0};
use reseed_ops::{Numbers, Quant, Shape};
use serde_json::Value;

use super::{OLD_SCALE, SCALE, SECOND_SCALE, WEIGHT, invalid, unsupported};
use crate::error::{Error, Result, excerpt};
use crate::weights::Source;
use crate::weights::element::{ElementType, e5m2};
use crate::weights::safetensors::Safetensors;

/// Group size of a rotation whose description has none.
const GROUP: usize = 256;
/// Limit of the group size. ComfyUI uses 256.
const MAX_GROUP: u64 = 1 << 14;
/// Values per scale.
const MXFP8_BLOCK: usize = 32;
const NVFP4_BLOCK: usize = 16;

/// How a matrix is quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Floats of a byte and one scale, or one per row.
    Fp8,
    /// Integers of a byte and one scale, or one per row. With a group size, rows are multiplied by a Hadamard matrix.
    Int8(Option<usize>),
    /// Floats of a byte, and a power of two for each 32.
    Mxfp8,
    /// Floats of four bits, a scale for each 16, and one for all.
    Nvfp4,
}

impl Format {
    /// Reads the description of a layer. `name` is the tensor or the layer that it is about.
    pub fn parse(file: &Safetensors, name: &str, description: &Value) -> Result<Format> {
        let Some(format) = description.get("format").and_then(Value::as_str) else {
            return Err(invalid(file, name, "it names no format"));
        };
        let group = group(file, name, description)?;
        match format {
            "int8_tensorwise" => Ok(Format::Int8(group)),
            // Some converters rotate other formats too. Read without the rotation, the values would be wrong.
            other if group.is_some() => Err(unsupported(file, name, &format!("{} with ConvRot", excerpt(other)))),
            "float8_e4m3fn" | "float8_e5m2" => Ok(Format::Fp8),
            "mxfp8" => Ok(Format::Mxfp8),
            "nvfp4" => Ok(Format::Nvfp4),
            other => Err(unsupported(file, name, &excerpt(other))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Format::Fp8 => "fp8",
            Format::Int8(None) => "int8",
            Format::Int8(Some(_)) => "int8 ConvRot",
            Format::Mxfp8 => "MXFP8",
            Format::Nvfp4 => "NVFP4",
        }
    }

    fn elements(self) -> &'static [ElementType] {
        match self {
            Format::Fp8 => &[ElementType::F8E4m3, ElementType::F8E5m2],
            Format::Int8(_) => &[ElementType::I8],
            Format::Mxfp8 => &[ElementType::F8E4m3],
            Format::Nvfp4 => &[ElementType::U8],
        }
    }

    fn scale_elements(self) -> &'static [ElementType] {
        match self {
            Format::Fp8 | Format::Int8(_) => &[ElementType::F32, ElementType::F16, ElementType::Bf16],
            Format::Mxfp8 => &[ElementType::U8, ElementType::F8E8m0],
            Format::Nvfp4 => &[ElementType::F8E4m3, ElementType::U8],
        }
    }

    /// Values per scale of a row.
    fn block(self) -> Option<usize> {
        match self {
            Format::Fp8 | Format::Int8(_) => None,
            Format::Mxfp8 => Some(MXFP8_BLOCK),
            Format::Nvfp4 => Some(NVFP4_BLOCK),
        }
    }
}

/// The group size of a rotation, if there is one.
fn group(file: &Safetensors, name: &str, description: &Value) -> Result<Option<usize>> {
    let field = |key: &str| description.get(key).or_else(|| description.get("params")?.get(key));
    if !field("convrot").and_then(Value::as_bool).unwrap_or(false) {
        return Ok(None);
    }
    let Some(size) = field("convrot_groupsize") else { return Ok(Some(GROUP)) };
    let power_of_four = |size: &u64| size.is_power_of_two() && size.ilog2().is_multiple_of(2);
    match size.as_u64().filter(|size| power_of_four(size) && (4..=MAX_GROUP).contains(size)) {
        Some(size) => Ok(Some(size as usize)),
        None => {
            let size = excerpt(&size.to_string());
            Err(invalid(file, name, format!("its ConvRot group size is {size}, which is not a power of 4 from 4 on")))
        }
    }
}

/// A quantised matrix of a file.
pub struct Layer {
    format: Format,
    /// Element type of the matrix.
    element: ElementType,
    weight: String,
    scale: String,
    second: String,
    /// Rows and columns in the file, with padding, and of the network.
    stored: [usize; 2],
    shape: [usize; 2],
}

impl Layer {
    /// Finds the tensors of a layer and checks their types and shapes.
    pub fn new(file: &Safetensors, base: &str, format: Format) -> Result<Layer> {
        let [weight, second] = [WEIGHT, SECOND_SCALE].map(|end| format!("{base}{end}"));
        let names = [SCALE, OLD_SCALE].map(|end| format!("{base}{end}"));
        let scale = names.iter().find(|name| file.shapes().contains_key(*name)).unwrap_or(&names[0]).clone();
        let element = element(file, &weight, format, format.elements())?;
        let &[rows, columns] = file.shapes()[&weight].dims() else {
            return Err(invalid(file, &weight, format!("{} needs a matrix", format.name())));
        };
        let columns = if format == Format::Nvfp4 { columns.saturating_mul(2) } else { columns };
        if rows == 0 || columns == 0 {
            return Err(invalid(file, &weight, "it is empty"));
        }
        let divisor = if let Format::Int8(group) = format { group } else { format.block() }.unwrap_or(1);
        if !columns.is_multiple_of(divisor) {
            let reason = format!("its {columns} columns are not whole {} blocks of {divisor}", format.name());
            return Err(invalid(file, &weight, reason));
        }
        self::element(file, &scale, format, format.scale_elements())?;
        let (stored, shape) = ([rows, columns], [rows, columns]);
        let layer = Layer { format, element, weight, scale, second, stored, shape };
        layer.check_scales(file)?;
        Ok(layer)
    }

    fn check_scales(&self, file: &Safetensors) -> Result<()> {
        let (found, [rows, columns]) = (file.shapes()[&self.scale], self.stored);
        let expected: &[Shape] = match self.format.block() {
            None => &[Shape::from([1]), Shape::from([rows, 1]), Shape::from([rows])],
            // Tiles of 128 rows and four columns.
            Some(block) => &[Shape::from([rows.next_multiple_of(128), (columns / block).next_multiple_of(4)])],
        };
        let is_single = self.format.block().is_none() && found.count() == 1;
        if !is_single && !expected.contains(&found) {
            let expected: Vec<String> = expected.iter().map(Shape::to_string).collect();
            let reason =
                format!("it is {found}; {} of {rows}x{columns} needs {}", self.format.name(), expected.join(" or "));
            return Err(invalid(file, &self.scale, reason));
        }
        if self.format == Format::Nvfp4 {
            let floats = [ElementType::F32, ElementType::F16, ElementType::Bf16];
            element(file, &self.second, self.format, &floats)?;
            if file.shapes()[&self.second].count() != 1 {
                let found = file.shapes()[&self.second];
                return Err(invalid(file, &self.second, format!("it is {found}; NVFP4 needs one value")));
            }
        }
        Ok(())
    }

    /// Rows and columns of the network.
    pub fn shape(&self) -> Shape {
        Shape::from(self.shape)
    }

    /// Removes padding if `expected` padded to whole blocks is the shape in the file.
    pub fn crop(&mut self, expected: Shape) {
        let (Some(block), &[rows, columns]) = (self.format.block(), expected.dims()) else { return };
        let padded = [rows, columns].map(|n| n.next_multiple_of(block));
        if padded == self.stored || [rows, padded[1]] == self.stored {
            self.shape = [rows, columns];
        }
    }

    /// Format on a device: blocks of the formats that have one, if rows are whole blocks.
    pub fn quant(&self) -> Option<Quant> {
        let quant = match (self.format, self.element) {
            (Format::Fp8, ElementType::F8E4m3) => Quant::ScaledE4m3,
            (Format::Int8(Some(GROUP)), _) => Quant::Int8ConvRot,
            (Format::Mxfp8, _) => Quant::Mxfp8,
            (Format::Nvfp4, _) => Quant::Nvfp4,
            (Format::Fp8 | Format::Int8(_), _) => return None,
        };
        (self.shape[1] == self.stored[1] && self.shape[1].is_multiple_of(quant.block().0)).then_some(quant)
    }

    /// Values of the matrix without padding.
    pub fn read(&self, file: &Safetensors) -> Result<Vec<f32>> {
        let (bytes, scales) = (file.bytes(&self.weight)?, self.scales(file)?);
        let [rows, columns] = self.shape;
        let mut values = Vec::with_capacity(rows * columns);
        let mut whole = Vec::with_capacity(self.stored[1]);
        for (row, bytes) in bytes.chunks_exact(bytes.len() / self.stored[0]).take(rows).enumerate() {
            whole.clear();
            self.row(bytes, row, &scales, &mut whole);
            values.extend_from_slice(&whole[..columns]);
        }
        Ok(values)
    }

    /// Appends the values of a row, with padding.
    fn row(&self, bytes: &[u8], row: usize, scales: &Scales, values: &mut Vec<f32>) {
        match self.format {
            Format::Fp8 => {
                let value = if self.element == ElementType::F8E5m2 { e5m2 } else { e4m3 };
                values.extend(bytes.iter().map(|&byte| value(byte) * scales.of_row(row)));
            }
            Format::Int8(None) => values.extend(bytes.iter().map(|&byte| f32::from(byte as i8) * scales.of_row(row))),
            Format::Int8(Some(group)) => {
                bytes.chunks_exact(group).for_each(|bytes| convrot(scales.of_row(row), bytes, values));
            }
            Format::Mxfp8 => {
                for (i, bytes) in bytes.chunks_exact(MXFP8_BLOCK).enumerate() {
                    let scale = e8m0(scales.of_block(row, i));
                    values.extend(bytes.iter().map(|&byte| e4m3(byte) * scale));
                }
            }
            Format::Nvfp4 => {
                for (i, bytes) in bytes.chunks_exact(NVFP4_BLOCK / 2).enumerate() {
                    let scale = scales.floats[0] * e4m3(scales.of_block(row, i));
                    values.extend(bytes.iter().flat_map(|&b| [e2m1(b >> 4) * scale, e2m1(b & 15) * scale]));
                }
            }
        }
    }

    /// The matrix in blocks of its quantisation, or as floats.
    pub fn numbers(&self, file: &Safetensors) -> Result<Numbers> {
        let Some(quant) = self.quant() else { return Ok(Numbers::Floats(self.read(file)?)) };
        let (bytes, scales) = (file.bytes(&self.weight)?, self.scales(file)?);
        let ([rows, columns], (values, size)) = (self.shape, quant.block());
        let mut blocks = Vec::with_capacity(quant.bytes(rows * columns));
        let stored = if quant == Quant::Nvfp4 { values / 2 } else { values };
        for (row, bytes) in bytes.chunks_exact(bytes.len() / self.stored[0]).take(rows).enumerate() {
            for (i, bytes) in bytes.chunks_exact(stored).enumerate() {
                if quant != Quant::Mxfp8 {
                    blocks.extend(scales.of_row(row).to_le_bytes());
                }
                if let Some(block) = self.format.block() {
                    let per_block = values / block;
                    blocks.extend((0..per_block).map(|j| scales.of_block(row, i * per_block + j)));
                }
                blocks.extend_from_slice(bytes);
            }
        }
        debug_assert_eq!(blocks.len() * values, rows * columns * size);
        Ok(Numbers::Quant(quant, blocks))
    }

    /// Reads the scales and checks that they are numbers.
    fn scales(&self, file: &Safetensors) -> Result<Scales> {
        let not_finite = |name: &str, i: usize, value: f32| {
            let reason = format!("scale {i} is {value}: the file is damaged");
            Error::InvalidQuantization { path: file.path().into(), name: name.into(), reason }
        };
        let floats = |name: &str| {
            let values = file.read(name)?;
            match values.iter().position(|value| !value.is_finite()) {
                Some(i) => Err(not_finite(name, i, values[i])),
                None => Ok(values),
            }
        };
        let Some(block) = self.format.block() else {
            return Ok(Scales { floats: floats(&self.scale)?, blocks: Vec::new(), tiles: 0 });
        };
        let (blocks, tiles) = (file.bytes(&self.scale)?, (self.stored[1] / block).div_ceil(4));
        let is_nan = |byte: &u8| if self.format == Format::Nvfp4 { byte & 0x7F == 0x7F } else { *byte == 0xFF };
        if let Some(i) = blocks.iter().position(is_nan) {
            return Err(not_finite(&self.scale, i, f32::NAN));
        }
        let floats = if self.format == Format::Nvfp4 { floats(&self.second)? } else { Vec::new() };
        Ok(Scales { floats, blocks, tiles })
    }
}

/// Scales of a matrix.
struct Scales {
    /// One, or one per row.
    floats: Vec<f32>,
    /// Bytes of the blocks of all rows in tiles of 128 rows and four columns, as tensor cores read them.
    blocks: Vec<u8>,
    /// Tiles per row of tiles.
    tiles: usize,
}

impl Scales {
    fn of_row(&self, row: usize) -> f32 {
        self.floats[if self.floats.len() == 1 { 0 } else { row }]
    }

    /// In a tile, the four scales of rows 0, 32, 64 and 96 are neighbours.
    fn of_block(&self, row: usize, column: usize) -> u8 {
        let tile = row / 128 * self.tiles + column / 4;
        self.blocks[512 * tile + 16 * (row % 32) + 4 * (row % 128 / 32) + column % 4]
    }
}

/// The element type of a tensor that must have one of these.
fn element(file: &Safetensors, name: &str, format: Format, of: &[ElementType]) -> Result<ElementType> {
    let names = || of.iter().map(|element| element.name()).collect::<Vec<_>>().join(" or ");
    match file.element(name) {
        Some(element) if of.contains(&element) => Ok(element),
        Some(other) => Err(invalid(file, name, format!("it is {}; {} needs {}", other.name(), format.name(), names()))),
        None => Err(invalid(file, name, format!("it is missing, and {} needs it", format.name()))),
    }
}
