//! The public model files: repository, length and hash of each.

/// A repository on the hub, at one commit.
#[derive(Debug, PartialEq, Eq)]
pub struct Repo {
    /// Owner and name.
    pub name: &'static str,
    /// The commit.
    pub revision: &'static str,
    /// The folder of its files; empty for the root.
    pub folder: &'static str,
}

/// One file of a repository.
#[derive(Debug, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its repository.
    pub repo: &'static Repo,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256 in hexadecimal digits.
    pub sha256: &'static str,
}

/// A public model: a transformer with a short name. All models share one VAE and one text embedding.
#[derive(Debug, PartialEq, Eq)]
pub struct Model {
    /// Its short name, such as `3b`.
    pub name: &'static str,
    /// Its size and number format.
    pub about: &'static str,
    /// The transformer.
    pub dit: File,
}

const NUMZ: Repo =
    Repo { name: "numz/SeedVR2_comfyUI", revision: "09ced71023636e9bc8cdf9cdecfb2625d1e691e8", folder: "" };
const AINVFX: Repo =
    Repo { name: "AInVFX/SeedVR2_comfyUI", revision: "ac66d6d98fa49975d893b58c55bff7677191c862", folder: "" };
const BYTEDANCE: Repo =
    Repo { name: "ByteDance-Seed/SeedVR2-3B", revision: "37255ff8cccfb01071b87f635a5948ca8d53117c", folder: "" };
const COMFY: Repo = Repo {
    name: "Comfy-Org/SeedVR2",
    revision: "10f035adc869a5b3ffc466360b869641511c0610",
    folder: "diffusion_models",
};

/// The VAE.
pub const VAE: File = File {
    name: "ema_vae_fp16.safetensors",
    repo: &NUMZ,
    bytes: 501_324_814,
    sha256: "20678548f420d98d26f11442d3528f8b8c94e57ee046ef93dbb7633da8612ca1",
};

/// The text embedding.
pub const TEXT: File = File {
    name: "pos_emb.pt",
    repo: &BYTEDANCE,
    bytes: 595_100,
    sha256: "fa07a14844314772266b66c3b95deb0027696d8fe7065721263db5176f45d799",
};

