//! The compiled kernels: one image for each family of cards, made by `just kernels` and embedded.

use reseed_ops::{Error, Result};

/// Images are handed to the driver where they lie; it reads them as tables of 64-bit words.
#[repr(C, align(64))]
struct Aligned<T: ?Sized>(T);

static SM_80: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_80.cubin"));
static SM_90A: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_90a.cubin"));
static SM_100: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_100.cubin"));
static SM_120: &Aligned<[u8]> = &Aligned(*include_bytes!("../cubin/sm_120.cubin"));

/// What a card runs.
#[derive(Clone, Copy)]
pub struct Kernels {
    /// What it was compiled for, such as `sm_90a`.
    pub name: &'static str,
    /// Every kernel, compiled for the card.
    pub image: &'static [u8],
    /// Whether the image holds the convolutions for Hopper's tensor cores, and whether they may be used.
    pub halo: bool,
}

impl Kernels {
    /// The kernels for a card of this compute capability.
    pub fn of(card: &str, capability: (usize, usize)) -> Result<Kernels> {
        let (name, image, hopper) = match capability {
            (8, _) => ("sm_80", SM_80, false),
            (9, 0) => ("sm_90a", SM_90A, true),
            (10, _) => ("sm_100", SM_100, false),
            (12, _) => ("sm_120", SM_120, false),
            (major, minor) => {
                let reason = format!(
                    "{card} has compute capability {major}.{minor}; 8.x, 9.0, 10.x and 12.x are supported \
                     (RTX 30 series and newer); use --device cpu"
                );
                return Err(Error::NoDevice { reason });
            }
        };
        if image.0.is_empty() {
            let reason = format!("this build holds no kernels for {card} ({name}); run `just kernels` and build again");
            return Err(Error::NoDevice { reason });
        }
        Ok(Kernels { name, image: &image.0, halo: hopper && !portable()? })
    }
}

/// Whether `RESEED_KERNELS` asks for the kernels that run on every card.
fn portable() -> Result<bool> {
    match std::env::var("RESEED_KERNELS") {
        Err(_) => Ok(false),
        Ok(word) if word == "portable" => Ok(true),
        Ok(word) => Err(Error::NoDevice { reason: format!("RESEED_KERNELS={word}: the only choice is `portable`") }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// FNV-1a over the name and the bytes of every source, in the order of their names.
    fn stamp(folder: &Path) -> String {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".cu") || name.ends_with(".cuh"));
        names.sort();
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for name in names {
            for byte in name.bytes().chain(fs::read(folder.join(&name)).unwrap()) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        format!("{hash:016x}")
    }

    #[test]
    fn images_were_compiled_from_the_sources_that_are_here() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let made_from = fs::read_to_string(root.join("cubin/STAMP")).unwrap_or_default();
        assert_eq!(made_from.trim(), stamp(&root.join("kernels")), "kernels changed: run `just kernels`");
    }

    #[test]
    fn a_card_without_kernels_is_named() {
        let refused = Kernels::of("NVIDIA GeForce RTX 2080", (7, 5)).err().unwrap().to_string();
        assert!(refused.contains("RTX 2080 has compute capability 7.5; 8.x, 9.0"), "{refused}");
    }
}
