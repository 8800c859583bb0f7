//! The device contract: four small traits, and the macro that forwards them.

use crate::math_mode::MathMode;
use crate::ops::Ops;
use crate::precision::Precision;
use crate::residency::Residency;
use crate::shape::DType;
use crate::timing::Timing;
use crate::transfer::Transfer;

/// A device: it computes ([`Ops`]), moves memory ([`Residency`]), copies from and to the caller ([`Transfer`]) and
/// measures ([`Timing`]). Networks are written against `&dyn Device`.
///
/// No method of the five traits has a default body. A device that wraps another forwards with [`crate::forward!`], and
/// a method that is neither forwarded nor written does not compile.
pub trait Device: Ops + Residency + Transfer + Timing {
    /// Name for reports, such as `cpu avx512, 8 threads`.
    fn name(&self) -> String;

    /// Type of the activations.
    fn dtype(&self) -> DType;

    /// Type of the activations and of the operands of products.
    fn precision(&self) -> Precision;

    /// The savings that its products may use.
    fn math_mode(&self) -> MathMode;
}

/// Forwards the methods of one device trait to a field, except those that the `impl` block writes itself.
///
/// ```
/// use reseed_ops::{Device, DType, Ops, Precision, Residency, Result, Tensor, Timing, Transfer, forward};
///
/// /// Another device without GELU.
/// struct Linearized<'a> {
///     inner: &'a dyn Device,
/// }
///
/// impl Ops for Linearized<'_> {
///     forward!(Ops to inner, except gelu);
///
///     fn gelu(&self, x: Tensor) -> Result<Tensor> {
///         Ok(x)
///     }
/// }
///
/// impl Device for Linearized<'_> {
///     forward!(Device to inner);
/// }
/// impl Residency for Linearized<'_> {
///     forward!(Residency to inner);
/// }
/// impl Transfer for Linearized<'_> {
///     forward!(Transfer to inner);
/// }
/// impl Timing for Linearized<'_> {
///     forward!(Timing to inner);
/// }
/// ```
///
/// A method that is listed but not written is missing from the trait, and a method that is written but not listed is
/// defined twice:
///
/// ```compile_fail,E0046
/// # use reseed_ops::{CopyTime, Device, DeviceTimer, Result, Timing, forward};
/// # struct Quiet<'a> { inner: &'a dyn Device }
/// impl Timing for Quiet<'_> {
///     forward!(Timing to inner, except stage);
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($trait:ident to $inner:tt) => {
        $crate::forward_methods!($trait to $inner except []);
    };
    ($trait:ident to $inner:tt, except $($own:ident)+) => {
        $crate::forward_methods!($trait to $inner except [$($own)+]);
    };
}

