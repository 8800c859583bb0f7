//! The compiled kernels: one image per GPU family, compiled by `just kernels` and embedded as an LZMA file. An image is
//! decompressed when a GPU of its family is opened.

use std::io::Read;

use lzma_rust2::LzmaReader;
use reseed_ops::{Error, Result};

static SM_75: &[u8] = include_bytes!("../cubin/sm_75.cubin.lzma");
static SM_80: &[u8] = include_bytes!("../cubin/sm_80.cubin.lzma");
static SM_90A: &[u8] = include_bytes!("../cubin/sm_90a.cubin.lzma");
static SM_100: &[u8] = include_bytes!("../cubin/sm_100.cubin.lzma");
static SM_120: &[u8] = include_bytes!("../cubin/sm_120.cubin.lzma");
/// PTX text with a zero byte at its end; the driver compiles it.
static COMPUTE_80: &[u8] = include_bytes!("../cubin/compute_80.ptx.lzma");

/// The kernels for one GPU.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The architecture they were compiled for, such as `sm_90a`.
    pub name: &'static str,
    /// The image as an LZMA file.
    compressed: &'static [u8],
    /// Whether the kernels for Hopper are present and enabled.
    pub hopper: bool,
    /// Whether the kernels for tensor cores since Ampere are present, and with them bf16 and tf32.
    pub ampere: bool,
    /// Whether convolutions are chosen as on GeForce GPUs, which multiply slowly, and half as fast with sums of f32.
    pub geforce: bool,
}

impl Kernels {
    /// The kernels for a GPU of this name and compute capability.
    pub fn of(gpu: &str, capability: (usize, usize)) -> Result<Kernels> {
        let Some((name, compressed)) = embedded(capability) else {
            let (major, minor) = capability;
            let reason = format!(
                "{gpu} has compute capability {major}.{minor}; 7.5 and newer are supported (RTX 20 series and newer); \
                 use a newer GPU, or use the CPU"
            );
            return Err(Error::NoDevice { reason });
        };
        let forced = Forced::read()?;
        Ok(Kernels {
            name,
            compressed,
            hopper: name == "sm_90a" && forced == Forced::No,
            ampere: name != "sm_75",
            geforce: matches!(capability, (8, 6 | 9) | (12, _)) || forced == Forced::GeForce && name != "sm_75",
        })
    }

    /// The cubin or PTX text. The driver reads it in place, as tables of 64-bit words.
    pub fn image(&self) -> Vec<u64> {
        #[cfg(feature = "emulation")]
        if let Some(image) = emulated() {
            return image;
        }
        decompress(self.compressed).unwrap_or_else(|error| panic!("the embedded image of {}: {error}", self.name))
    }

    /// Tiles that `conv_gemm` holds in shared memory at the same time.
    pub fn gemm_stages(&self) -> usize {
        if self.ampere { 4 } else { 2 }
    }
}

/// The content of an LZMA file, in whole words.
fn decompress(file: &[u8]) -> std::io::Result<Vec<u64>> {
    let mut bytes = Vec::new();
    LzmaReader::new_mem_limit(file, u32::MAX, None)?.read_to_end(&mut bytes)?;
    Ok(words(&bytes))
}

/// The bytes in words, with zeros after the last byte.
fn words(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(bytes);
    words
}

/// The embedded image for a compute capability. A cubin runs on GPUs of its major version from its minor version on. On
/// unknown GPUs the driver compiles the PTX.
fn embedded(capability: (usize, usize)) -> Option<(&'static str, &'static [u8])> {
    match capability {
        (..=6, _) | (7, ..=4) => None,
        (7, _) => Some(("sm_75", SM_75)),
        (8, _) => Some(("sm_80", SM_80)),
        (9, 0) => Some(("sm_90a", SM_90A)),
        (10, _) => Some(("sm_100", SM_100)),
        (12, _) => Some(("sm_120", SM_120)),
        _ => Some(("compute_80", COMPUTE_80)),
    }
}

/// An image of `tools/kernels.py --emulate` in place of the embedded one, in the file that `RESEED_EMULATION` names.
#[cfg(feature = "emulation")]
fn emulated() -> Option<Vec<u64>> {
    let path = std::env::var_os("RESEED_EMULATION")?;
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(words(&bytes))
}

