//! A folder of videos, or of images of different sizes: one job after the other.

use std::fs;
use std::path::Path;

use reseed::media::output_name;
use serde_json::json;

use crate::console;
use crate::failure::{Failure, Result};
use crate::progress::Place;
use crate::report::merged;
use crate::shutdown;

/// Runs a job for the input, or for every file of a folder whose files are jobs of their own. An error in one file is
/// shown at once, and the others still run.
pub fn each(
    input: &Path,
    output: &Path,
    writes: bool,
    mut job: impl FnMut(&Path, &Path, Option<Place>) -> Result<()>,
) -> Result<()> {
    let files = match input.is_dir() {
        true => reseed::media::jobs_in(input).map_err(Failure::input)?,
        false => Vec::new(),
    };
    if files.is_empty() {
        return job(input, output, None);
    }
    if writes {
        fs::create_dir_all(output).map_err(|error| Failure::write(output, error))?;
    }
    let (count, mut failed, mut damaged) = (files.len(), 0, 0);
    for (i, name) in files.iter().enumerate() {
        let place = Place { number: i + 1, count };
        let input = input.join(name);
        match job(&input, &output.join(output_name(Path::new(name), &files)), Some(place)) {
            Ok(()) => shutdown::set_left("finished files are kept: --resume continues with the others"),
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
        (0, _) => Err(Failure::Damaged(format!("{damaged} of {count} files are damaged; see above"))),
        _ => Err(Failure::Failed(format!("{failed} of {count} files failed; see above"))),
    }
}
