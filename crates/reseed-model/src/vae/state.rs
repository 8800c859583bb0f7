use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use reseed_ops::{Ops, Past, Shape, Summed, Tensor};

use crate::error::{Error, Result};
use crate::plan::Keeping;
use crate::weights::Source;
use crate::weights::safetensors::{Safetensors, header, write_values};

/// What a clip's layers remember between slices. Dropping it ends the clip.
#[derive(Default)]
pub struct State {
    pasts: BTreeMap<usize, Kept>,
    seen: Seen,
    ends: bool,
    keeping: Keeping,
    /// The inputs of the layers whose pasts were parked last: while they live, nobody waits for their copies.
    leaving: VecDeque<Tensor>,
    /// Layers that run again before those behind them do.
    again: Range<usize>,
}

/// A layer's past.
enum Kept {
    /// On the device.
    Here(Tensor),
    /// In the host's memory and, while its layer runs, on the device.
    Parked(Tensor, Option<Tensor>),
}

impl Kept {
    /// Where a layer reads it.
    fn tensor(&self) -> &Tensor {
        match self {
            Kept::Here(tensor) | Kept::Parked(_, Some(tensor)) | Kept::Parked(tensor, None) => tensor,
        }
    }

    /// The same on the device.
    fn brought(self, ops: &dyn Ops) -> Result<Tensor> {
        match self {
            Kept::Here(tensor) | Kept::Parked(_, Some(tensor)) => Ok(tensor),
            Kept::Parked(parked, None) => Ok(ops.fetch(&parked)?),
        }
    }
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

    /// The same, its memory kept as `keeping` says.
    pub fn kept(keeping: Keeping) -> State {
        State { keeping, ..State::default() }
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
        self.pasts.values().map(|kept| kept.tensor().bytes()).sum()
    }

