//! The CUDA device of the Reseed engine: [`CudaOps`] implements [`reseed_ops::Device`] on one NVIDIA card.
//!
//! The kernels are CUDA C++ in `kernels/`, compiled ahead of time and embedded, so that a user needs only the driver
//! and a build needs only Rust. This crate knows no model and no video; what the ops mean is defined by
//! [`reseed_ops::reference`], and conformance to that is tested on a machine with a card.
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
mod driver;
mod event;
mod kernels;
mod launch;
mod ops;
mod pages;
mod params;
mod pinned;
mod store;
mod tensor_map;
mod tune;

pub use driver::{DeviceInfo, devices};
pub use ops::{CudaOps, Timestamp};

use std::path::Path;

/// The library that `CudaOps::tune` measures against: its version and file, or why there is none.
pub fn library() -> Result<String, String> {
    let (name, version) = cublaslt::version()?;
    Ok(format!("cuBLASLt {} ({name})", cublaslt::written(version)))
}

/// Products and machines that the record at `path` knows, or why it is ignored.
pub fn recorded(path: &Path) -> Result<(usize, usize), String> {
    let (record, trouble) = tune::Record::read(path);
    trouble.map_or(Ok(record.counts()), Err)
}