/// The methods of every trait, with their signatures.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_methods {
    (Device to $inner:tt except $own:tt) => {
        $crate::forward_method!($inner $own name() -> String);
        $crate::forward_method!($inner $own dtype() -> $crate::DType);
        $crate::forward_method!($inner $own precision() -> $crate::Precision);
        $crate::forward_method!($inner $own math_mode() -> $crate::MathMode);
    };
    (Residency to $inner:tt except $own:tt) => {
        $crate::forward_method!($inner $own offload(payload: $crate::Payload) -> $crate::Result<$crate::Payload>);
        $crate::forward_method!($inner $own prefetch(payload: $crate::Payload) -> $crate::Result<$crate::Payload>);
        $crate::forward_method!($inner $own reserve(bytes: usize) -> $crate::Result<()>);
    };
    (Transfer to $inner:tt except $own:tt) => {
        $crate::forward_method!($inner $own
            upload(shape: $crate::Shape, values: &[f32]) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own download(x: &$crate::Tensor) -> $crate::Result<Vec<f32>>);
        $crate::forward_method!($inner $own
            start_download(x: &$crate::Tensor) -> $crate::Result<Box<dyn $crate::PendingDownload>>);
        $crate::forward_method!($inner $own
            upload_pixels(shape: $crate::Shape, pixels: &$crate::Pixels) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own
            start_download_pixels(x: &$crate::Tensor, depth: $crate::Depth)
                -> $crate::Result<Box<dyn $crate::PendingDownload<$crate::Pixels>>>);
    };
    (Timing to $inner:tt except $own:tt) => {
        $crate::forward_method!($inner $own stage(name: &str) -> ());
        $crate::forward_method!($inner $own timer() -> $crate::Result<Box<dyn $crate::DeviceTimer>>);
        $crate::forward_method!($inner $own finish() -> $crate::Result<()>);
        $crate::forward_method!($inner $own copy_time() -> $crate::Result<$crate::CopyTime>);
    };
    (Ops to $inner:tt except $own:tt) => {
        $crate::forward_method!($inner $own conv_weights(
            spec: $crate::ConvSpec, read: $crate::Read<$crate::ConvData>) -> $crate::Result<$crate::Conv>);
        $crate::forward_method!($inner $own linear_weights(
            spec: $crate::LinearSpec, read: $crate::Read<$crate::LinearData>) -> $crate::Result<$crate::Linear>);
        $crate::forward_method!($inner $own norm_weights(
            groups: usize, eps: f32, channels: usize, read: $crate::Read<$crate::ConvData>)
            -> $crate::Result<$crate::Norm>);
        $crate::forward_method!($inner $own norm_conv_weights(
            groups: usize, eps: f32, spec: $crate::ConvSpec, norm: $crate::Read<$crate::ConvData>,
            conv: $crate::Read<$crate::ConvData>) -> $crate::Result<($crate::Norm, $crate::Conv)>);
        $crate::forward_method!($inner $own upsample_weights(
            spec: $crate::UpsampleSpec, read: $crate::Read<$crate::UpsampleData>) -> $crate::Result<$crate::Upsample>);
        $crate::forward_method!($inner $own upsample_executed(spec: &$crate::UpsampleSpec) -> f32);
        $crate::forward_method!($inner $own
            vector(len: usize, read: $crate::Read<Vec<f32>>) -> $crate::Result<$crate::Vector>);
        $crate::forward_method!($inner $own rows(per: usize, rows: &[u32]) -> $crate::Result<$crate::Rows>);
        $crate::forward_method!($inner $own rotary(data: &$crate::RotaryData) -> $crate::Result<$crate::Rotary>);
        $crate::forward_method!($inner $own conv(
            cache: $crate::TemporalCache, x: &$crate::Tensor, conv: &$crate::Conv, epilogue: $crate::Epilogue)
            -> $crate::Result<$crate::ConvOutput>);
        $crate::forward_method!($inner $own upsample(
            cache: $crate::TemporalCache, x: &$crate::Tensor, upsample: &$crate::Upsample, groups: Option<usize>)
            -> $crate::Result<$crate::ConvOutput>);
        $crate::forward_method!($inner $own tail(
            cache: Option<$crate::Tensor>, x: $crate::Tensor, frames: usize) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own group_norm(
            x: $crate::Tensor, stats: Option<$crate::Stats>, norm: &$crate::Norm, act: $crate::Activation)
            -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own linear(
            x: &$crate::Tensor, linear: &$crate::Linear, residual: Option<$crate::Tensor>)
            -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own activated_linear(
            x: $crate::Tensor, act: $crate::MlpActivation, linear: &$crate::Linear) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own attention(
            qkv: &$crate::Tensor, heads: usize, lengths: &[usize]) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own rms_norm_modulate(
            x: &$crate::Tensor, norm: &$crate::Norm) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own gated_add(
            x: $crate::Tensor, h: &$crate::Tensor, gate: &$crate::Vector) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own swiglu(x: &$crate::Tensor) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own gelu(x: $crate::Tensor) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own qk_norm_rope(
            streams: [$crate::Qkv; 2], rows: &$crate::Rows, rotary: &$crate::Rotary, eps: f32)
            -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own gather_rows(
            x: &$crate::Tensor, rows: &$crate::Rows) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own axpby(
            a: f32, x: &$crate::Tensor, b: f32, y: $crate::Tensor) -> $crate::Result<$crate::Tensor>);
        $crate::forward_method!($inner $own blend_add(
            canvas: $crate::Tensor, tile: &$crate::Tensor, at: &$crate::Placement) -> $crate::Result<$crate::Tensor>);
    };
}