    /// A layer's past, on the device; those of the next layers are on their way.
    pub(crate) fn past(&mut self, ops: &dyn Ops, slot: usize) -> Result<Past<'_>> {
        if self.seen != Seen::Nothing && !self.keeping.strips {
            self.bring(ops, slot)?;
            for next in self.next(slot) {
                self.bring(ops, next)?;
            }
        }
        Ok(match (self.seen, self.pasts.get(&slot)) {
            (Seen::Nothing, _) | (_, None) => Past::Start,
            (Seen::FirstFrame, Some(kept)) => Past::AfterFirst(kept.tensor()),
            (Seen::More, Some(kept)) => Past::Frames(kept.tensor()),
        })
    }

    fn bring(&mut self, ops: &dyn Ops, slot: usize) -> Result<()> {
        if let Some(Kept::Parked(parked, here @ None)) = self.pasts.get_mut(&slot) {
            *here = Some(ops.fetch(parked)?);
        }
        Ok(())
    }

    /// The parked layers that run behind `slot` and whose pasts should be on their way.
    fn next(&self, slot: usize) -> Vec<usize> {
        let (behind, before) = match self.again.contains(&slot) {
            true => (slot + 1..self.again.end, self.again.start..slot),
            false => (slot + 1..usize::MAX, 0..0),
        };
        let order = self.pasts.range(behind).chain(self.pasts.range(before));
        let parked = order.filter(|(_, kept)| matches!(kept, Kept::Parked(..)));
        parked.map(|(&slot, _)| slot).take(self.keeping.ahead).collect()
    }

    /// Replaces a layer's past by the tail of the past and `x`.
    pub(crate) fn keep(&mut self, ops: &dyn Ops, slot: usize, x: Tensor, frames: usize) -> Result<()> {
        if self.ends && !self.again.contains(&slot) {
            self.pasts.remove(&slot);
        } else if frames > 0 {
            let past = self.pasts.remove(&slot).filter(|_| self.seen != Seen::Nothing);
            let kept = match past {
                past if self.keeping.parked.contains(&slot) => Kept::Parked(self.park(ops, past, x, frames)?, None),
                past => {
                    let past = past.map(|past| past.brought(ops)).transpose()?;
                    Kept::Here(ops.tail(past, x, frames)?)
                }
            };
            self.pasts.insert(slot, kept);
        }
        Ok(())
    }

    /// Parks the tail of a past and `x`.
    fn park(&mut self, ops: &dyn Ops, past: Option<Kept>, x: Tensor, frames: usize) -> Result<Tensor> {
        let (past, x) = match past {
            Some(Kept::Here(past)) => (None, ops.tail(Some(past), x, frames)?),
            // The past's own memory takes what leaves, and that of `x`, which is larger, is free at once.
            Some(Kept::Parked(_, Some(past))) if x.thw().t > frames => (None, ops.tail(Some(past), x, frames)?),
            Some(Kept::Parked(past, _)) => (Some(past), x),
            None => (None, x),
        };
        let parked = ops.park(past.as_ref(), &x, frames)?;
        // Strips are for when there is no room to be patient.
        if !self.keeping.strips {
            self.leaving.push_back(x);
            self.leaving.drain(..self.leaving.len().saturating_sub(self.keeping.ahead));
        }
        Ok(parked)
    }

    /// Frames that run together in the levels next to the pictures, and how many of the decoder's these are.
    pub(crate) fn at_once(&self) -> (usize, usize) {
        (self.keeping.at_once, self.keeping.levels)
    }

    /// Runs `forward`, whose layers are `slots`, over `step` frames of `x` at a time.
    pub(crate) fn in_parts(
        &mut self,
        ops: &dyn Ops,
        x: Summed,
        step: usize,
        slots: &Range<usize>,
        forward: impl Fn(Summed, &mut State) -> Result<Summed>,
    ) -> Result<Summed> {
        let (frames, seen, outer) = (x.tensor.thw().t, self.seen, self.again.clone());
        let (mut start, mut end) = (0, if self.starts() { 1 } else { step.min(frames) });
        if end == frames {
            // Nothing else holds it then, and layers may work in its memory.
            return forward(x, self);
        }
        let mut all: Option<Summed> = None;
        while start < frames {
            self.again = if end < frames { slots.clone() } else { outer.clone() };
            let y = forward(x.frames(start, end - start), self)?;
            all = Some(match all {
                None => y,
                Some(before) => joined(ops, before, y)?,
            });
            self.see(end - start);
            (start, end) = (end, frames.min(end + step));
        }
        (self.seen, self.again) = (seen, outer);
        Ok(all.expect("a slice has frames"))
    }

    /// Marks the end of a slice of `frames` latent frames.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.leaving.clear();
        self.see(frames);
    }

    fn see(&mut self, frames: usize) {
        self.seen = match (self.seen, frames) {
            (Seen::Nothing, 1) => Seen::FirstFrame,
            _ => Seen::More,
        };
    }

    /// Writes the state as a safetensors file.
    pub fn save(&self, ops: &dyn Ops, to: &mut impl Write, path: &Path) -> Result<()> {
        let io = |source| Error::Io { path: path.into(), source };
        let names: Vec<String> = self.pasts.keys().map(|slot| format!("past.{slot}")).collect();
        let shapes: Vec<(&str, Shape)> =
            names.iter().map(String::as_str).zip(self.pasts.values().map(|kept| kept.tensor().shape())).collect();
        let metadata = BTreeMap::from([
            ("seen".to_string(), format!("{:?}", self.seen)),
            ("dtype".to_string(), ops.dtype().to_string()),
        ]);
        to.write_all(&header(&shapes, &metadata)).map_err(io)?;
        for kept in self.pasts.values() {
            let frames = match kept {
                Kept::Here(frames) | Kept::Parked(_, Some(frames)) => frames.clone(),
                Kept::Parked(parked, None) => ops.fetch(parked)?,
            };
            write_values(to, &ops.download(&frames)?).map_err(io)?;
        }
        Ok(())
    }

    /// Reads a state that [`State::save`] wrote on a device of the same type.
    pub fn restore(ops: &dyn Ops, path: &Path, keeping: Keeping) -> Result<State> {
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
            let frames = ops.upload(*shape, &file.read(name)?)?;
            let kept = match keeping.parked.contains(&slot) {
                true => Kept::Parked(ops.park(None, &frames, frames.thw().t)?, None),
                false => Kept::Here(frames),
            };
            pasts.insert(slot, kept);
        }
        Ok(State { pasts, seen, ..State::kept(keeping) })
    }
}

/// One clip behind the other, with their statistics.
fn joined(ops: &dyn Ops, a: Summed, b: Summed) -> Result<Summed> {
    let join = |a: Tensor, b: Tensor| {
        let frames = a.thw().t + b.thw().t;
        ops.tail(Some(a), b, frames)
    };
    let flat = |stats: Tensor| {
        let [t, groups, two] = *stats.shape().dims() else { panic!("statistics {stats:?}") };
        stats.reshape([t, 1, groups, two])
    };
    let stats = match (a.stats, b.stats) {
        (Some(a), Some(b)) => {
            let all = join(flat(a), flat(b))?;
            let (frames, groups) = (all.thw().t, all.thw().w);
            Some(all.reshape([frames, groups, 2]))
        }
        _ => None,
    };
    Ok(Summed { tensor: join(a.tensor, b.tensor)?, stats })
}
