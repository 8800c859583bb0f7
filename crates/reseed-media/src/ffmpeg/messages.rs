//! The messages that a child process prints to standard error, in bounded memory.

use std::io::{self, BufRead, BufReader, Read};

/// The longest line that is kept; the rest of a longer line is dropped.
const MAX_LINE: usize = 4 << 10;
/// The longest message that is reported.
const MAX_MESSAGE: usize = 400;
/// Bytes of messages after which a process counts as broken.
const MAX_BYTES: u64 = 256 << 20;

/// Lines that follow the line with the cause, and lines of encoder libraries that report no error.
const GENERIC: [&str; 8] = [
    "Conversion failed!",
    "Error while processing the decoded data",
    "Nothing was written",
    "Svt[info]",
    "Svt[warn]",
    "x265 [info]",
    "x265 [warning]",
    "x264 [info]",
];

/// How ffmpeg's messages about a failed write begin. ffmpeg may exit with success after some of them.
const WRITE_ERRORS: [&str; 8] = [
    "Error writing trailer",
    "Error closing file",
    "Error muxing a packet",
    "Error submitting a packet to the muxer",
    "Could not write header",
    "Unable to re-open",
    "av_interleaved_write_frame()",
    "av_write_frame()",
];

/// How messages about a full or broken disk end.
const DISK_ERRORS: [&str; 4] =
    ["No space left on device", "Disk quota exceeded", "File too large", "Read-only file system"];

/// The messages of a process that are reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Messages {
    /// The first message, which names the cause of a failure to write.
    pub first: Option<String>,
    /// The last message, which names the cause of a failure to read: messages about damage precede it.
    pub last: Option<String>,
    /// The first message about a failed write.
    pub write_error: Option<String>,
}

impl Messages {
    fn add(&mut self, line: &str) {
        if line.is_empty() || GENERIC.iter().any(|prefix| line.starts_with(prefix)) {
            return;
        }
        let message = strip_origin(line);
        let kept = || message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_MESSAGE).collect();
        if self.write_error.is_none() && is_write_error(message) {
            self.write_error = Some(kept());
        }
        if self.first.is_none() {
            self.first = Some(kept());
        }
        self.last = Some(kept());
    }
}

fn is_write_error(message: &str) -> bool {
    WRITE_ERRORS.iter().any(|prefix| message.starts_with(prefix))
        || DISK_ERRORS.iter().any(|suffix| message.ends_with(suffix))
}

/// Reads messages to the end. `on_line` returns whether it consumed a line. `on_flood` is called once if the other
/// lines exceed all reason.
pub(super) fn read(from: impl Read, mut on_line: impl FnMut(&str) -> bool, on_flood: impl FnOnce()) -> Messages {
    let mut messages = Messages::default();
    let (mut bytes, mut on_flood) = (0, Some(on_flood));
    each_line(from, |line, length| {
        let line = line.trim();
        if on_line(line) {
            return;
        }
        messages.add(line);
        bytes += length;
        if bytes > MAX_BYTES
            && let Some(on_flood) = on_flood.take()
        {
            on_flood();
        }
    });
    messages
}

/// Passes every line and its full length to `each`. Lines are cut at `MAX_LINE` bytes, and a long line is passed in
/// pieces, so that a stream without line ends is noticed too.
pub(super) fn each_line(from: impl Read, mut each: impl FnMut(&str, u64)) {
    let mut reader = BufReader::new(from);
    let (mut line, mut length) = (Vec::new(), 0u64);
    loop {
        let buffer = match reader.fill_buf() {
            Ok([]) => break,
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        let room = MAX_LINE.saturating_sub(line.len());
        line.extend_from_slice(&buffer[..end.unwrap_or(taken).min(room)]);
        length += taken as u64;
        reader.consume(taken);
        if end.is_some() || length > 1 << 20 {
            each(&String::from_utf8_lossy(&line), length);
            line.clear();
            length = 0;
        }
    }
    if length > 0 {
        each(&String::from_utf8_lossy(&line), length);
    }
}

/// Removes the component from a message such as `[mov,mp4 @ 0x55d0] moov atom not found`.
pub(super) fn strip_origin(line: &str) -> &str {
    match line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        Some((origin, message)) if origin.contains(" @ ") => message,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Messages {
        read(text.as_bytes(), |_| false, || {})
    }

    #[test]
    fn the_origin_of_a_message_is_removed() {
        assert_eq!(strip_origin("[mov,mp4,m4a @ 0x5581] moov atom not found"), "moov atom not found");
        assert_eq!(strip_origin("[1] is odd"), "[1] is odd");
        assert_eq!(strip_origin("file:a.mp4: Invalid data"), "file:a.mp4: Invalid data");
    }

    #[test]
    fn the_first_and_the_last_message_are_kept() {
        let all = messages(
            "Svt[info]: x\n\n[libx264 @ 0x1] invalid preset 'warp'\nError while opening\nConversion failed!\n",
        );
        assert_eq!(all.first.as_deref(), Some("invalid preset 'warp'"));
        assert_eq!(all.last.as_deref(), Some("Error while opening"));
        assert_eq!(all.write_error, None);
        assert_eq!(messages("[aac @ 0x1] channel element 0.0 is not allocated\n").write_error, None);
    }

    #[test]
    fn messages_about_failed_writes_are_recognised() {
        for line in [
            "Error writing trailer of file:a.mp4: No space left on device",
            "[out#0/mp4 @ 0x1] Error writing trailer: Input/output error",
            "av_interleaved_write_frame(): File too large",
            "file:a.mkv: No space left on device",
        ] {
            let all = messages(&format!("{line}\nConversion failed!\n"));
            assert_eq!(all.write_error.as_deref(), Some(strip_origin(line)));
        }
    }

    #[test]
    fn consumed_lines_are_no_messages() {
        let mut seen = Vec::new();
        let consume = |line: &str| line.starts_with("frame:").then(|| seen.push(line.to_owned())).is_some();
        let all = read("frame:1\nreal\nframe:2".as_bytes(), consume, || {});
        assert_eq!(all.last.as_deref(), Some("real"));
        assert_eq!(seen, ["frame:1", "frame:2"]);
    }

    #[test]
    fn endless_messages_take_bounded_memory_and_are_noticed() {
        let mut flooded = false;
        let all = read(io::repeat(0).take(MAX_BYTES + (2 << 20)), |_| false, || flooded = true);
        assert!(flooded);
        assert!(all.first.is_none_or(|first| first.len() <= MAX_MESSAGE));
        let mut lines = Vec::new();
        each_line(&[b'x'; 3 * MAX_LINE][..], |line, length| lines.push((line.len(), length)));
        assert_eq!(lines, [(MAX_LINE, 3 * MAX_LINE as u64)]);
    }
}
