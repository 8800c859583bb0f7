use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use reseed_ops::{Ops, Shape, TemporalCache, Tensor};

use crate::error::{Error, Result};
use crate::plan::CachePlan;
use crate::weights::Source;
use crate::weights::safetensors::{Safetensors, header, write_values};

/// What a clip's layers remember between slices. Dropping it ends the clip.
#[derive(Default)]
pub struct State {
    caches: BTreeMap<usize, Kept>,
    pub(super) seen: Seen,
    ends: bool,
    pub(super) keeping: CachePlan,
    /// The input of the layer whose cache was offloaded last, if it has a lead: while it lives, nobody waits for its copy.
    leaving: Option<Tensor>,
    /// Layers that run again before those behind them do.
    pub(super) again: Range<usize>,
}

/// A layer's cache.
enum Kept {
    /// On the device.
    Here(Tensor),
    /// In the host's memory.
    Offloaded(Offloaded),
}

/// A cache in the host's memory.
struct Offloaded {
    frames: Tensor,
    /// The same on the device, from when it was prefetched until its layer has run.
    here: Option<Tensor>,
    /// What takes its place, on its way to the host while its layer runs.
    after: Option<Tensor>,
}

impl Offloaded {
    fn new(frames: Tensor) -> Offloaded {
        Offloaded { frames, here: None, after: None }
    }
}

impl Kept {
    /// Where a layer reads it.
    fn tensor(&self) -> &Tensor {
        match self {
            Kept::Here(tensor) => tensor,
            Kept::Offloaded(offloaded) => offloaded.here.as_ref().unwrap_or(&offloaded.frames),
        }
    }

