use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::path::Path;

use reseed_ops::{Device, MathMode, Shape, TemporalCache, Tensor, offload, prefetch};

use super::parts::NextPart;
use crate::error::{Error, Result};
use crate::plan::CachePlan;
use crate::weights::Source;
use crate::weights::safetensors::{Safetensors, header, write_values};

/// The temporal caches of a clip's layers between slices. Dropping it ends the clip.
#[derive(Default)]
pub struct State {
    caches: BTreeMap<usize, Cache>,
    pub(super) seen: Seen,
    ends: bool,
    pub(super) plan: CachePlan,
    /// The input of the layer whose cache was offloaded last, if that cache is prefetched: its memory is not reused
    /// while the copy reads it, so no op waits for the copy.
    leaving: Option<Tensor>,
    /// Slots of the layers that run again, over the next part of the slice, before the layers after them.
    pub(super) repeated: Range<usize>,
    /// Number of parts of the slice that run before the layers after the present ones.
    pub(super) later: usize,
    /// Offloaded parts that run next, by the step that takes them.
    pub(super) next_parts: BTreeMap<usize, NextPart>,
    /// The part that was offloaded last, while the copy reads it.
    pub(super) leaving_part: Option<Tensor>,
}

/// A layer's cache.
enum Cache {
    /// In device memory.
    Device(Tensor),
    /// In host memory.
    Host(HostCache),
}

/// A cache in host memory.
struct HostCache {
    frames: Tensor,
    /// A copy in device memory, from the prefetch until the layer has run.
    prefetched: Option<Tensor>,
    /// The next contents of the cache, while the layer runs.
    next: Option<Tensor>,
}

impl HostCache {
    fn new(frames: Tensor) -> HostCache {
        HostCache { frames, prefetched: None, next: None }
    }
}

impl Cache {
    /// The tensor that the layer reads.
    fn tensor(&self) -> &Tensor {
        match self {
            Cache::Device(tensor) => tensor,
            Cache::Host(cache) => cache.prefetched.as_ref().unwrap_or(&cache.frames),
        }
    }

    /// The frames in device memory.
    fn on_device(&self, ops: &dyn Device) -> Result<Tensor> {
        match self {
            Cache::Host(HostCache { frames, prefetched: None, .. }) => Ok(prefetch(ops, frames)?),
            cache => Ok(cache.tensor().clone()),
        }
    }
}

