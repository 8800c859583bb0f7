"""Transformers in the quantised formats of ComfyUI, written with ComfyUI's own library."""
import json

import torch
from comfy_kitchen.tensor import QuantizedTensor
from safetensors import safe_open
from safetensors.torch import save_file

# The rows of a rotation. ComfyUI's converter of SeedVR2 rotates in groups of so many columns.
GROUP = 256
# Format in a description: layout of the library, options of its quantiser, further fields of the description.
FORMATS = {
    "float8_e4m3fn": ("TensorCoreFP8Layout", {}, {}),
    "int8_tensorwise": (
        "TensorWiseINT8Layout",
        {"per_channel": True, "convrot": True, "convrot_groupsize": GROUP},
        {"convrot": True, "convrot_groupsize": GROUP},
    ),
    "mxfp8": ("TensorCoreMXFP8Layout", {}, {}),
    "nvfp4": ("TensorCoreNVFP4Layout", {}, {}),
}
# What the converter leaves as it is: the layers at both ends of the network.
KEPT = ("emb_in.", "txt_in.", "vid_in.", "vid_out.")


def write(source, target, name):
    """Writes a transformer in a format to `target`.safetensors, and the values that the library reads back from it to
    `target`-values.safetensors. Returns both paths and the number of quantised matrices."""
    layout, options, fields = FORMATS[name]
    description = torch.tensor(list(json.dumps({"format": name, **fields}).encode()), dtype=torch.uint8)
    stored, values, count = {}, {}, 0
    with safe_open(source, framework="pt") as file:
        metadata = file.metadata()
        for key in file.keys():
            tensor = file.get_tensor(key).float()
            stored[key] = values[key] = tensor
            if not key.endswith(".weight") or tensor.ndim != 2 or key.startswith(KEPT) or tensor.shape[1] % GROUP:
                continue
            matrix = QuantizedTensor.from_float(tensor.contiguous(), layout, **options)
            parts = {each: part.contiguous() for each, part in matrix.state_dict(key).items()}
            if name == "mxfp8":
                parts[f"{key}_scale"] = parts[f"{key}_scale"].view(torch.uint8)
            stored.update(parts)
            stored[key.removesuffix("weight") + "comfy_quant"] = description.clone()
            values[key] = matrix.dequantize().float().contiguous()
            count += 1
    paths = [target.with_name(f"{target.name}{end}.safetensors") for end in ("", "-values")]
    for path, tensors in zip(paths, (stored, values)):
        save_file(tensors, path, metadata)
    return *paths, count
