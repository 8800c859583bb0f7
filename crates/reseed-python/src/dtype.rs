//! The element types of arrays.

use reseed::ArrayType;
use reseed::media::Depth;

use crate::dlpack::ElementType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    U8,
    U16,
    F16,
    F32,
}

/// The types that frames may have.
pub const KNOWN: &str = "uint8, uint16, float16 or float32";

impl Dtype {
    const ALL: [Dtype; 4] = [Dtype::U8, Dtype::U16, Dtype::F16, Dtype::F32];

    pub fn name(self) -> &'static str {
        match self {
            Dtype::U8 => "uint8",
            Dtype::U16 => "uint16",
            Dtype::F16 => "float16",
            Dtype::F32 => "float32",
        }
    }

    pub fn named(name: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// As numpy's array interface writes it.
    pub fn typestr(self) -> &'static str {
        match self {
            Dtype::U8 => "|u1",
            Dtype::U16 => "<u2",
            Dtype::F16 => "<f2",
            Dtype::F32 => "<f4",
        }
    }

    pub fn of_typestr(text: &str) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.typestr() == text || (*dtype == Dtype::U8 && text == "<u1"))
    }

    pub fn dlpack(self) -> ElementType {
        let (code, bits) = match self {
            Dtype::U8 => (1, 8),
            Dtype::U16 => (1, 16),
            Dtype::F16 => (2, 16),
            Dtype::F32 => (2, 32),
        };
        ElementType { code, bits, lanes: 1 }
    }

    pub fn of_dlpack(found: ElementType) -> Option<Dtype> {
        let same = |dtype: &Dtype| {
            let ElementType { code, bits, lanes } = dtype.dlpack();
            (code, bits, lanes) == (found.code, found.bits, found.lanes)
        };
        Dtype::ALL.into_iter().find(same)
    }

    /// The name of any type of DLPack, for errors.
    pub fn describe(ElementType { code, bits, .. }: ElementType) -> String {
        match code {
            0 => format!("int{bits}"),
            1 => format!("uint{bits}"),
            2 => format!("float{bits}"),
            4 => format!("bfloat{bits}"),
            5 => format!("complex{bits}"),
            6 => "bool".into(),
            _ => format!("a type of {bits} bits"),
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::U16 | Dtype::F16 => 2,
            Dtype::F32 => 4,
        }
    }

    /// As the engine names it in GPU memory.
    pub fn array_type(self) -> ArrayType {
        match self {
            Dtype::U8 => ArrayType::U8,
            Dtype::U16 => ArrayType::U16,
            Dtype::F16 => ArrayType::F16,
            Dtype::F32 => ArrayType::F32,
        }
    }

    /// The samples that hold its values.
    pub fn depth(self) -> Depth {
        match self {
            Dtype::U8 => Depth::Eight,
            Dtype::U16 => Depth::Sixteen,
            Dtype::F16 | Dtype::F32 => Depth::Float,
        }
    }

    /// The type of a file's frames.
    pub fn of_depth(depth: Depth) -> Dtype {
        match depth {
            Depth::Eight => Dtype::U8,
            Depth::Sixteen => Dtype::U16,
            Depth::Float => Dtype::F32,
        }
    }
}
