//! Parts of messages.

/// The most characters of a codec's own message: some list every sample of a damaged header.
const MAX_REASON: usize = 240;

/// The values that a quality setting takes.
pub fn takes(range: &Option<(u32, u32)>) -> String {
    range.map_or("none".to_owned(), |(least, most)| format!("{least} to {most}"))
}

/// The command that installs ffmpeg on this system.
pub fn install_command() -> &'static str {
    match std::env::consts::OS {
        "macos" => "brew install ffmpeg",
        "windows" => "winget install Gyan.FFmpeg` or `scoop install ffmpeg",
        _ => "sudo apt-get install ffmpeg",
    }
}

/// The message of a codec on one line, shortened where it is long.
pub fn one_line(cause: &image::ImageError) -> String {
    let line = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{} ...", &line[..end]),
        None => line,
    }
}
