"""One golden file."""
import json
import os

import torch
import weights
from safetensors.torch import save_file


def noise(name, shape, seed):
    """Uniform of unit variance, rounded to BF16."""
    v = weights.uniform(name, torch.Size(shape).numel(), seed) * 3 ** 0.5
    return torch.from_numpy(v).float().bfloat16().reshape(shape)


def write(out, name, case, **tensors):
    """Tensors in a safetensors file, with the case as its metadata."""
    path, last = f"{out}/{name}.safetensors", list(tensors.values())[-1]
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, {"case": json.dumps(case)})
    print(name, tuple(last.shape), f"std {last.float().std():.4f}", os.path.getsize(path) // 1000, "kB", flush=True)
