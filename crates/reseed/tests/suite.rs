//! All integration tests in one binary, which links faster than one binary for each file.

mod batch_windows;
mod batching;
mod color_golden;
mod complete;
mod device_frames;
mod fallback;
mod files;
mod finishing;
mod golden_jobs;
mod jobs;
mod journal_damage;
mod lab_rank_bounds;
mod lanes;
mod low_band;
mod nano;
mod pulse;
mod ranges;
mod resizing;
mod resume;
mod sizes;
mod transformer_start;
