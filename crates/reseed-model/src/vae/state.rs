use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use reseed_ops::{Ops, Past, Shape, Tensor};

use crate::error::{Error, Result};
use crate::plan::Keeping;
use crate::weights::Source;
use crate::weights::safetensors::{Safetensors, header, write_values};

/// What a clip's layers remember between slices. Dropping it ends the clip.
#[derive(Default)]
pub struct State {
    pasts: BTreeMap<usize, Kept>,
    pub(super) seen: Seen,
    ends: bool,
    pub(super) keeping: Keeping,
    /// The input of the layer whose past was parked last, if it has a lead: while it lives, nobody waits for its copy.
    leaving: Option<Tensor>,
    /// Layers that run again before those behind them do.
    pub(super) again: Range<usize>,
}

/// A layer's past.
enum Kept {
    /// On the device.
    Here(Tensor),
    /// In the host's memory.
    Parked(Parked),
}

/// A past in the host's memory.
struct Parked {
    frames: Tensor,
    /// The same on the device, from when it was fetched until its layer has run.
    here: Option<Tensor>,
    /// What takes its place, on its way to the host while its layer runs.
    after: Option<Tensor>,
}

impl Parked {
    fn new(frames: Tensor) -> Parked {
        Parked { frames, here: None, after: None }
    }
}

impl Kept {
    /// Where a layer reads it.
    fn tensor(&self) -> &Tensor {
        match self {
            Kept::Here(tensor) => tensor,
            Kept::Parked(parked) => parked.here.as_ref().unwrap_or(&parked.frames),
        }
    }

    /// The same on the device.
    fn brought(&self, ops: &dyn Ops) -> Result<Tensor> {
        match self {
            Kept::Parked(Parked { frames, here: None, .. }) => Ok(ops.fetch(frames)?),
            kept => Ok(kept.tensor().clone()),
        }
    }
}

