"""Checkpoints: a folder with the averaged weights, matrices in f16, and the second moments of Adam in eight bits."""
import json

import torch
from safetensors.torch import load_file

from model import Sizes

FILES = ("vae.safetensors", "dit.safetensors")
TIME = "emb_in."                         # the time embedding of an exported model, which has one step: zeros
LARGEST, SMALLEST = 448.0, 2.0 ** -8     # of float8_e4m3fn, with a bit of precision left


def save(folder, weights, sizes, steps, optimizer=None, names=None):
    folder.mkdir(parents=True, exist_ok=True)
    # Vectors in f32, as in the exported model. With all in f16, a reloaded model was 0.08 dB worse at 4x.
    matrix = lambda name, value: value.dim() > 1 and not name.startswith("low_band.")
    stored = {name: value.half() if matrix(name, value) else value.float() for name, value in weights.items()}
    torch.save({name: value.cpu() for name, value in stored.items()}, folder / "weights.pt")
    (folder / "sizes.json").write_text(json.dumps(sizes.asdict() | {"steps": steps}))
    if optimizer is None:
        return
    roots = {name: optimizer.state[p]["exp_avg_sq"].sqrt() for name, p in names.items() if p in optimizer.state}
    torch.save({name: packed(root) for name, root in roots.items()}, folder / "moments.pt")


def packed(root):
    """Eight bits and a scale. Small values are raised: a zero would make the next step too large."""
    scale = (root.max() / LARGEST).clamp(min=1e-30)
    return (root / scale).clamp(min=SMALLEST).to(torch.float8_e4m3fn).cpu(), scale.item()


def load(folder, device):
    """Weights in f32, sizes and the number of steps, of a checkpoint or of an exported model."""
    if (folder / FILES[0]).exists():
        stored = {name: value for file in FILES for name, value in load_file(folder / file).items()}
        weights = {name: value.float().to(device) for name, value in stored.items() if not name.startswith(TIME)}
        return weights, Sizes.of(weights), 0
    sizes = json.loads((folder / "sizes.json").read_text())
    steps = sizes.pop("steps")
    sizes["channels"] = tuple(sizes["channels"])
    weights = torch.load(folder / "weights.pt", map_location=device)
    return {name: value.float() for name, value in weights.items()}, Sizes(**sizes), steps


def load_moments(folder, optimizer, names, steps):
    """Restores the second moments of Adam, if the checkpoint has them. The first ones are known again in ten steps."""
    if not (folder / "moments.pt").exists():
        return
    moments = torch.load(folder / "moments.pt")
    for name, p in names.items():
        if name in moments:
            value, scale = moments[name]
            second = (value.to(p.device).float() * scale).square()
            step = torch.tensor(float(steps), device=p.device)
            optimizer.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": second}
