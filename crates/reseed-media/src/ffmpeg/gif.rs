//! Joins images into an animated GIF with one table of colours for all of them.

use std::path::Path;

use super::tools::{self, Tools, file_url, words};
use crate::error::{Error, Result};
use crate::files;

/// Joins the images 000001.png, 000002.png, ... of a folder into the file `to`; errors name `output`.
pub(crate) fn join_gif(folder: &Path, to: &Path, output: &Path, alpha: bool) -> Result<()> {
    const IMAGES: &str = "%06d.png";
    const COLOURS: &str = "000000-colours.png";
    let tools = Tools::find()?;
    let cannot_write = |cause| Error::Write { path: output.to_owned(), cause };
    let folder = files::working_folder(folder).map_err(cannot_write)?;
    let to = std::path::absolute(to).map_err(cannot_write)?;
    let run = |inputs: &str, filter: &str, format: &str, to: &Path| -> Result<()> {
        let mut command = tools::command(&tools.ffmpeg);
        command
            .current_dir(&folder)
            .args(words("-nostdin -hide_banner -v error -xerror -y -framerate 10 -start_number 1"));
        command.args(words(inputs)).arg("-lavfi").arg(filter).args(words(format)).arg(file_url(to));
        tools::run(command)?.map_err(|reason| Error::EncoderFailed { path: output.to_owned(), reason })
    };
    let transparent = u8::from(alpha);
    // Two passes: a filter that does both keeps all frames in memory.
    run(
        &format!("-i {IMAGES}"),
        &format!("palettegen=reserve_transparent={transparent}"),
        "-frames:v 1 -update 1 -f image2",
        Path::new(COLOURS),
    )?;
    // Whole images, so that each frame has one.
    let format = "-gifflags -offsetting-transdiff -loop 0 -fflags +bitexact -f gif";
    run(&format!("-i {IMAGES} -i {COLOURS}"), "[0:v][1:v]paletteuse=alpha_threshold=128", format, &to)
}
