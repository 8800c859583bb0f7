"""Parts without timing: conformance of every op, golden files, and accuracy against the CPU."""
import json
import math
import pathlib

from . import command
from .inputs import decibels, decode, error_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GOLDENS = [ROOT / "crates/reseed-testing/golden" / name for name in ("vae", "dit", "pipeline")]
GEFORCE = {"RESEED_KERNELS": "geforce"}
# Arguments of the check, and its environment.
CONFORMANCE = {"native kernels": ([], {}), "native kernels, reference": (["f16", "reference"], {}),
               "native kernels, int8": (["f16", "int8"], {}),
               "portable kernels": ([], {"RESEED_KERNELS": "portable"}),
               "kernels of GeForce GPUs": (["f16"], GEFORCE),
               "kernels of GeForce GPUs, fast": (["f16", "fast"], GEFORCE)}
NETWORKS = {"autoencoder": "VAE", "vae": "VAE", "transformer": "DiT", "dit": "DiT", "pipeline": "pipeline"}
DTYPES = ("f32", "tf32", "f16", "bf16")
ACCURACY = {"f16": 60.0, "tf32": 66.0}  # dB against f32, range 4
CPU = "f32 against the CPU, relative error"
REPEATED = "f16, two runs"
# Full width: model, layers, dtype.
TRANSFORMERS = [("3b", 3, "f32"), ("3b", 3, "bf16"), ("7b", 2, "f32"), ("7b", 2, "bf16"), ("7b-q4", 2, "f32"),
                ("3b-fp8", 2, "f32")]


def conformance_row(name):
    return f"every op against its reference, {name}"


def golden_row(network, dtype):
    return f"golden {network}, {dtype}, relative error"


def accuracy_row(dtype):
    return f"{dtype} against f32 on the CPU"


def transformer_row(model, layers, dtype):
    return f"DiT {model}, {layers} layers, {dtype} against the CPU, relative error"


def correctness_rows():
    yield from map(conformance_row, CONFORMANCE)
    for dtype in DTYPES:
        yield from (golden_row(network, dtype) for network in ("VAE", "DiT", "pipeline"))


def accuracy_rows():
    yield from (CPU, *map(accuracy_row, ACCURACY), REPEATED)
    yield from (transformer_row(*case) for case in TRANSFORMERS)


def conformance(args, name, table):
    words, environment = CONFORMANCE[name]
    code, out, error = command.run([*args.check, *words], **environment)
    found = command.DISAGREEMENTS.findall(out)
    value = f"{found[0]} disagreements" if found else error
    table.add(conformance_row(name), value, "0", code == 0 and found == ["0"])


def stored(folders):
    """Number of golden files that the VAE and the DiT must run, by the manifest."""
    for folder in folders:
        path = folder.parent / "MANIFEST.json"
        if path.exists():
            names = [name for facts in json.loads(path.read_text()).values() for name in facts["sha256"]]
            return {"VAE": sum(name.startswith("vae/") for name in names),
                    "DiT": sum(name.startswith("dit/") and "_taps" not in name for name in names)}
    return {}


def goldens(args, table):
    """A row has the case that is closest to its bound, or furthest beyond it."""
    folders, cases = args.goldens or GOLDENS, {}
    _, out, error = command.run([*args.check, "goldens", *folders])
    for network, dtype, name, off, allowed in command.GOLDEN.findall(out):
        cases.setdefault((NETWORKS[network], dtype), []).append((name, float(off), float(allowed)))
    if not cases:
        return table.error("golden files", error or out)
    expected = stored(folders)
    for (network, dtype), found in cases.items():
        name, off, allowed = max(found, key=lambda case: case[1] / case[2])
        complete = len(found) >= expected.get(network, 1)
        value = f"{off:.1e} ({name}), max of {len(found)}"
        value += "" if complete else f"; {expected[network]} expected"
        table.add(golden_row(network, dtype), value, f"<= {allowed:.1e}", off <= allowed and complete)


def accuracy(args, folder, table):
    exact, _ = decode(args, folder, "64x48", 9, "--dtype", "f32", device="cpu")
    full, _ = decode(args, folder, "64x48", 9, "--dtype", "f32")
    error, size = error_of(exact, full)
    table.add(CPU, f"{error / size:.1e}", "<= 1e-5", error <= 1e-5 * size)
    for dtype, target in ACCURACY.items():
        values, _ = decode(args, folder, "64x48", 9, "--dtype", dtype)
        value = decibels(error_of(exact, values)[0])
        table.add(accuracy_row(dtype), f"{value:.1f} dB", f">= {target:g} dB", value >= target)
        if dtype == "f16":
            same = values == decode(args, folder, "64x48", 9, "--dtype", dtype)[0]
            table.add(REPEATED, "equal" if same else "different", "equal", same)


def transformer(args, case, table):
    """One step at full width against f32 on the CPU. bf16 may differ as much as bf16 on the CPU does, and a quarter."""
    model, layers, dtype = case
    words = [args.reseed, "bench", "dit", "--model", f"formula:{model}", "--layers", layers, "--latent", "2x10x14",
             "--repeat", 1, "--dtype", dtype, "--accuracy"]
    error = lambda device: command.event([*words, "--device", device], -1)[command.RELATIVE_ERROR]
    target = 2e-5 if dtype == "f32" else 1.25 * error("cpu")
    off = error(args.device)
    table.add(transformer_row(*case), f"{off:.1e}", f"<= {target:.1e}", off <= target < math.inf)
