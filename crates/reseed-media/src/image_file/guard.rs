//! Protection against hostile image files: decoders that panic, and headers that declare far more pixels than the file
//! can hold.

use std::any::Any;
use std::cell::Cell;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use image::error::DecodingError;
use image::{ImageError, ImageFormat, ImageResult};

/// Decoded bytes that any file may have, however small it is.
const FLOOR: u64 = 32 << 20;

/// The most decoded bytes per byte of the file. Deflate reaches 1032, LZW and JPEG less.
const MAX_RATIO: u64 = 1100;

/// The most bytes of colour profiles and texts.
pub(crate) const MAX_METADATA: u64 = 16 << 20;

/// Whether a file of `file` bytes may hold an image of `decoded` bytes.
pub(super) fn is_plausible(decoded: u64, file: u64) -> bool {
    decoded <= FLOOR.saturating_add(file.saturating_mul(MAX_RATIO))
}

/// The most bytes that a decoder may allocate for an image of `decoded` bytes: the image, a copy of it in another
/// layout, a piece of the file, and metadata.
pub(super) fn max_alloc(decoded: u64, file: u64) -> u64 {
    decoded.saturating_mul(2).saturating_add(file).saturating_add(MAX_METADATA)
}

thread_local! {
    /// Whether the panic hook stays silent on this thread.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Wraps the panic hook of the program once, so that a panic inside [`catch`] prints nothing.
static HOOK: Once = Once::new();

/// Runs a decoder. A panic of the decoder becomes an error and prints nothing.
pub(crate) fn catch<T>(format: ImageFormat, decode: impl FnOnce() -> ImageResult<T>) -> ImageResult<T> {
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                previous(info);
            }
        }));
    });
    let outer = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(decode));
    QUIET.set(outer);
    result.unwrap_or_else(|panic| {
        let reason = format!("the decoder panicked: {}", message(&*panic));
        Err(ImageError::Decoding(DecodingError::new(format.into(), reason)))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// The input of every decoder. It is one type, because decoders are compiled anew for each type of input.
pub(crate) type Input<'a> = Box<dyn BufReadSeek + 'a>;

pub(crate) trait BufReadSeek: BufRead + Seek {}

impl<T: BufRead + Seek> BufReadSeek for T {}

/// A reader that repeats interrupted reads. Decoders take an interrupted read for a damaged file.
pub(crate) struct Retry<R>(pub R);

impl<R: Read> Read for Retry<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl<R: Seek> Seek for Retry<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.0.seek(position)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::BufReader;

    use super::*;

    /// A reader whose every other read is interrupted by a signal.
    struct Interrupted<R>(R, bool);

    impl<R: Read> Read for Interrupted<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 { Err(io::ErrorKind::Interrupted.into()) } else { self.0.read(buffer) }
        }
    }

    impl<R: Seek> Seek for Interrupted<R> {
        fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
            self.0.seek(position)
        }
    }

    #[test]
    fn an_interrupted_read_is_no_damage() {
        let mut file = Vec::new();
        image::RgbImage::new(9, 7).write_to(&mut io::Cursor::new(&mut file), ImageFormat::Png).unwrap();
        let read = |input| image::ImageReader::with_format(input, ImageFormat::Png).decode();
        let interrupted = || Interrupted(io::Cursor::new(&file), false);
        assert!(read(BufReader::new(Retry(interrupted()))).is_ok());
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        let failed = catch::<()>(ImageFormat::Png, || panic!("index {} out of range", 7));
        assert!(failed.unwrap_err().to_string().contains("index 7 out of range"));
        assert!(!QUIET.get());
    }

    #[test]
    fn files_hold_as_many_pixels_as_compression_allows() {
        assert!(is_plausible(FLOOR, 1) && is_plausible(3 << 30, 10 << 20));
        assert!(!is_plausible(3 << 30, 1 << 20) && is_plausible(u64::MAX, u64::MAX));
    }
}
