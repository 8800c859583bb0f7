//! The compiled kernels: one image per GPU family, compiled by `just kernels` and embedded.

use reseed_ops::{Error, Result};

/// The driver reads images in place, as tables of 64-bit words.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static SM_75: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_75.cubin"));
static SM_80: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_80.cubin"));
static SM_90A: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_90a.cubin"));
static SM_100: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_100.cubin"));
static SM_120: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_120.cubin"));
/// PTX text with a zero byte at its end; the driver compiles it.
static COMPUTE_80: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/compute_80.ptx"));

/// The kernels for one GPU.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// The architecture they were compiled for, such as `sm_90a`.
    pub name: &'static str,
    /// The cubin or PTX image.
    pub image: &'static [u8],
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
        let Some((name, image)) = image(capability) else {
            let (major, minor) = capability;
            let reason = format!(
                "{gpu} has compute capability {major}.{minor}; 7.5 and newer are supported (RTX 20 series and newer); \
                 use a newer GPU, or use the CPU"
            );
            return Err(Error::NoDevice { reason });
        };
        if image.0.is_empty() {
            let reason = format!("this build has no kernels for {gpu} ({name}); run `just kernels` and build again");
            return Err(Error::NoDevice { reason });
        }
        let (forced, image) = (Forced::read()?, &image.0);
        #[cfg(feature = "emulation")]
        let image = emulated().unwrap_or(image);
        Ok(Kernels {
            name,
            image,
            hopper: name == "sm_90a" && forced == Forced::No,
            ampere: name != "sm_75",
            geforce: matches!(capability, (8, 6 | 9) | (12, _)) || forced == Forced::GeForce && name != "sm_75",
        })
    }

    /// Tiles that `conv_gemm` holds in shared memory at the same time.
    pub fn gemm_stages(&self) -> usize {
        if self.ampere { 4 } else { 2 }
    }
}

/// The image for a compute capability. A cubin runs on GPUs of its major version from its minor version on. On unknown
/// GPUs the driver compiles the PTX.
fn image(capability: (usize, usize)) -> Option<(&'static str, &'static Aligned<[u8]>)> {
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
fn emulated() -> Option<&'static [u8]> {
    let path = std::env::var_os("RESEED_EMULATION")?;
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    bytemuck::cast_slice_mut(&mut words)[..bytes.len()].copy_from_slice(&bytes);
    Some(&bytemuck::cast_slice(words.leak())[..bytes.len()])
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
            assert_eq!(image(capability).map(|(name, _)| name), Some(name), "{capability:?}");
        }
        for capability in [(5, 2), (6, 1), (7, 0), (7, 2)] {
            assert!(image(capability).is_none(), "{capability:?}");
        }
    }

    #[test]
    fn the_error_names_an_unsupported_gpu() {
        let refused = Kernels::of("NVIDIA GeForce GTX 1080", (6, 1)).err().unwrap().to_string();
        assert!(refused.contains("GTX 1080 has compute capability 6.1; 7.5 and newer"), "{refused}");
    }
}
