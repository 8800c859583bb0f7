//! Descriptions of tensors for the unit that copies boxes of them into shared memory.

use std::mem::MaybeUninit;

use cudarc::driver::sys;
use reseed_ops::{DType, Result};

use crate::driver::{Driver, Ptr};

/// Bytes of a row of a box: one span of the swizzle.
const SPAN: usize = 128;

impl Driver {
    /// A tensor, dimensions innermost first, of which a box of `size` is copied at a time, every `step`th of a row or
    /// column of it; zeros outside. Rows of the innermost dimension are `pitch` values apart, the others dense.
    pub fn tensor_map<const N: usize>(
        &self,
        at: Ptr,
        dtype: DType,
        pitch: usize,
        dims: [usize; N],
        size: [u32; N],
        step: u32,
    ) -> Result<sys::CUtensorMap> {
        use sys::CUtensorMapDataType_enum as Type;
        let kind = match dtype {
            DType::F16 => Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            DType::Bf16 => Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            DType::F32 => panic!("boxes are of half precision"),
        };
        assert!(dims.iter().all(|&n| n > 0), "a map of {dims:?}");
        assert_eq!(size[0] as usize * dtype.bytes(), SPAN, "a box of {size:?}");
        assert!(at.0.is_multiple_of(16) && (pitch * dtype.bytes()).is_multiple_of(16), "a map of {dims:?} at {at:?}");
        let dims_64 = dims.map(|n| n as u64);
        let mut strides = [0u64; N];
        let mut bytes = (pitch * dtype.bytes()) as u64;
        for (stride, n) in strides.iter_mut().zip(&dims_64[1..]) {
            *stride = bytes;
            bytes *= n;
        }
        let mut steps = [1u32; N];
        steps[1..3.min(N)].fill(step);
        let mut map = MaybeUninit::<sys::CUtensorMap>::uninit();
        self.enter()?;
        // SAFETY: the arrays hold N numbers each, of which the strides' last is not read; the map is written whole
        // before it is used, and only when the call succeeds.
        unsafe {
            let answer = sys::cuTensorMapEncodeTiled(
                map.as_mut_ptr(),
                kind,
                N as u32,
                at.0 as *mut _,
                dims_64.as_ptr(),
                strides.as_ptr(),
                size.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
                sys::CUtensorMapSwizzle_enum::CU_TENSOR_MAP_SWIZZLE_128B,
                sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            );
            self.check(&format!("cuTensorMapEncodeTiled {dims:?} by {size:?}"), answer)?;
            Ok(map.assume_init())
        }
    }
}
