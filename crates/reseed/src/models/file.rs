//! A model given by the file of its transformer.

use std::path::{Path, PathBuf};

use reseed_model::{ModelFolder, TextEmbedding};

use super::places::Places;
use super::registry::{File, TEXT, VAE};
use crate::error::{Error, Result};

/// Folders of VAEs beside those of transformers, as ComfyUI has them.
const SIBLINGS: [&str; 2] = ["vae", "SEEDVR2"];

/// The model of a transformer file. Its VAE and its text embedding are given, or beside it, or among the user's models.
/// A text embedding in the transformer's file precedes those that are not beside it.
pub fn folder(dit: &Path, given: [Option<&Path>; 2]) -> Result<ModelFolder> {
    find(dit, given, &Places::of_user())
}

fn find(dit: &Path, [vae, text]: [Option<&Path>; 2], places: &Places) -> Result<ModelFolder> {
    let path = dit.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let [beside, text_beside] = ModelFolder::parts(path);
    let sibling = || SIBLINGS.iter().find_map(|name| ModelFolder::parts(&path.join("..").join(name))[0].clone());
    let missing = |part, file: &'static File| Error::PartMissing {
        model: dit.into(),
        part,
        file: file.name,
        folder: places.own.clone(),
    };
    let vae = vae.map(PathBuf::from).or(beside).or_else(sibling).or_else(|| places.find(&VAE));
    let vae = vae.ok_or_else(|| missing("VAE", &VAE))?;
    let text = text.map(PathBuf::from).or(text_beside);
    let mut model = ModelFolder { path: path.into(), vae, dit: dit.into(), text };
    if model.text.is_none() && !TextEmbedding::is_in(&*model.dit()?) {
        model.text = Some(places.find(&TEXT).ok_or_else(|| missing("text embedding", &TEXT))?);
    }
    Ok(model)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use reseed_model::nano;

    use super::*;

    fn nowhere(folder: &Path) -> Places {
        Places { own: folder.join("own"), hub: folder.join("hub"), comfy: Vec::new() }
    }

    #[test]
    fn the_vae_is_found_beside_the_file_and_in_the_folder_of_vaes() {
        let root = temp_dir::TempDir::new().unwrap();
        let (models, places) = (root.path().join("diffusion_models"), nowhere(root.path()));
        fs::create_dir_all(&models).unwrap();
        fs::create_dir_all(root.path().join("vae")).unwrap();
        let dit = models.join("seedvr2_3b_fp16.safetensors");
        fs::write(&dit, nano::dit_file()).unwrap();

        let error = find(&dit, [None; 2], &places).unwrap_err();
        assert!(matches!(&error, Error::PartMissing { part: "VAE", model, .. } if *model == dit), "{error}");

        let sibling = root.path().join("vae/seedvr2_ema_vae_fp16.safetensors");
        fs::write(&sibling, nano::vae_file()).unwrap();
        let found = find(&dit, [None; 2], &places).unwrap();
        assert_eq!(fs::canonicalize(&found.vae).unwrap(), fs::canonicalize(&sibling).unwrap());
        assert_eq!(found.text, None, "the file includes its text embedding");

        let beside = models.join("vae.safetensors");
        fs::write(&beside, nano::vae_file()).unwrap();
        fs::write(models.join("pos_emb.pt"), "").unwrap();
        let found = find(&dit, [None; 2], &places).unwrap();
        assert_eq!((found.vae, found.text), (beside, Some(models.join("pos_emb.pt"))));
        let given = Path::new("given");
        let found = find(&dit, [Some(given); 2], &places).unwrap();
        assert_eq!((found.vae.as_path(), found.text.as_deref()), (given, Some(given)));
    }
}
