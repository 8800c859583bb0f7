//! A folder of videos: one job after the other.

use std::fs;
use std::path::{Path, PathBuf};

use reseed::media::video::Container;
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::progress::Place;
use crate::report::merged;
use crate::shutdown;

/// Runs a job for the input, or for every video of a folder of videos. An error in one video is shown at once, and the
/// others still run.
pub fn each(
    input: &Path,
    output: &Path,
    writes: bool,
    mut job: impl FnMut(&Path, &Path, Option<Place>) -> Result<()>,
) -> Result<()> {
    let videos = match input.is_dir() {
        true => reseed::media::videos_in(input).map_err(Failure::input)?,
        false => Vec::new(),
    };
    if videos.is_empty() {
        return job(input, output, None);
    }
    if writes {
        fs::create_dir_all(output).map_err(|error| Failure::write(output, error))?;
    }
    let (count, mut failed, mut damaged) = (videos.len(), 0, 0);
    for (i, name) in videos.iter().enumerate() {
        let place = Place { number: i + 1, count };
        let input = input.join(name);
        match job(&input, &output.join(output_name(Path::new(name))), Some(place)) {
            Ok(()) => shutdown::set_left("finished videos are kept: --resume continues with the others"),
            Err(failure) if failure.is_cancelled() => return Err(failure),
            Err(failure) => {
                match failure {
                    Failure::Damaged(_) => damaged += 1,
                    _ => failed += 1,
                }
                console::remark(&format_args!("warning: {failure}"));
                console::event(|| merged(console::error_event(&failure), json!({"input": input.to_string_lossy()})));
            }
        }
    }
    match (failed, damaged) {
        (0, 0) => Ok(()),
        (0, _) => Err(Failure::Damaged(format!("{damaged} of {count} videos are damaged; see above"))),
        _ => Err(Failure::Failed(format!("{failed} of {count} videos failed; see above"))),
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
