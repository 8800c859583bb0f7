//! A folder of videos: one job after the other.

use std::fs;
use std::path::{Path, PathBuf};

use reseed_media::video::Container;

use crate::failure::{Failure, Result};
use crate::report;

/// Runs a job for the input, or for every video of an input that is a folder of videos. What one of those fails with is
/// told at once, and the others are done all the same.
pub fn each(input: &Path, output: &Path, mut job: impl FnMut(&Path, &Path) -> Result<()>) -> Result<()> {
    let videos = match input.is_dir() {
        true => reseed_media::videos_in(input).map_err(Failure::input)?,
        false => Vec::new(),
    };
    if videos.is_empty() {
        return job(input, output);
    }
    fs::create_dir_all(output).map_err(|error| Failure::write(output, error))?;
    let mut failed = 0;
    for name in &videos {
        match job(&input.join(name), &output.join(output_name(Path::new(name)))) {
            Ok(()) => {}
            Err(cancelled @ Failure::Cancelled { .. }) => return Err(cancelled),
            Err(failure) => {
                failed += 1;
                report::warn(&failure.to_string());
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} videos failed, as told above", videos.len()))),
    }
}

/// The same name where that kind of video is written; Matroska, which holds everything, where it is not.
fn output_name(name: &Path) -> PathBuf {
    let written = Container::of(name).is_some() || name.extension().is_some_and(|e| e.eq_ignore_ascii_case("y4m"));
    if written { name.to_owned() } else { name.with_extension("mkv") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_keep_their_names_where_they_can() {
        let name = |name: &str| output_name(Path::new(name)).display().to_string();
        assert_eq!(["a.mp4", "b.MKV", "c.y4m", "d.avi"].map(name), ["a.mp4", "b.MKV", "c.y4m", "d.mkv"]);
    }
}
