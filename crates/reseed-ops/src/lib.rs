//! Tensors, the device contract of the Reseed engine ([`Device`]), and the definition of every op
//! ([`reference`](mod@reference)).
//!
//! Networks are written against [`Device`]. Three devices of this crate compute nothing themselves: [`TraceOps`] counts
//! memory and arithmetic, [`CheckOps`] runs two devices and reports every op whose results disagree, [`ProfileOps`]
//! times another device. [`conformance`] tests a device. This crate knows no model, no video and no concrete device.
//!
//! ```
//! use reseed_cpu::CpuOps;
//! use reseed_ops::{Activation, ConvData, DType, Ops, Shape, Transfer};
//!
//! let cpu = CpuOps::new(DType::F32, Some(1))?;
//! let norm = cpu.norm_weights(2, 1e-6, 4, &|| Ok(ConvData { weight: vec![1.0; 4], bias: vec![0.0; 4] }))?;
//! let x = cpu.upload(Shape::from([1, 1, 2, 4]), &[1.0, 3.0, 5.0, 5.0, 3.0, 1.0, 5.0, 5.0])?;
//! let y = cpu.group_norm(x, None, &norm, Activation::None)?;
//! let y = cpu.download(&y)?;
//! assert!((y[0] + 1.0).abs() < 1e-5 && (y[1] - 1.0).abs() < 1e-5 && y[2] == 0.0);
//! # Ok::<(), reseed_ops::Error>(())
//! ```
#![deny(missing_docs)]

mod arena;
mod ceiling;
mod check;
pub mod conformance;
pub mod cost;
mod device;
mod error;
mod frames;
mod host;
pub mod int8;
pub mod int8_conv;
mod math_mode;
pub mod merge;
mod operands;
mod ops;
mod packing;
mod pages;
mod pixels;
mod precision;
mod profile;
pub mod quant;
pub mod reference;
mod residency;
mod shape;
mod tensor;
mod timing;
mod trace;
mod transfer;
mod weights;

pub use arena::Arena;
pub use ceiling::Ceiling;
pub use check::{CheckOps, Disagreement, Element, Report, allowed, relative_error};
pub use cost::Cost;
pub use device::Device;
pub use error::{Error, Result};
pub use frames::{
    ColorTransfer, DeviceFrame, DeviceResult, DeviceSamples, FrameLoader, FrameOps, FrameResult, FrameResults,
    FrameSamples, FrameSlice, FrameSpec, FrameValues, LowBand, PendingFrames, RangeLimit, Resize, ResizeAxis,
    SampleType,
};
pub use host::{host_bytes, host_free_bytes};
pub use int8::Int8Rows;
pub use int8_conv::Int8Conv;
pub use math_mode::MathMode;
pub use merge::{HostMatmul, merge};
pub use operands::{Activation, ConvOutput, Epilogue, MlpActivation, Placement, Qkv, Stats, TemporalCache};
pub use ops::Ops;
pub use packing::{Rotary, RotaryData, Rows};
pub use pages::pages;
pub use pixels::{Code, Depth, Pixels};
pub use precision::Precision;
pub use profile::{ProfileOps, Record};
pub use quant::{Numbers, Quant};
pub use residency::{Movable, Payload, Residency, offload, prefetch};
pub use shape::{DType, Hw, Shape, Thw};
pub use tensor::{Storage, Tensor};
pub use timing::{CopyTime, DeviceTimer, HostTimer, Timing};
pub use trace::{Kernels, SpeedModel, TraceOps, TraceReport, Work, Workspace, strip_rows};
pub use transfer::{PendingDownload, Transfer};
pub use weights::{
    BORDER_CLASSES, ClipPosition, Conv, ConvData, ConvSpec, Linear, LinearData, LinearSpec, Merged, Norm, Packed, Read,
    Upsample, UpsampleData, UpsampleSpec, Vector, border_class,
};