/// The transformers, best first.
pub const MODELS: &[Model] = &[
    Model {
        name: "3b",
        about: "3B, 16 bits",
        dit: File {
            name: "seedvr2_ema_3b_fp16.safetensors",
            repo: &NUMZ,
            bytes: 6_783_018_808,
            sha256: "2fd0e03a3dad24e07086750360727ca437de4ecd456f769856e960ae93e2b304",
        },
    },
    Model {
        name: "3b-fp8",
        about: "3B, 8 bits",
        dit: File {
            name: "seedvr2_ema_3b_fp8_e4m3fn.safetensors",
            repo: &NUMZ,
            bytes: 3_391_544_696,
            sha256: "3bf1e43ebedd570e7e7a0b1b60d6a02e105978f505c8128a241cde99a8240cff",
        },
    },
    Model {
        name: "3b-q8",
        about: "3B, 8 bits in blocks",
        dit: File {
            name: "seedvr2_ema_3b-Q8_0.gguf",
            repo: &AINVFX,
            bytes: 3_660_613_984,
            sha256: "be0d60083a2051a265eb4b77f28edf494e6db67ffc250216f32b72292e5cbd96",
        },
    },
    Model {
        name: "3b-int8",
        about: "3B, 8 bits, rotated (ConvRot)",
        dit: File {
            name: "seedvr2_3b_int8_convrot.safetensors",
            repo: &COMFY,
            bytes: 3_458_259_704,
            sha256: "c3dec8bcc5916843a8a858572970597462e1f2dc598d6dfd818f6cd40f53a157",
        },
    },
    Model {
        name: "3b-q4",
        about: "3B, 4 bits in blocks",
        dit: File {
            name: "seedvr2_ema_3b-Q4_K_M.gguf",
            repo: &AINVFX,
            bytes: 1_995_344_224,
            sha256: "e665e3909de1a8c88a69c609bca9d43ff5a134647face2ce4497640cc3597f0e",
        },
    },
    Model {
        name: "7b",
        about: "7B, 16 bits",
        dit: File {
            name: "seedvr2_ema_7b_fp16.safetensors",
            repo: &NUMZ,
            bytes: 16_479_334_424,
            sha256: "7b8241aa957606ab6cfb66edabc96d43234f9819c5392b44d2492d9f0b0bbe4a",
        },
    },
    Model {
        name: "7b-fp8",
        about: "7B, 8 bits, last layer 16",
        dit: File {
            name: "seedvr2_ema_7b_fp8_e4m3fn_mixed_block35_fp16.safetensors",
            repo: &AINVFX,
            bytes: 8_466_296_338,
            sha256: "3d68b5ec0b295ae28092e355c8cad870edd00b817b26587d0cb8f9dd2df19bb2",
        },
    },
    Model {
        name: "7b-int8",
        about: "7B, 8 bits, rotated (ConvRot)",
        dit: File {
            name: "seedvr2_7b_int8_convrot.safetensors",
            repo: &COMFY,
            bytes: 8_334_897_976,
            sha256: "5aa0d25fc9d35e449b659d0c9a5dcb22e2a4fa04032101b95a39da42b32c1be6",
        },
    },
    Model {
        name: "7b-q4",
        about: "7B, 4 bits in blocks",
        dit: File {
            name: "seedvr2_ema_7b-Q4_K_M.gguf",
            repo: &AINVFX,
            bytes: 4_758_306_592,
            sha256: "db9cb2ad90ebd40d2e8c29da2b3fc6fd03ba87cd58cbadceccca13ad27162789",
        },
    },
    Model {
        name: "7b-nvfp4",
        about: "7B, 4 bits in blocks (NVFP4)",
        dit: File {
            name: "seedvr2_7b_nvfp4.safetensors",
            repo: &COMFY,
            bytes: 4_759_694_792,
            sha256: "cc4af1a7bd5377066496f393555478323e806fa21163bdbe3409451aface9b93",
        },
    },
    Model {
        name: "7b-sharp",
        about: "7B trained for more detail, 16 bits",
        dit: File {
            name: "seedvr2_ema_7b_sharp_fp16.safetensors",
            repo: &NUMZ,
            bytes: 16_479_334_424,
            sha256: "20a93e01ff24beaeebc5de4e4e5be924359606c356c9c51509fba245bd2d77dd",
        },
    },
    Model {
        name: "7b-sharp-fp8",
        about: "the same, 8 bits, last layer 16",
        dit: File {
            name: "seedvr2_ema_7b_sharp_fp8_e4m3fn_mixed_block35_fp16.safetensors",
            repo: &AINVFX,
            bytes: 8_466_296_338,
            sha256: "0d2c5b8be0fda94351149c5115da26aef4f4932a7a2a928c6f184dda9186e0be",
        },
    },
    Model {
        name: "7b-sharp-int8",
        about: "the same, 8 bits, rotated (ConvRot)",
        dit: File {
            name: "seedvr2_7b_sharp_int8_convrot.safetensors",
            repo: &COMFY,
            bytes: 8_334_897_976,
            sha256: "db48be2f1cc7e36b01a2aa529810f5d9c6a971edd29be225cf1b0eb18d51c366",
        },
    },
    Model {
        name: "7b-sharp-q4",
        about: "the same, 4 bits in blocks",
        dit: File {
            name: "seedvr2_ema_7b_sharp-Q4_K_M.gguf",
            repo: &AINVFX,
            bytes: 4_758_306_592,
            sha256: "7aed800ac4eb8e0d18569a954c0ff35f5a1caa3ed5d920e66cc31405f75b6e69",
        },
    },
    Model {
        name: "7b-sharp-nvfp4",
        about: "the same, 4 bits in blocks (NVFP4)",
        dit: File {
            name: "seedvr2_7b_sharp_nvfp4.safetensors",
            repo: &COMFY,
            bytes: 4_759_694_792,
            sha256: "80d57af7722f5a5bd4c01d2ab2688f2bf05e552e59d3d3287257de709db10397",
        },
    },
];

impl File {
    /// Its path in its repository.
    pub fn path(&self) -> String {
        match self.repo.folder {
            "" => self.name.into(),
            folder => format!("{folder}/{}", self.name),
        }
    }
}

impl Model {
    /// The model with this short name, or with this file name, with or without extension.
    pub fn named(name: &str) -> Option<&'static Model> {
        let is_file = |file: &File| {
            let stem = file.name.rsplit_once('.').map_or(file.name, |(stem, _)| stem);
            name.eq_ignore_ascii_case(file.name) || name.eq_ignore_ascii_case(stem)
        };
        MODELS.iter().find(|model| name.eq_ignore_ascii_case(model.name) || is_file(&model.dit))
    }

    /// The transformer, the VAE and the text embedding.
    pub fn files(&'static self) -> [&'static File; 3] {
        [&self.dit, &VAE, &TEXT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_found_by_either_name() {
        for model in MODELS {
            let stem = model.dit.name.rsplit_once('.').unwrap().0;
            for name in [model.name, model.dit.name, stem, &model.name.to_uppercase()] {
                assert_eq!(Model::named(name).map(|m| m.name), Some(model.name), "{name}");
            }
        }
        assert!(["", "5b", "3", "pos_emb.pt", "seedvr2_ema_3b"].iter().all(|name| Model::named(name).is_none()));
    }

    #[test]
    fn hashes_and_revisions_have_their_length() {
        for file in MODELS.iter().map(|m| &m.dit).chain([&VAE, &TEXT]) {
            assert!(file.sha256.len() == 64 && file.repo.revision.len() == 40, "{}", file.name);
            assert!(file.sha256.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)), "{}", file.name);
        }
    }
}
