//! The plan of all shards: one pass over the video.

use std::path::{Path, PathBuf};

use reseed_media::video::{Clip, Container, Options};
use reseed_media::{Mark, Size};
use reseed_ops::{MathMode, Precision};

use super::mark;
use crate::error::{Error, Result, ShardError};
use crate::grid::BatchGrid;
use crate::job::{JobRecord, JobSpec};
use crate::models::weights::Parts;
use crate::observer::{Event, Observer, Warning};
use crate::session::{Budget, IDENTITY};
use crate::settings::{NoiseSource, Settings};

/// What all shards of a video share, and what identifies its frames.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardPlan {
    /// The input, as a path or an address.
    pub input: String,
    /// The output, as a path or an address.
    pub output: String,
    /// The name of the model.
    pub model: String,
    pub(super) parts: Parts,
    /// Type of the activations; what suits the device unless given.
    pub(super) dtype: Option<Precision>,
    /// Accuracy that the products of GPUs keep.
    pub(super) math: MathMode,
    /// Bytes of GPU memory of every machine.
    pub(super) budget: Option<usize>,
    pub(super) segments_per_shard: usize,
    pub(super) record: JobRecord,
    pub(super) size: Size,
    pub(super) frames: usize,
    pub(super) cuts: Vec<usize>,
    pub(super) marks: Vec<Mark>,
}

/// How a video is computed in shards, beside the settings of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSettings {
    /// The name of the model.
    pub model: String,
    /// Another file of the VAE.
    pub vae: Option<PathBuf>,
    /// Another file of the text embedding.
    pub text: Option<PathBuf>,
    /// Type of the activations; what suits the device unless given.
    pub dtype: Option<Precision>,
    /// Accuracy that the products of GPUs keep.
    pub math: MathMode,
    /// GPU memory of every machine; what is free unless given, and then all machines need about the same.
    pub budget: Option<Budget>,
    /// Segments of a shard.
    pub segments: usize,
}

impl ShardPlan {
    /// Reads all frames of a video and finds its shots. Needs neither the model nor a GPU.
    pub fn create(spec: &JobSpec, shards: ShardSettings, observer: &mut dyn Observer) -> Result<ShardPlan> {
        let path = || spec.output.clone();
        if Container::of(&spec.output).is_none() {
            return Err(ShardError::OutputKind { path: path() }.into());
        }
        if matches!(spec.settings.noise, NoiseSource::File(_)) {
            return Err(ShardError::NoiseFile.into());
        }
        spec.settings.check()?;
        let mut source = reseed_media::open_clip(&spec.input, spec.clip).map_err(Error::Input)?;
        if source.info().kind.is_still() {
            return Err(ShardError::Still { path: spec.input.clone() }.into());
        }
        let settings = spec.settings_for(source.info());
        settings.output(source.info())?;
        let losses = reseed_media::losses(source.info(), &spec.output, &spec.video);
        losses.into_iter().for_each(|loss| observer.event(&Event::Warning(Warning::Loss(loss))));
        observer.event(&Event::Started { frames: source.info().frames, done: 0 });
        let batching = settings.batching_with(shards.model != IDENTITY);
        let (mut grid, mut marks) = (BatchGrid::new(&Settings { batching, ..settings.clone() }, None), Vec::new());
        while let Some(frame) = source.next().map_err(Error::Input)? {
            if observer.cancelled() {
                return Err(Error::Cancelled);
            }
            marks.push(mark(source.info(), marks.len(), &frame));
            grid.push(&frame);
            source.reuse(frame.samples);
            observer.event(&Event::Frames(1));
        }
        grid.finish();
        for problem in source.problems() {
            observer.event(&Event::Warning(Warning::DamagedInput { problem }));
        }
        if marks.is_empty() {
            return Err(Error::NoFrames { path: Some(spec.input.clone()) });
        }
        Ok(ShardPlan {
            input: text(&spec.input),
            output: text(&spec.output),
            model: shards.model,
            parts: Parts { vae: shards.vae, text: shards.text },
            dtype: shards.dtype,
            math: shards.math,
            budget: shards.budget.map(Budget::get),
            segments_per_shard: shards.segments.max(1),
            record: JobRecord::new(&settings, &spec.clip, &spec.video),
            size: source.info().size,
            frames: marks.len(),
            cuts: grid.cuts(),
            marks,
        })
    }

    /// The settings of the job.
    pub(super) fn settings(&self) -> Result<Settings> {
        self.record.settings(None).ok_or_else(|| ShardError::Plan { reason: "its settings" }.into())
    }

    /// The part of the video and how its output is encoded.
    pub(super) fn video(&self) -> Result<(Clip, Options)> {
        self.record.video().ok_or_else(|| ShardError::Plan { reason: "its options for video" }.into())
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
