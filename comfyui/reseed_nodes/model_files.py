"""Finds model files in the folders of ComfyUI. The engine knows the hub cache and the folder of its user."""
import os
from dataclasses import dataclass
from pathlib import Path

import folder_paths
import reseed

FOLDER = "seedvr2"
EXTENSIONS = {".safetensors", ".gguf"}
BUILT_IN = "nano"
AUTO = "auto"
TEXT_FILES = ("pos_emb.safetensors", "pos_emb.pt")


@dataclass(frozen=True)
class ModelFiles:
    """What a session is opened with: a name of the engine, or a DiT file with its companions."""

    model: str
    vae: str | None = None
    text: str | None = None


def register_folders():
    """Makes `models/SEEDVR2` known to ComfyUI, and this installation of ComfyUI known to the engine."""
    folder_paths.add_model_folder_path(FOLDER, os.path.join(folder_paths.models_dir, "SEEDVR2"))
    folders, extensions = folder_paths.folder_names_and_paths[FOLDER]
    folder_paths.folder_names_and_paths[FOLDER] = (folders, set(extensions) | EXTENSIONS)
    os.environ.setdefault("COMFYUI_PATH", folder_paths.base_path)


def public_models():
    """The models of the engine's registry by the name of their DiT file."""
    return {model.file: model.name for model in reseed.models.list() if model.file}


def built_in_models():
    """The models that are part of the engine, the default first."""
    return [model.name for model in reseed.models.list() if model.embedded]


def model_choices():
    """Names of the registry, then DiT files of the folders of ComfyUI that the registry does not name."""
    public = public_models()
    files = [name for name in files_of(FOLDER) if is_dit(name)]
    files += [name for name in files_of("diffusion_models") if "seedvr2" in name.lower()]
    extra = {name for name in files if os.path.basename(name) not in public}
    return [*built_in_models(), *public.values(), *sorted(extra)]


def vae_choices():
    """`auto`, then VAE files of the folders of ComfyUI."""
    files = [name for name in files_of(FOLDER) if not is_dit(name)]
    files += [name for name in files_of("vae") if any(word in name.lower() for word in ("seedvr2", "ema_vae"))]
    return [AUTO, *sorted(set(files))]


def files_of(folder):
    """The files of a model folder of ComfyUI, if it knows the folder."""
    try:
        return folder_paths.get_filename_list(folder)
    except KeyError:
        return []


def is_dit(name):
    """Whether the file is no VAE and no text embedding, judged by its name."""
    name = os.path.basename(name).lower()
    return "vae" not in name and not name.startswith(("pos_emb", "neg_emb"))


def find(name, folders):
    """The path of a file in these folders of ComfyUI, whichever has it."""
    paths = (folder_paths.get_full_path(folder, name) for folder in folders if folder in known_folders())
    return next((path for path in paths if path), None)


def known_folders():
    """The kinds of model folders that ComfyUI has."""
    return folder_paths.folder_names_and_paths


def resolve(model, vae=AUTO):
    """The files of a choice of the widgets. A model that is nowhere on this machine stays a name."""
    public = public_models()
    name = public.get(os.path.basename(model), model)
    if name in built_in_models() or name.startswith("formula:"):
        return ModelFiles(name)
    if vae == AUTO and any(each.name == name and each.path for each in reseed.models.list()):
        return ModelFiles(name)
    file = next((file for file, short in public.items() if short == name), model)
    path = file if os.path.isfile(file) else find(file, (FOLDER, "diffusion_models"))
    if path is None and name not in public.values():
        raise ValueError(
            f"model file `{model}` is not in models/SEEDVR2 or models/diffusion_models; copy it there, "
            f"or choose one of: {', '.join(model_choices())}"
        )
    if path is None:
        return ModelFiles(name)
    return ModelFiles(path, find_vae(vae), find_text(Path(path).parent))


def find_vae(choice):
    """The path of the VAE, or none where the engine shall find it."""
    folders = (FOLDER, "vae")
    if choice == AUTO:
        return find("ema_vae_fp16.safetensors", folders)
    path = choice if os.path.isfile(choice) else find(choice, folders)
    if path is None:
        raise ValueError(f"VAE file `{choice}` is not in models/SEEDVR2 or models/vae; copy it there, or choose `auto`")
    return path


def find_text(beside):
    """The path of the text embedding, or none where the engine shall find it."""
    folders = [beside, *map(Path, known_folders()[FOLDER][0])]
    paths = (Path(folder) / name for folder in folders for name in TEXT_FILES)
    return next((str(path) for path in paths if path.is_file()), None)


def is_missing(files):
    """Whether files have to be downloaded before a session can open."""
    if files.model not in public_models().values():
        return False
    try:
        reseed.models.path(files.model)
    except reseed.ReseedError:
        return True
    return False
