//! A clip in a narrow type, with a wider one in reserve.

use std::cell::OnceCell;

use reseed_ops::Ops;

use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::vae::Half;

/// Brings one half of the VAE onto a device.
pub type Load<'a> = dyn Fn(&dyn Ops) -> Result<Box<dyn Half>> + 'a;

/// What a clip goes on with once its values leave the range of the type that it began with.
pub struct Wide<'a> {
    ops: &'a dyn Ops,
    load: Box<Load<'a>>,
    half: OnceCell<Box<dyn Half>>,
}

impl<'a> Wide<'a> {
    /// A device of a wider type, and how the network is brought onto it, should it be needed.
    pub fn new(ops: &'a dyn Ops, load: impl Fn(&dyn Ops) -> Result<Box<dyn Half>> + 'a) -> Wide<'a> {
        Wide { ops, load: Box::new(load), half: OnceCell::new() }
    }

    fn half(&self) -> Result<&dyn Half> {
        if self.half.get().is_none() {
            // Nobody else sets it: the cell is not shared between threads.
            let _ = self.half.set((self.load)(self.ops)?);
        }
        Ok(&**self.half.get().expect("just set"))
    }
}

/// A [`Stream`] whose slices run again in a wider type when their values leave the range of its own, and all slices
/// behind them. What a slice found when it began is kept until it is known to be good: the frames that layers remember
/// exist twice while it runs. Without something wider nothing is kept, and such a slice is an error.
pub struct Guarded<'a> {
    stream: Stream<'a>,
    wide: Option<&'a Wide<'a>>,
    slices: usize,
    widened: Option<usize>,
}

impl<'a> Guarded<'a> {
    /// Guards a clip that starts, where there is something wider.
    pub fn new(stream: Stream<'a>, wide: Option<&'a Wide<'a>>) -> Guarded<'a> {
        Guarded { stream, wide, slices: 0, widened: None }
    }

    /// The slice that left the range, counted from 0; from there on the clip runs in the wider type.
    pub fn widened(&self) -> Option<usize> {
        self.widened
    }

    /// As [`Stream::step`].
    pub fn step(&mut self, values: &[f32], last: bool) -> Result<Vec<f32>> {
        let slice = self.slices;
        self.slices += 1;
        let before = self.wide.map(|_| self.stream.states());
        let result = self.stream.step(values, last)?;
        if !self.stream.ops().overflowed()? {
            return Ok(result);
        }
        let dtype = self.stream.ops().dtype();
        let (wide, before) = self.wide.zip(before).ok_or(Error::OutOfRange { dtype, slice })?;
        drop(result);
        self.stream.change(wide.ops, wide.half()?, before)?;
        self.wide = None;
        self.widened = Some(slice);
        self.stream.step(values, last)
    }
}