/// Kernels that `RESEED_KERNELS` selects.
#[derive(PartialEq, Eq)]
enum Forced {
    No,
    /// Those that run on every GPU.
    Portable,
    /// The same, chosen as on GeForce GPUs.
    GeForce,
}

impl Forced {
    fn read() -> Result<Forced> {
        match std::env::var("RESEED_KERNELS").as_deref() {
            Err(_) => Ok(Forced::No),
            Ok("portable") => Ok(Forced::Portable),
            Ok("geforce") => Ok(Forced::GeForce),
            Ok(word) => Err(Error::NoDevice {
                reason: format!("RESEED_KERNELS={word} is unknown; set it to `portable` or `geforce`, or unset it"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Source text without comments and with single spaces between words: what the compiler sees.
    fn code(text: &str) -> String {
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
    }

    /// FNV-1a over the name and the code of every source, in the order of their names.
    fn stamp(folder: &Path) -> String {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".cu") || name.ends_with(".cuh"));
        names.sort();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for name in names {
            for byte in name.bytes().chain(code(&fs::read_to_string(folder.join(&name)).unwrap()).into_bytes()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{hash:016x}")
    }

    #[test]
    fn images_match_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let stored = fs::read_to_string(root.join("cubin/STAMP")).unwrap_or_default();
        assert_eq!(stored.trim(), stamp(&root.join("kernels")), "kernels changed: run `just kernels`");
    }

    #[test]
    fn comments_and_line_breaks_do_not_change_the_stamp() {
        assert_eq!(code("// about\nint a =  1;   // one\n\n  int b;\n"), "int a = 1; int b;");
    }

    #[test]
    fn every_gpu_gets_an_image_that_it_runs() {
        for (capability, name) in [
            ((7, 5), "sm_75"),       // RTX 20 series, T4
            ((8, 0), "sm_80"),       // A100
            ((8, 6), "sm_80"),       // RTX 30 series
            ((8, 9), "sm_80"),       // RTX 40 series, L40
            ((9, 0), "sm_90a"),      // H100, H200
            ((10, 0), "sm_100"),     // B200
            ((10, 3), "sm_100"),     // B300
            ((11, 0), "compute_80"), // Thor
            ((12, 0), "sm_120"),     // RTX 50 series
            ((12, 1), "sm_120"),     // GB10
            ((13, 0), "compute_80"), // future
        ] {
            assert_eq!(embedded(capability).map(|(name, _)| name), Some(name), "{capability:?}");
        }
        for capability in [(5, 2), (6, 1), (7, 0), (7, 2)] {
            assert!(embedded(capability).is_none(), "{capability:?}");
        }
    }

    #[test]
    fn images_are_whole_after_decompression() {
        for (capability, major) in [((7, 5), 75), ((8, 0), 80), ((9, 0), 90), ((10, 0), 100), ((12, 0), 120)] {
            let words = Kernels::of("a GPU", capability).unwrap().image();
            let image: &[u8] = bytemuck::cast_slice(&words);
            let half = |at: usize| usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
            assert_eq!(&image[..4], b"\x7fELF", "{capability:?}");
            assert_eq!(half(0x12), 190, "{capability:?}: the machine is CUDA");
            // The table of segments is the end of a cubin.
            let word = |at: usize| words[at / 8] as usize;
            assert_eq!(word(0x20) + half(0x36) * half(0x38), image.len(), "{capability:?}");
            assert!(image[0x30..0x32].contains(&major), "{capability:?}: the flags name the architecture");
        }
        let words = Kernels::of("a GPU", (13, 0)).unwrap().image();
        let text: &[u8] = bytemuck::cast_slice(&words);
        let end = text.iter().position(|&byte| byte == 0).expect("a zero byte ends the text");
        assert!(text.starts_with(b".version") && text[..end].ends_with(b"}\n") && text.len() - end <= 8);
    }

    #[test]
    fn the_error_names_an_unsupported_gpu() {
        let refused = Kernels::of("NVIDIA GeForce GTX 1080", (6, 1)).err().unwrap().to_string();
        assert!(refused.contains("GTX 1080 has compute capability 6.1; 7.5 and newer"), "{refused}");
    }
}
