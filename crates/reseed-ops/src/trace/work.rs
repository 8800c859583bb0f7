//! The workspace of ops.

use crate::tensor::Tensor;
use crate::weights::{ConvSpec, LinearSpec, UpsampleSpec};

/// An op, as far as its workspace depends on it.
pub enum Work<'a> {
    /// A convolution, and the number of output frames that read the clip's first frame through several taps.
    Conv(&'a ConvSpec, usize),
    /// An upsampler, and the number of its input frames if the clip starts with them, else zero.
    Upsample(&'a UpsampleSpec, usize),
    /// The weights of a convolution in a second layout that is computed before each use; all layers share one buffer.
    Repacked(&'a ConvSpec),
    /// Statistics of that many groups of a result.
    Stats(&'a Tensor, usize),
    /// Attention over at most `longest` tokens with heads of `width` channels.
    Attention {
        /// Tokens of the longest sequence.
        longest: usize,
        /// Channels of a head.
        width: usize,
    },
    /// A linear layer over that many rows.
    Linear(&'a LinearSpec, usize),
    /// An upload or download of that many bytes of pixels.
    Pixels(usize),
}

/// Bytes of workspace that a device allocates for an op.
pub type Workspace = Box<dyn Fn(&Work) -> usize + Send + Sync>;

/// Whether a device multiplies in 8 bits in a linear layer.
pub(super) type Int8Products = Box<dyn Fn(&LinearSpec) -> bool + Send + Sync>;
