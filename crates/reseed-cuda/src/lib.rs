//! The CUDA device of the Reseed engine: [`CudaOps`] implements [`reseed_ops::Device`] on one NVIDIA GPU.
//!
//! The kernels are CUDA C++ in `kernels/`, compiled ahead of time and embedded: a user needs only the driver, and a
//! build needs only Rust. This crate knows no model and no video. [`reseed_ops::reference`] defines the ops;
//! conformance tests compare this device with it on a machine with a GPU.
//!
//! ```
//! use reseed_cuda::CudaOps;
//! use reseed_ops::{DType, Transfer, Shape};
//!
//! match CudaOps::new(0, DType::F16, reseed_cpu::matmul) {
//!     Ok(cuda) => {
//!         let x = cuda.upload(Shape::from([2]), &[1.0, 2.0])?;
//!         assert_eq!(cuda.download(&x)?, [1.0, 2.0]);
//!     }
//!     Err(reason) => assert!(!reason.to_string().is_empty()),
//! }
//! # Ok::<(), reseed_ops::Error>(())
//! ```
#![deny(missing_docs)]

mod copies;
mod cublaslt;
mod device_memory;
mod driver;
mod frames;
mod interop;
mod kernels;
mod launch;
mod ops;
mod pages;
mod params;
mod pinned;
mod stream;
mod tensor_map;
mod tune;
#[cfg(windows)]
mod wddm;

pub use driver::{DeviceInfo, devices, free_bytes};
pub use frames::{ArrayFrame, BufferFrame, CudaFrames, CudaLoader};
pub use interop::{ArrayLayout, ArrayType, DeviceBuffer, ForeignArray};
pub use ops::{CudaOps, ForeignFrame, FrameRegion, NanFlag, QueuedWork, Timestamp};

use std::path::Path;

/// Version and file name of the cuBLASLt that `CudaOps::tune` measures, or why there is none.
pub fn library() -> Result<String, String> {
    let (name, version) = cublaslt::version()?;
    Ok(format!("cuBLASLt {} ({name})", cublaslt::version_text(version)))
}

/// Numbers of products and machines in the record at `path`, or why it is ignored.
pub fn recorded(path: &Path) -> Result<(usize, usize), String> {
    let (record, warning) = tune::Record::read(path);
    warning.map_or(Ok(record.counts()), Err)
}

/// Identifies the embedded kernels: a digest of their sources and compiler.
pub fn kernel_stamp() -> &'static str {
    include_str!("../cubin/STAMP").trim()
}
