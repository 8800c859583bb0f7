"""Checkpoints: a folder with the averaged weights in f16 and the moments of Adam in bf16."""
import json

import torch

from model import Sizes


def save(folder, weights, sizes, steps, optimizer=None, names=None):
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({name: value.half().cpu() for name, value in weights.items()}, folder / "weights.pt")
    (folder / "sizes.json").write_text(json.dumps(sizes.asdict() | {"steps": steps}))
    if optimizer is None:
        return
    for moment in ("exp_avg", "exp_avg_sq"):
        kept = {name: optimizer.state[p][moment].bfloat16().cpu() for name, p in names.items() if p in optimizer.state}
        torch.save(kept, folder / f"{moment}.pt")


def load(folder, device):
    """Weights in f32, sizes and the number of steps."""
    sizes = json.loads((folder / "sizes.json").read_text())
    steps = sizes.pop("steps")
    sizes["channels"] = tuple(sizes["channels"])
    weights = torch.load(folder / "weights.pt", map_location=device)
    return {name: value.float() for name, value in weights.items()}, Sizes(**sizes), steps


def load_moments(folder, optimizer, names, steps):
    """Restores the state of Adam, if the checkpoint has it."""
    if not all((folder / f"{moment}.pt").exists() for moment in ("exp_avg", "exp_avg_sq")):
        return
    moments = {m: torch.load(folder / f"{m}.pt") for m in ("exp_avg", "exp_avg_sq")}
    for name, p in names.items():
        if name in moments["exp_avg"]:
            step = torch.tensor(float(steps), device=p.device)
            optimizer.state[p] = {"step": step} | {m: v[name].to(p.device, torch.float32) for m, v in moments.items()}
