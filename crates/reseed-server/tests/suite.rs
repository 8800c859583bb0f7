//! All integration tests in one binary, which links faster than one binary for each file.

mod common;
mod events;
mod files;
mod hostile;
mod hostile_files;
mod jobs;
mod machine;
mod previews;
mod stills;
mod uploads;
