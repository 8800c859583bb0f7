//! Tensor maps: descriptions of tensors for Hopper's tensor memory accelerator, which copies boxes of them.

use std::mem::MaybeUninit;

use cudarc::driver::sys;
use reseed_ops::{DType, Result};

use crate::driver::{Driver, Ptr};

/// Type of the values of a tensor map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    F16,
    Bf16,
    Bytes,
}

impl MapType {
    /// Bytes of a value.
    pub fn bytes(self) -> usize {
        if self == MapType::Bytes { 1 } else { 2 }
    }
}

impl From<DType> for MapType {
    fn from(dtype: DType) -> MapType {
        match dtype {
            DType::F16 => MapType::F16,
            DType::Bf16 => MapType::Bf16,
            DType::F32 => panic!("tensor maps are for 16-bit types and bytes"),
        }
    }
}

/// A tensor and the boxes that are copied from or to it. Dimensions are innermost first; reads outside give zeros.
#[derive(Clone, Copy, Debug)]
pub struct Boxes<const N: usize> {
    pub at: Ptr,
    pub dtype: MapType,
    pub dims: [usize; N],
    /// Values between neighbours along each dimension; the first is 1.
    pub strides: [usize; N],
    /// Size of a box.
    pub size: [u32; N],
    /// Step between copied columns, and between copied rows.
    pub step: [u32; 2],
}

impl<const N: usize> Boxes<N> {
    /// A tensor whose rows are `pitch` values apart and which is dense otherwise.
    pub fn new(at: Ptr, dtype: impl Into<MapType>, pitch: usize, dims: [usize; N], size: [u32; N]) -> Boxes<N> {
        let mut strides = [1; N];
        strides[1] = pitch;
        for i in 2..N {
            strides[i] = strides[i - 1] * dims[i - 1];
        }
        Boxes { at, dtype: dtype.into(), dims, strides, size, step: [1; 2] }
    }
}

impl Driver {
    /// Encodes a tensor map.
    pub fn tensor_map<const N: usize>(&self, boxes: &Boxes<N>) -> Result<sys::CUtensorMap> {
        let Boxes { at, dtype, dims, strides, size, step } = *boxes;
        use sys::CUtensorMapDataType_enum as Type;
        let kind = match dtype {
            MapType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            MapType::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            MapType::Bytes => Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        };
        assert!(dims.iter().all(|&n| n > 0), "a map of {dims:?}");
        // A row of a box is one span of the swizzle pattern.
        use sys::CUtensorMapSwizzle_enum as Swizzle;
        let swizzle = match size[0] as usize * dtype.bytes() {
            128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            span => panic!("a box of {size:?} has rows of {span} bytes"),
        };
        let bytes = strides.map(|stride| (stride * dtype.bytes()) as u64);
        assert!(at.0.is_multiple_of(16) && bytes[1..].iter().all(|b| b.is_multiple_of(16)), "a map of {boxes:?}");
        let dims_64 = dims.map(|n| n as u64);
        let mut steps = [1u32; N];
        steps.iter_mut().skip(1).zip(step).for_each(|(to, step)| *to = step);
        let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
        self.enter()?;
        // SAFETY: the arrays hold N numbers each, the strides one less. A call that succeeds initialises the whole map.
        unsafe {
            let status = sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                kind,
                N as u32,
                at.0 as *mut _,
                dims_64.as_ptr(),
                bytes[1..].as_ptr(),
                size.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle,
                sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            );
            self.check(&format!("cuTensorMapEncodeTiled {dims:?} by {size:?}"), status)?;
            Ok(map.assume_init())
        }
    }
}