/// One forwarding method, or nothing where the list names it.
///
/// A macro cannot compare two names. Each method has an arm that matches its own name at the head of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_method {
    ($i:tt [name $($o:ident)*] name $($m:tt)*) => {};
    ($i:tt [dtype $($o:ident)*] dtype $($m:tt)*) => {};
    ($i:tt [precision $($o:ident)*] precision $($m:tt)*) => {};
    ($i:tt [offload $($o:ident)*] offload $($m:tt)*) => {};
    ($i:tt [prefetch $($o:ident)*] prefetch $($m:tt)*) => {};
    ($i:tt [reserve $($o:ident)*] reserve $($m:tt)*) => {};
    ($i:tt [upload $($o:ident)*] upload $($m:tt)*) => {};
    ($i:tt [download $($o:ident)*] download $($m:tt)*) => {};
    ($i:tt [start_download $($o:ident)*] start_download $($m:tt)*) => {};
    ($i:tt [upload_pixels $($o:ident)*] upload_pixels $($m:tt)*) => {};
    ($i:tt [start_download_pixels $($o:ident)*] start_download_pixels $($m:tt)*) => {};
    ($i:tt [stage $($o:ident)*] stage $($m:tt)*) => {};
    ($i:tt [timer $($o:ident)*] timer $($m:tt)*) => {};
    ($i:tt [finish $($o:ident)*] finish $($m:tt)*) => {};
    ($i:tt [copy_time $($o:ident)*] copy_time $($m:tt)*) => {};
    ($i:tt [conv_weights $($o:ident)*] conv_weights $($m:tt)*) => {};
    ($i:tt [linear_weights $($o:ident)*] linear_weights $($m:tt)*) => {};
    ($i:tt [norm_weights $($o:ident)*] norm_weights $($m:tt)*) => {};
    ($i:tt [norm_conv_weights $($o:ident)*] norm_conv_weights $($m:tt)*) => {};
    ($i:tt [upsample_weights $($o:ident)*] upsample_weights $($m:tt)*) => {};
    ($i:tt [upsample_executed $($o:ident)*] upsample_executed $($m:tt)*) => {};
    ($i:tt [vector $($o:ident)*] vector $($m:tt)*) => {};
    ($i:tt [rows $($o:ident)*] rows $($m:tt)*) => {};
    ($i:tt [rotary $($o:ident)*] rotary $($m:tt)*) => {};
    ($i:tt [conv $($o:ident)*] conv $($m:tt)*) => {};
    ($i:tt [upsample $($o:ident)*] upsample $($m:tt)*) => {};
    ($i:tt [tail $($o:ident)*] tail $($m:tt)*) => {};
    ($i:tt [group_norm $($o:ident)*] group_norm $($m:tt)*) => {};
    ($i:tt [linear $($o:ident)*] linear $($m:tt)*) => {};
    ($i:tt [activated_linear $($o:ident)*] activated_linear $($m:tt)*) => {};
    ($i:tt [attention $($o:ident)*] attention $($m:tt)*) => {};
    ($i:tt [rms_norm_modulate $($o:ident)*] rms_norm_modulate $($m:tt)*) => {};
    ($i:tt [gated_add $($o:ident)*] gated_add $($m:tt)*) => {};
    ($i:tt [swiglu $($o:ident)*] swiglu $($m:tt)*) => {};
    ($i:tt [gelu $($o:ident)*] gelu $($m:tt)*) => {};
    ($i:tt [qk_norm_rope $($o:ident)*] qk_norm_rope $($m:tt)*) => {};
    ($i:tt [gather_rows $($o:ident)*] gather_rows $($m:tt)*) => {};
    ($i:tt [axpby $($o:ident)*] axpby $($m:tt)*) => {};
    ($i:tt [blend_add $($o:ident)*] blend_add $($m:tt)*) => {};
    // The head of the list is another method: look at the rest.
    ($i:tt [$other:ident $($o:ident)*] $($m:tt)*) => {
        $crate::forward_method!($i [$($o)*] $($m)*);
    };
    ($i:tt [] $name:ident($($arg:ident: $type:ty),*) -> $result:ty) => {
        fn $name(&self, $($arg: $type),*) -> $result {
            self.$i.$name($($arg),*)
        }
    };
}
