//! A folder of videos, or of images of different sizes: one job after the other.

use std::fs;
use std::path::Path;

use reseed::media::output_name;

use crate::failure::{Failure, Result};

/// Runs a job for the input, or for every file of a folder whose files are jobs of their own. An error in one file is
/// shown at once, and the others still run.
pub fn each(input: &Path, output: &Path, mut job: impl FnMut(&Path, &Path) -> Result<()>) -> Result<()> {
    let videos = match input.is_dir() {
        true => reseed::media::jobs_in(input).map_err(Failure::input)?,
        false => Vec::new(),
    };
    if videos.is_empty() {
        return job(input, output);
    }
    fs::create_dir_all(output).map_err(|error| Failure::write(output, error))?;
    let mut failed = 0;
    for name in &videos {
        match job(&input.join(name), &output.join(output_name(Path::new(name), &videos))) {
            Ok(()) => {}
            Err(failure) if failure.is_cancelled() => return Err(failure),
            Err(failure) => {
                failed += 1;
                eprintln!("warning: {failure}");
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} files failed; see above", videos.len()))),
    }
}
