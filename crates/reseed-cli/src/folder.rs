//! A folder of videos: one job after the other.

use std::fs;
use std::path::{Path, PathBuf};

use reseed::media::video::Container;

use crate::failure::{Failure, Result};

/// Runs a job for the input, or for every video of a folder of videos. An error in one video is shown at once, and the
/// others still run.
pub fn each(input: &Path, output: &Path, mut job: impl FnMut(&Path, &Path) -> Result<()>) -> Result<()> {
    let videos = match input.is_dir() {
        true => reseed::media::videos_in(input).map_err(Failure::input)?,
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
            Err(failure) if failure.is_cancelled() => return Err(failure),
            Err(failure) => {
                failed += 1;
                eprintln!("warning: {failure}");
            }
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Failure::Failed(format!("{failed} of {} videos failed; see above", videos.len()))),
    }
}

/// The same name if that container can be written, else Matroska, which holds everything.
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