    /// The same on the device.
    fn brought(&self, ops: &dyn Ops) -> Result<Tensor> {
        match self {
            Kept::Offloaded(Offloaded { frames, here: None, .. }) => Ok(ops.prefetch(frames)?),
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
    pub fn kept(keeping: CachePlan) -> State {
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
        self.caches.values().map(|kept| kept.tensor().bytes()).sum()
    }

    /// A layer's cache, before the layer runs over `x` and keeps so many `frames`. The cache of the next layer is on its way, and
    /// perhaps the one behind that.
    pub(crate) fn cache(&mut self, ops: &dyn Ops, slot: usize, x: &Tensor, frames: usize) -> Result<TemporalCache<'_>> {
        if self.seen != Seen::Nothing {
            self.move_on(ops, slot, x, frames)?;
            self.coming(slot, x).into_iter().flatten().try_for_each(|slot| self.bring(ops, slot))?;
        }
        Ok(match (self.seen, self.caches.get(&slot)) {
            (Seen::Nothing, _) | (_, None) => TemporalCache::Start,
            (Seen::FirstFrame, Some(kept)) => TemporalCache::AfterFirst(kept.tensor()),
            (Seen::More, Some(kept)) => TemporalCache::Frames(kept.tensor()),
        })
    }

    /// Layers whose caches come now, in this order.
    fn coming(&self, slot: usize, x: &Tensor) -> [Option<usize>; 3] {
        let CachePlan { strips, .. } = self.keeping;
        let led = |slot: Option<usize>, by: usize| slot.filter(|&slot| self.keeping.prefetch_distance(slot) >= by);
        let own = if strips && x.thw().t == 1 { led(Some(slot), 1) } else { Some(slot) };
        let next = self.next(slot);
        [own, led(next, 1), led(next.and_then(|next| self.next(next)), 2)]
    }

    fn bring(&mut self, ops: &dyn Ops, slot: usize) -> Result<()> {
        if let Some(Kept::Offloaded(Offloaded { frames, here: here @ None, .. })) = self.caches.get_mut(&slot) {
            *here = Some(ops.prefetch(frames)?);
        }
        Ok(())
    }

    /// What takes a cache's place leaves while the cache is still read, if it is all of `x`.
    fn move_on(&mut self, ops: &dyn Ops, slot: usize, x: &Tensor, frames: usize) -> Result<()> {
        if self.parks(slot)
            && !self.forgets(slot)
            && x.thw().t <= frames
            && let Some(Kept::Offloaded(cache)) = self.caches.get_mut(&slot)
        {
            cache.after = Some(ops.offload(Some(&cache.frames), x, frames)?);
        }
        Ok(())
    }

    /// The next offloaded layer that runs behind `slot`.
    fn next(&self, slot: usize) -> Option<usize> {
        let (behind, before) = match self.again.contains(&slot) && !self.keeping.breadth_first {
            true => (slot + 1..self.again.end, self.again.start..slot),
            false => (slot + 1..usize::MAX, 0..0),
        };
        let mut order = self.caches.range(behind).chain(self.caches.range(before));
        order.find(|(_, kept)| matches!(kept, Kept::Offloaded(..))).map(|(&slot, _)| slot)
    }

    /// Whether nothing will be kept of what a layer sees now.
    fn forgets(&self, slot: usize) -> bool {
        self.ends && !self.again.contains(&slot)
    }

    /// Replaces a layer's cache by the tail of the cache and `x`.
    pub(crate) fn keep(&mut self, ops: &dyn Ops, slot: usize, x: Tensor, frames: usize) -> Result<()> {
        if self.forgets(slot) {
            self.caches.remove(&slot);
        } else if frames > 0 {
            let cache = self.caches.remove(&slot).filter(|_| self.seen != Seen::Nothing);
            let kept = match cache {
                cache if self.parks(slot) => {
                    Kept::Offloaded(Offloaded::new(self.offload(ops, slot, cache, x, frames)?))
                }
                cache => {
                    let cache = cache.map(|cache| cache.brought(ops)).transpose()?;
                    Kept::Here(ops.tail(cache, x, frames)?)
                }
            };
            self.caches.insert(slot, kept);
        }
        Ok(())
    }

    /// Whether a layer's cache leaves the device now: not where the next part needs it before any other layer runs.
    fn parks(&self, slot: usize) -> bool {
        self.keeping.offloaded.contains(&slot) && !(self.keeping.breadth_first && self.again.contains(&slot))
    }

    /// Parks the tail of a cache and `x`.
    fn offload(&mut self, ops: &dyn Ops, slot: usize, cache: Option<Kept>, x: Tensor, frames: usize) -> Result<Tensor> {
        let (offloaded, x) = match cache {
            Some(Kept::Offloaded(Offloaded { after: Some(after), .. })) => (after, x),
            // The cache's own memory takes what leaves, and that of `x`, which is larger, is free at once.
            Some(Kept::Here(cache) | Kept::Offloaded(Offloaded { here: Some(cache), .. })) => {
                let x = ops.tail(Some(cache), x, frames)?;
                (ops.offload(None, &x, frames)?, x)
            }
            Some(Kept::Offloaded(cache)) => (ops.offload(Some(&cache.frames), &x, frames)?, x),
            None => (ops.offload(None, &x, frames)?, x),
        };
        self.leaving = (self.keeping.prefetch_distance(slot) > 0).then_some(x);
        Ok(offloaded)
    }

    /// Frames that run together in the levels next to the pictures, and how many of the decoder's these are.
    pub(crate) fn at_once(&self) -> (usize, usize) {
        (self.keeping.chunk_frames, self.keeping.chunk_levels)
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
        let names: Vec<String> = self.caches.keys().map(|slot| format!("cache.{slot}")).collect();
        let shapes: Vec<(&str, Shape)> =
            names.iter().map(String::as_str).zip(self.caches.values().map(|kept| kept.tensor().shape())).collect();
        let metadata = BTreeMap::from([
            ("seen".to_string(), format!("{:?}", self.seen)),
            ("dtype".to_string(), ops.dtype().to_string()),
        ]);
        to.write_all(&header(&shapes, &metadata)).map_err(io)?;
        for kept in self.caches.values() {
            write_values(to, &ops.download(&kept.brought(ops)?)?).map_err(io)?;
        }
        Ok(())
    }

    /// Reads a state that [`State::save`] wrote on a device of the same type.
    pub fn restore(ops: &dyn Ops, path: &Path, keeping: CachePlan) -> Result<State> {
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
        let mut caches = BTreeMap::new();
        for (name, shape) in file.shapes() {
            let slot = name.strip_prefix("cache.").and_then(|slot| slot.parse().ok()).ok_or_else(stranger)?;
            let frames = ops.upload(*shape, &file.read(name)?)?;
            let kept = match keeping.offloaded.contains(&slot) {
                true => Kept::Offloaded(Offloaded::new(ops.offload(None, &frames, frames.thw().t)?)),
                false => Kept::Here(frames),
            };
            caches.insert(slot, kept);
        }
        Ok(State { caches, seen, ..State::kept(keeping) })
    }
}
