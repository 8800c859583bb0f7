//! What a device takes beside operands.

use crate::tensor::Tensor;
use crate::weights::{ConvSpec, LinearSpec, UpsampleSpec};

/// An op as far as the memory that a device needs beside its operands depends on it.
pub enum Work<'a> {
    /// A convolution, and how many output frames read the clip's first frame through several taps.
    Conv(&'a ConvSpec, usize),
    /// An upsampler, and how many input frames, if the clip starts there.
    Upsample(&'a UpsampleSpec, usize),
    /// A convolution's weights as its kernel reads them, where that is made of them next to their use; one place serves all
    /// layers.
    Rearranged(&'a ConvSpec),
    /// Statistics of that many groups of a tensor that has just been made.
    Stats(&'a Tensor, usize),
    /// Attention over at most `longest` tokens of heads `width` wide.
    Attention {
        /// Tokens of the longest sequence.
        longest: usize,
        /// Channels of a head.
        width: usize,
    },
    /// A linear layer.
    Linear(&'a LinearSpec),
    /// So many bytes of codes on their way in or out.
    Pixels(usize),
}

/// Bytes that a device takes for an op beside its operands.
pub type Workspace = Box<dyn Fn(&Work) -> usize + Send + Sync>;

/// Whether a device applies the norm before a convolution to what that reads.
pub(super) type OnLoad = Box<dyn Fn(&ConvSpec) -> bool + Send + Sync>;