/// How many frames of the clip have been processed.
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

    /// A clip that starts with the next slice, with its caches placed by `plan`.
    pub fn with_plan(plan: CachePlan) -> State {
        State { plan, ..State::default() }
    }

    /// Whether the next slice is the clip's first.
    pub fn starts(&self) -> bool {
        self.seen == Seen::Nothing
    }

    /// Declares the next slice the clip's last: no cache is needed after it. This halves the memory of an image.
    pub fn end_with_next(&mut self) {
        self.ends = true;
    }

    /// Bytes of all caches.
    pub fn bytes(&self) -> usize {
        self.caches.values().map(|cache| cache.tensor().bytes()).sum()
    }

    /// The cache of a layer that is about to run over `x` and caches `frames` frames. Starts the prefetches that are
    /// due.
    pub(crate) fn cache(
        &mut self,
        ops: &dyn Device,
        slot: usize,
        x: &Tensor,
        frames: usize,
    ) -> Result<TemporalCache<'_>> {
        self.prefetch_parts(ops, slot)?;
        if self.seen != Seen::Nothing {
            self.offload_next(ops, slot, x, frames)?;
            self.due(slot, x).into_iter().flatten().try_for_each(|slot| self.prefetch(ops, slot))?;
        }
        Ok(match (self.seen, self.caches.get(&slot)) {
            (Seen::Nothing, _) | (_, None) => TemporalCache::Start,
            (Seen::FirstFrame, Some(cache)) => TemporalCache::AfterFirst(cache.tensor()),
            (Seen::More, Some(cache)) => TemporalCache::Frames(cache.tensor()),
        })
    }

    /// Slots whose caches are prefetched before layer `slot` runs, in this order.
    fn due(&self, slot: usize, x: &Tensor) -> [Option<usize>; 3] {
        let ahead = |slot: Option<usize>, by: usize| slot.filter(|&slot| self.plan.prefetch_distance(slot) >= by);
        let own = if self.plan.strips && x.thw().t == 1 { ahead(Some(slot), 1) } else { Some(slot) };
        let next = self.next(slot);
        [own, ahead(next, 1), ahead(next.and_then(|next| self.next(next)), 2)]
    }

    fn prefetch(&mut self, ops: &dyn Device, slot: usize) -> Result<()> {
        if let Some(Cache::Host(HostCache { frames, prefetched: prefetched @ None, .. })) = self.caches.get_mut(&slot) {
            *prefetched = Some(prefetch(ops, frames)?);
        }
        Ok(())
    }

    /// Offloads the next contents of a cache before its layer runs, if all of `x` becomes part of it.
    fn offload_next(&mut self, ops: &dyn Device, slot: usize, x: &Tensor, frames: usize) -> Result<()> {
        if self.offloads(slot)
            && !self.is_last(slot)
            && x.thw().t <= frames
            && let Some(Cache::Host(cache)) = self.caches.get_mut(&slot)
        {
            cache.next = Some(offload_tail(ops, Some(&cache.frames), x, frames)?);
        }
        Ok(())
    }

    /// The next layer with an offloaded cache that runs after `slot`.
    fn next(&self, slot: usize) -> Option<usize> {
        // The chunk passes the rest of the repeated layers, and the next chunk those before.
        let Range { start, end } = self.repeated;
        let (after, before, later) = match (self.repeated.contains(&slot), self.plan.breadth_first) {
            (true, true) => (slot + 1..end, start..slot, end..usize::MAX),
            (true, false) => (slot + 1..end, start..slot, 0..0),
            (false, _) => (slot + 1..usize::MAX, 0..0, 0..0),
        };
        let mut order = [after, before, later].into_iter().flat_map(|slots| self.caches.range(slots));
        order.find(|(_, cache)| matches!(cache, Cache::Host(_))).map(|(&slot, _)| slot)
    }

    /// Whether a layer runs for the last time.
    fn is_last(&self, slot: usize) -> bool {
        self.ends && !self.repeated.contains(&slot)
    }

    /// Replaces a layer's cache by its last `frames` frames followed by `x`.
    pub(crate) fn update(&mut self, ops: &dyn Device, slot: usize, x: Tensor, frames: usize) -> Result<()> {
        if self.is_last(slot) {
            self.caches.remove(&slot);
        } else if frames > 0 {
            let cache = self.caches.remove(&slot).filter(|_| self.seen != Seen::Nothing);
            let cache = match cache {
                cache if self.offloads(slot) => Cache::Host(HostCache::new(self.offload(ops, slot, cache, x, frames)?)),
                cache => {
                    let cache = cache.map(|cache| cache.on_device(ops)).transpose()?;
                    Cache::Device(ops.tail(cache, x, frames)?)
                }
            };
            self.caches.insert(slot, cache);
        }
        self.leaving_part = None;
        Ok(())
    }

    /// Whether a layer's cache is offloaded now. Breadth-first, it stays on the device if the next part of the slice
    /// reads it next, unless it is streamed.
    fn offloads(&self, slot: usize) -> bool {
        let CachePlan { offloaded, streamed, breadth_first, .. } = &self.plan;
        let kept = *breadth_first && self.repeated.contains(&slot) && !streamed.contains(&slot);
        offloaded.contains(&slot) && !kept
    }

    /// Offloads the tail of a cache and `x`.
    fn offload(
        &mut self,
        ops: &dyn Device,
        slot: usize,
        cache: Option<Cache>,
        x: Tensor,
        frames: usize,
    ) -> Result<Tensor> {
        let (offloaded, x) = match cache {
            Some(Cache::Host(HostCache { next: Some(next), .. })) => (next, x),
            // The tail reuses the memory of the cache, and the memory of `x`, which is larger, is free at once.
            Some(Cache::Device(cache) | Cache::Host(HostCache { prefetched: Some(cache), .. })) => {
                let x = ops.tail(Some(cache), x, frames)?;
                (offload_tail(ops, None, &x, frames)?, x)
            }
            Some(Cache::Host(cache)) => (offload_tail(ops, Some(&cache.frames), &x, frames)?, x),
            None => (offload_tail(ops, None, &x, frames)?, x),
        };
        self.leaving = (self.plan.prefetch_distance(slot) > 0).then_some(x);
        Ok(offloaded)
    }

    /// The number of frames that run together in the finest levels, and how many levels of the decoder these are.
    pub(crate) fn at_once(&self) -> (usize, usize) {
        (self.plan.chunk_frames, self.plan.chunk_levels)
    }

    /// Ends a slice of `frames` latent frames.
    pub(crate) fn advance(&mut self, frames: usize) {
        self.leaving = None;
        self.count(frames);
    }

    pub(super) fn count(&mut self, frames: usize) {
        self.seen = match (self.seen, frames) {
            (Seen::Nothing, 1) => Seen::FirstFrame,
            _ => Seen::More,
        };
    }

    /// Writes the state as a safetensors file, unless caches may hold bytes ([`MathMode::Int8`]).
    pub fn save(&self, ops: &dyn Device, to: &mut impl Write, path: &Path) -> Result<()> {
        if ops.math_mode() == MathMode::Int8 {
            return Err(Error::State("a state with --precision int8 cannot be saved; use another precision".into()));
        }
        let io = |source| Error::Io { path: path.into(), source };
        let names: Vec<String> = self.caches.keys().map(|slot| format!("cache.{slot}")).collect();
        let shapes: Vec<(&str, Shape)> =
            names.iter().map(String::as_str).zip(self.caches.values().map(|cache| cache.tensor().shape())).collect();
        let metadata = BTreeMap::from([
            ("seen".to_string(), format!("{:?}", self.seen)),
            ("dtype".to_string(), ops.dtype().to_string()),
        ]);
        to.write_all(&header(&shapes, &metadata)).map_err(io)?;
        for cache in self.caches.values() {
            write_values(to, &ops.download(&cache.on_device(ops)?)?).map_err(io)?;
        }
        Ok(())
    }

    /// Reads a state that [`State::save`] wrote on a device of the same type.
    pub fn restore(ops: &dyn Device, path: &Path, plan: CachePlan) -> Result<State> {
        let file = Safetensors::open(path)?;
        let invalid = || Error::State(format!("{} does not hold the state of a clip", path.display()));
        let seen = match file.metadata("seen") {
            Some("Nothing") => Seen::Nothing,
            Some("FirstFrame") => Seen::FirstFrame,
            Some("More") => Seen::More,
            _ => return Err(invalid()),
        };
        let dtype = file.metadata("dtype").ok_or_else(invalid)?;
        if dtype != ops.dtype().to_string() {
            return Err(Error::State(format!("{} is {dtype}, this run is {}", path.display(), ops.dtype())));
        }
        let mut caches = BTreeMap::new();
        for (name, shape) in file.shapes() {
            let slot = name.strip_prefix("cache.").and_then(|slot| slot.parse().ok()).ok_or_else(invalid)?;
            let frames = ops.upload(*shape, &file.read(name)?)?;
            let cache = match plan.offloaded.contains(&slot) {
                true => Cache::Host(HostCache::new(offload(ops, &frames)?)),
                false => Cache::Device(frames),
            };
            caches.insert(slot, cache);
        }
        Ok(State { caches, seen, ..State::with_plan(plan) })
    }
}

/// The last `frames` frames of an offloaded cache followed by `x`, offloaded. Only frames of `x` are copied.
fn offload_tail(ops: &dyn Device, cache: Option<&Tensor>, x: &Tensor, frames: usize) -> Result<Tensor> {
    let (all, last) = (x.thw().t, x.thw().t.min(frames));
    let last = offload(ops, &x.frames(all - last, last))?;
    Ok(ops.tail(cache.cloned(), last, frames)?)
}
