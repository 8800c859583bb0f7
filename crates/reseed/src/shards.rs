//! Long videos in shards, for many machines: a plan that one machine makes, shards that any machine computes, and the
//! join of all shards. The result has the bytes of a job on one machine.

mod in_order;
mod plan;
mod text;

use std::ops::Range;
use std::path::{Path, PathBuf};

use reseed_media::{Digest, Frame, Info, Mark, Sink, Source, segments, video};

use crate::error::{Error, Result, ShardError};
use crate::numeric_class::ClassCheck;
use crate::observer::{Event, Observer, Warning};
use crate::range_job::RangeJob;
use crate::report::Report;
use crate::session::{Budget, Builder, Session};
use in_order::InOrder;
pub use plan::{ShardPlan, ShardSettings};

impl ShardPlan {
    /// The number of shards.
    pub fn shards(&self) -> usize {
        self.frames.div_ceil(self.shard_frames())
    }

    /// Frames of the video.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// The frames of a shard.
    pub fn frames_of(&self, shard: usize) -> Result<Range<usize>> {
        let (length, shards) = (self.shard_frames(), self.shards());
        if shard >= shards {
            return Err(ShardError::NoSuchShard { shard, shards }.into());
        }
        Ok(shard * length..self.frames.min((shard + 1) * length))
    }

    /// The first frame of every shot but the first.
    pub fn cuts(&self) -> &[usize] {
        &self.cuts
    }

    /// The settings of a session that computes shards. Kernels that were measured on one machine are not used.
    pub fn builder(&self) -> Builder {
        let builder = Session::builder().model(&self.model).dtype(self.dtype).math(self.math).measured_kernels(false);
        let builder = builder.vae(self.parts.vae.clone()).text(self.parts.text.clone());
        builder.budget(self.budget.map(Budget::bytes))
    }

    /// Computes a shard of the video `input`, creates `folder` and writes the segments to it. Returns their names.
    pub fn run(
        &self,
        shard: usize,
        (input, folder): (&Path, &Path),
        session: &Session,
        class: ClassCheck,
        observer: &mut dyn Observer,
    ) -> Result<(Report, Vec<String>)> {
        let (frames, (clip, options)) = (self.frames_of(shard)?, self.video()?);
        let source = self.open(input, clip)?;
        let mut job = RangeJob::new(session, source.info(), &self.settings()?)?;
        let grid = job.grid().clone().with_cuts(&self.cuts, self.frames);
        let first = grid.input_of(frames.clone()).map_or(0, |read| read.start);
        *job.grid_mut() = grid;
        let mut provider = InOrder::new(source, (input, &self.marks), job.longest_batch() + 1);
        provider.start(first).map_err(Error::Input)?;
        let (info, name) = (job.output_info()?, PathBuf::from(&self.output));
        let sink = segments::create(folder, &name, &info, &options, frames.start / segments::FRAMES);
        let sink: Box<dyn Sink> = sink.map_err(Error::Output)?;
        let report = job.run_pinned(session, frames, &mut provider, sink, (observer, class));
        provider.problems().into_iter().for_each(|problem| {
            observer.event(&Event::Warning(Warning::DamagedInput { problem }));
        });
        Ok((report?, segments::list(folder).map_err(Error::Output)?))
    }

    /// The folder where [`join`](ShardPlan::join) finds the segments of all shards.
    pub fn segment_folder(output: &Path) -> PathBuf {
        video::work_folder(output)
    }

    /// Joins the segments of all shards and the other tracks of `input` into `output`.
    pub fn join(&self, input: &Path, output: &Path) -> Result<()> {
        let (clip, options) = self.video()?;
        let source = self.open(input, clip)?;
        let info = self.settings()?.output(source.info())?;
        info.set_marks(&self.marks);
        segments::join(output, &info, &options, self.frames).map_err(Error::Output)
    }

    /// Opens the video of the plan.
    fn open(&self, input: &Path, clip: video::Clip) -> Result<Box<dyn Source>> {
        let source = reseed_media::open_clip(input, clip).map_err(Error::Input)?;
        let found = source.info().size;
        if found != self.size {
            return Err(ShardError::OtherSize { path: input.into(), planned: self.size, found }.into());
        }
        Ok(source)
    }

    fn shard_frames(&self) -> usize {
        self.segments_per_shard * segments::FRAMES
    }
}

/// Identifies a frame that a source has just returned as number `index`.
fn mark(info: &Info, index: usize, frame: &Frame) -> Mark {
    let of_pixels = || {
        let mut digest = Digest::new(0);
        let parts = std::iter::once(&frame.samples).chain(&frame.alpha);
        parts.for_each(|samples| digest.update(samples.as_bytes()));
        Mark { timestamp: None, digest: digest.value() }
    };
    info.marks(index).first().copied().unwrap_or_else(of_pixels)
}
