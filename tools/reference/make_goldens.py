#!/usr/bin/env python3
"""Makes or checks the golden files.

    python3 tools/reference/make_goldens.py --check crates/reseed-testing/golden
    python3 tools/reference/make_goldens.py --out DIR [--only vae,dit,pipeline,nano,formats] [--compare DIR]

--check compares the SHA-256 of every file with MANIFEST.json and needs nothing but Python. --out writes the files and
the manifest and then always exits with code 3, so that it is never taken for a passed check; it needs torch, numpy,
pillow and safetensors, and for `formats` numpy alone. --compare prints the largest difference of each new file from the
file of that name in another folder: another PyTorch or another instruction set may round differently. Takes about two
minutes on two cores.
"""
import argparse
import importlib
import importlib.metadata
import pathlib
import platform
import subprocess
import sys
import tempfile

import manifest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SEED = 1
SETS = {"vae": 2, "dit": 1, "pipeline": 1, "nano": 2}  # threads: PyTorch rounds differently with another number
EXACT = {"formats"}  # sets that are computed without PyTorch
ALL = [*SETS, *EXACT]
REWRITTEN = 3


def check(folder):
    lines = manifest.problems(folder)
    for line in lines:
        print(line)
    count = sum(len(facts["sha256"]) for facts in manifest.read(folder).values())
    print(f"{count} golden files in the manifest, {len(lines)} problems")
    return 1 if lines else 0


def nano(out):
    """The embedded model; the code that trained it is in training/."""
    sys.path.insert(0, str(ROOT / "training"))
    golden = importlib.import_module("golden")
    (out / manifest.NANO).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "tools/nano", "unpack", folder], check=True)
        golden.make(pathlib.Path(folder), out / manifest.NANO)


def facts(name, torch):
    """What a reader needs to make a set of files again. `torch` is None for a set that is made without it."""
    packages = ("torch", "numpy", "safetensors") if torch else ("numpy",)
    found = {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}}
    seeds = {} if name == "nano" else {"seed": SEED}
    machine = {"cpu": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
               "threads": torch.get_num_threads()} if torch else {}
    return {"command": f"python3 tools/reference/make_goldens.py --out crates/reseed-testing/golden --only {name}",
            **seeds, "versions": found, **machine}


def make(out, names):
    made = {}
    for name in names:
        torch = None if name in EXACT else importlib.import_module("torch")
        if torch:
            torch.set_grad_enabled(False)
            torch.set_num_threads(SETS[name])
        if name == "nano":
            nano(out)
        else:
            (out / name).mkdir(parents=True, exist_ok=True)
            importlib.import_module(f"goldens_{name}").make(out / name, SEED)
        made[name] = facts(name, torch)
    manifest.write(out, made)


def difference(path, other):
    """Largest difference of two files' tensors, in words."""
    if not other.exists():
        return "only here"
    if path.read_bytes() == other.read_bytes():
        return "equal"
    if path.suffix != ".safetensors":
        return "different"
    from safetensors.torch import load_file
    a, b = load_file(path), load_file(other)
    if {k: (v.shape, v.dtype) for k, v in a.items()} != {k: (v.shape, v.dtype) for k, v in b.items()}:
        return "different tensors"
    return f"largest difference {max(float((a[k].double() - b[k].double()).abs().max()) for k in a):.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--check", type=pathlib.Path, metavar="DIR")
    action.add_argument("--out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--only", default=",".join(ALL), metavar="SETS", help=f"of {', '.join(ALL)}")
    parser.add_argument("--compare", type=pathlib.Path, metavar="DIR")
    args = parser.parse_args()
    if args.check:
        sys.exit(check(args.check))
    names = args.only.split(",")
    unknown = [name for name in names if name not in ALL]
    if unknown:
        parser.error(f"--only {unknown[0]}: the sets are {', '.join(ALL)}")
    make(args.out, names)
    if args.compare:
        for name, path in manifest.files_of(args.out).items():
            print(f"{name}: {difference(path, args.compare / name)}")
    print(f"goldens were rewritten in {args.out}; review the changes and run --check")
    sys.exit(REWRITTEN)


if __name__ == "__main__":
    main()
