//! All integration tests in one binary, which links faster than one binary for each file.

mod common;
mod events;
mod hostile;
mod jobs;
mod previews;
mod uploads;
