use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use reseed_ops::{Ops, Past, Shape, Tensor};

use crate::error::{Error, Result};
use crate::weights::Source;
use crate::weights::safetensors::{Safetensors, header, write_values};

/// What a clip's layers remember between slices. Dropping it ends the clip.
#[derive(Clone, Default)]
pub struct State {
    pasts: BTreeMap<usize, Tensor>,
    seen: Seen,
    ends: bool,
}

/// How much of the clip has gone by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Seen {
    #[default]
    Nothing,
    FirstFrame,
    More,
}

impl State {
    /// A clip that starts with the next slice.
    pub fn new() -> State {
        State::default()
    }

    /// Whether the next slice is the clip's first.
    pub fn starts(&self) -> bool {
        self.seen == Seen::Nothing
    }

    /// Says that the next slice is the clip's last: nothing will be kept behind it. A picture costs half the memory so.
    pub fn end_with_next(&mut self) {
        self.ends = true;
    }

    /// Bytes of the remembered frames.
    pub fn bytes(&self) -> usize {
        self.pasts.values().map(Tensor::bytes).sum()
    }

    pub(crate) fn past(&self, slot: usize) -> Past<'_> {
        match (self.seen, self.pasts.get(&slot)) {
            (Seen::Nothing, _) | (_, None) => Past::Start,
            (Seen::FirstFrame, Some(frames)) => Past::AfterFirst(frames),
            (Seen::More, Some(frames)) => Past::Frames(frames),
        }
    }

    /// Replaces a layer's past by the tail of the past and `x`.
    pub(crate) fn keep(&mut self, ops: &dyn Ops, slot: usize, x: Tensor, frames: usize) -> Result<()> {
        if self.ends {
            self.pasts.remove(&slot);
        } else if frames > 0 {
            let tail = ops.tail(self.past(slot), x, frames)?;
            self.pasts.insert(slot, tail);
        }
        Ok(())
    }

    /// Marks the end of a slice of `frames` latent frames.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.seen = match (self.seen, frames) {
            (Seen::Nothing, 1) => Seen::FirstFrame,
            _ => Seen::More,
        };
    }

    /// The same memory on another device; what it took on the old one is given back on the way.
    pub(crate) fn moved(self, from: &dyn Ops, to: &dyn Ops) -> Result<State> {
        let moved = |(slot, x): (usize, Tensor)| Ok((slot, to.upload(x.shape(), &from.download(&x)?)?));
        Ok(State { pasts: self.pasts.into_iter().map(moved).collect::<Result<_>>()?, ..self })
    }

    /// Writes the state as a safetensors file.
    pub fn save(&self, ops: &dyn Ops, to: &mut impl Write, path: &Path) -> Result<()> {
        let io = |source| Error::Io { path: path.into(), source };
        let names: Vec<String> = self.pasts.keys().map(|slot| format!("past.{slot}")).collect();
        let shapes: Vec<(&str, Shape)> =
            names.iter().map(String::as_str).zip(self.pasts.values().map(Tensor::shape)).collect();
        let metadata = BTreeMap::from([
            ("seen".to_string(), format!("{:?}", self.seen)),
            ("dtype".to_string(), ops.dtype().to_string()),
        ]);
        to.write_all(&header(&shapes, &metadata)).map_err(io)?;
        for frames in self.pasts.values() {
            write_values(to, &ops.download(frames)?).map_err(io)?;
        }
        Ok(())
    }

    /// Reads a state that [`State::save`] wrote on a device of the same type.
    pub fn restore(ops: &dyn Ops, path: &Path) -> Result<State> {
        let file = Safetensors::open(path)?;
        let stranger = || Error::State(format!("{} is not a clip's state", path.display()));
        let seen = match file.metadata("seen") {
            Some("Nothing") => Seen::Nothing,
            Some("FirstFrame") => Seen::FirstFrame,
            Some("More") => Seen::More,
            _ => return Err(stranger()),
        };
        let dtype = file.metadata("dtype").ok_or_else(stranger)?;
        if dtype != ops.dtype().to_string() {
            return Err(Error::State(format!("{} is {dtype}, this run is {}", path.display(), ops.dtype())));
        }
        let mut pasts = BTreeMap::new();
        for (name, shape) in file.shapes() {
            let slot = name.strip_prefix("past.").and_then(|slot| slot.parse().ok()).ok_or_else(stranger)?;
            pasts.insert(slot, ops.upload(*shape, &file.read(name)?)?);
        }
        Ok(State { pasts, seen, ends: false })
    }
}