/// How much of the clip has gone by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Seen {
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

    /// Whether the next slice is all that a layer ever sees.
    pub(crate) fn is_alone(&self, slot: usize) -> bool {
        self.starts() && self.forgets(slot)
    }

    /// Bytes of the remembered frames.
    pub fn bytes(&self) -> usize {
        self.pasts.values().map(|kept| kept.tensor().bytes()).sum()
    }

    /// A layer's past, before the layer runs over `x` and keeps so many `frames`. The past of the next layer is on its way, and
    /// perhaps the one behind that.
    pub(crate) fn past(&mut self, ops: &dyn Ops, slot: usize, x: &Tensor, frames: usize) -> Result<Past<'_>> {
        if self.seen != Seen::Nothing {
            self.move_on(ops, slot, x, frames)?;
            self.coming(slot, x).into_iter().flatten().try_for_each(|slot| self.bring(ops, slot))?;
        }
        Ok(match (self.seen, self.pasts.get(&slot)) {
            (Seen::Nothing, _) | (_, None) => Past::Start,
            (Seen::FirstFrame, Some(kept)) => Past::AfterFirst(kept.tensor()),
            (Seen::More, Some(kept)) => Past::Frames(kept.tensor()),
        })
    }

    /// Layers whose pasts come now, in this order.
    fn coming(&self, slot: usize, x: &Tensor) -> [Option<usize>; 3] {
        let Keeping { strips, .. } = self.keeping;
        let led = |slot: Option<usize>, by: usize| slot.filter(|&slot| self.keeping.lead(slot) >= by);
        let own = if strips && x.thw().t == 1 { led(Some(slot), 1) } else { Some(slot) };
        let next = self.next(slot);
        [own, led(next, 1), led(next.and_then(|next| self.next(next)), 2)]
    }

    fn bring(&mut self, ops: &dyn Ops, slot: usize) -> Result<()> {
        if let Some(Kept::Parked(Parked { frames, here: here @ None, .. })) = self.pasts.get_mut(&slot) {
            *here = Some(ops.fetch(frames)?);
        }
        Ok(())
    }

    /// What takes a past's place leaves while the past is still read, if it is all of `x`.
    fn move_on(&mut self, ops: &dyn Ops, slot: usize, x: &Tensor, frames: usize) -> Result<()> {
        if self.parks(slot)
            && !self.forgets(slot)
            && x.thw().t <= frames
            && let Some(Kept::Parked(past)) = self.pasts.get_mut(&slot)
        {
            past.after = Some(ops.park(Some(&past.frames), x, frames)?);
        }
        Ok(())
    }

    /// The next parked layer that runs behind `slot`.
    fn next(&self, slot: usize) -> Option<usize> {
        let (behind, before) = match self.again.contains(&slot) && !self.keeping.abreast {
            true => (slot + 1..self.again.end, self.again.start..slot),
            false => (slot + 1..usize::MAX, 0..0),
        };
        let mut order = self.pasts.range(behind).chain(self.pasts.range(before));
        order.find(|(_, kept)| matches!(kept, Kept::Parked(..))).map(|(&slot, _)| slot)
    }

    /// Whether nothing will be kept of what a layer sees now.
    fn forgets(&self, slot: usize) -> bool {
        self.ends && !self.again.contains(&slot)
    }

    /// Replaces a layer's past by the tail of the past and `x`.
    pub(crate) fn keep(&mut self, ops: &dyn Ops, slot: usize, x: Tensor, frames: usize) -> Result<()> {
        if self.forgets(slot) {
            self.pasts.remove(&slot);
        } else if frames > 0 {
            let past = self.pasts.remove(&slot).filter(|_| self.seen != Seen::Nothing);
            let kept = match past {
                past if self.parks(slot) => Kept::Parked(Parked::new(self.park(ops, slot, past, x, frames)?)),
                past => {
                    let past = past.map(|past| past.brought(ops)).transpose()?;
                    Kept::Here(ops.tail(past, x, frames)?)
                }
            };
            self.pasts.insert(slot, kept);
        }
        Ok(())
    }

    /// Whether a layer's past leaves the device now: not where the next part needs it before any other layer runs.
    fn parks(&self, slot: usize) -> bool {
        self.keeping.parked.contains(&slot) && !(self.keeping.abreast && self.again.contains(&slot))
    }

    /// Parks the tail of a past and `x`.
    fn park(&mut self, ops: &dyn Ops, slot: usize, past: Option<Kept>, x: Tensor, frames: usize) -> Result<Tensor> {
        let (parked, x) = match past {
            Some(Kept::Parked(Parked { after: Some(after), .. })) => (after, x),
            // The past's own memory takes what leaves, and that of `x`, which is larger, is free at once.
            Some(Kept::Here(past) | Kept::Parked(Parked { here: Some(past), .. })) => {
                let x = ops.tail(Some(past), x, frames)?;
                (ops.park(None, &x, frames)?, x)
            }
            Some(Kept::Parked(past)) => (ops.park(Some(&past.frames), &x, frames)?, x),
            None => (ops.park(None, &x, frames)?, x),
        };
        self.leaving = (self.keeping.lead(slot) > 0).then_some(x);
        Ok(parked)
    }

    /// Frames that run together in the levels next to the pictures, and how many of the decoder's these are.
    pub(crate) fn at_once(&self) -> (usize, usize) {
        (self.keeping.at_once, self.keeping.levels)
    }

    /// Marks the end of a slice of `frames` latent frames.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.leaving = None;
        self.see(frames);
    }

    pub(super) fn see(&mut self, frames: usize) {
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
            write_values(to, &ops.download(&kept.brought(ops)?)?).map_err(io)?;
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
                true => Kept::Parked(Parked::new(ops.park(None, &frames, frames.thw().t)?)),
                false => Kept::Here(frames),
            };
            pasts.insert(slot, kept);
        }
        Ok(State { pasts, seen, ..State::kept(keeping) })
    }
}
