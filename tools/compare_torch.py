"""Times `reseed bench` against PyTorch on the CPU, in turns, with the same networks and shapes.

    python3 -m venv venv && venv/bin/pip install torch numpy
    cargo build --release --locked
    venv/bin/python tools/compare_torch.py [--dtype f32|bf16] [--rounds 3] [--only conv,dit,vae]

PyTorch runs the networks of tools/reference with formula weights. The machine should be idle. Both sides are warm and
run in turns; the medians count. The convolution runs on one thread. A row passes when Reseed is at least as many times
faster as its target; the exit code is 1 when a row fails. Rates are effective FLOP/s: the arithmetic of the direct
algorithm. The f32 convolution is also compared with the multiply-add rate of the core, which counts the same direct
arithmetic.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

REFERENCE = pathlib.Path(__file__).resolve().parent / "reference"
CASES = [  # what, frames, height, width, targets in f32 and bf16
    ("decode", 5, 256, 256, {"f32": 1.7, "bf16": 2.0}),
    ("encode", 5, 256, 256, {"f32": 1.3, "bf16": 1.5}),
    ("decode", 1, 512, 512, {"f32": 4.5, "bf16": 5.0}),
    ("encode", 1, 512, 512, {"f32": 1.3, "bf16": 1.5}),
]
CONVS = [  # channels, side, targets
    (128, 128, {"f32": None, "bf16": 1.2}),
    (256, 64, {"f32": None, "bf16": None}),
    (512, 32, {"f32": None, "bf16": None}),
]
DIT = {"f32": 1.0, "bf16": 1.0}
REPEAT = 5  # runs of a short row in each round
SHORT = 3  # times as many rounds for rows that take little time
LATENT = (2, 20, 34)
TEXT = 58


def reseed(args, *words):
    command = [args.reseed, "bench", *words, "--device", "cpu", "--dtype", args.dtype, "--json"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    return json.loads(line)


def rate(result):
    return result.get("effective_gflops_per_second") or 1e3 * result["tflops_per_second"]


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class Table:
    def __init__(self):
        self.failed = False
        print("| case | PyTorch s | Reseed s | times faster | target | | Reseed effective GFLOP/s |")
        print("|---|---|---|---|---|---|---|")

    def verdict(self, value, target):
        self.failed |= target is not None and value < target
        return "" if target is None else "pass" if value >= target else "FAIL"

    def row(self, args, name, theirs, ours, target, repeat=1):
        """`theirs` runs once per call, `ours` returns its result; returns all results. Repeated cases are short: they
        warm up in every round and have more rounds."""
        theirs()
        times, results = [], []
        for _ in range(args.rounds * (1 if repeat == 1 else SHORT)):
            runs = [seconds(theirs) for _ in range(repeat if repeat == 1 else repeat + 1)]
            times.append(statistics.median(runs[-repeat:]))
            results.append(ours())
        rates = statistics.median(rate(result) for result in results)
        theirs, ours = statistics.median(times), statistics.median(result["median"] for result in results)
        shown, verdict = "" if target is None else f">= {target}", self.verdict(theirs / ours, target)
        cells = [name, f"{theirs:.3f}", f"{ours:.3f}", f"{theirs / ours:.2f}", shown, verdict, f"{rates:.0f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
        return results


def vae_rows(args, table, torch, dtype):
    import vae
    import weights
    w = {name: tensor.to(dtype) for name, tensor in weights.vae_weights(1).items()}
    config = vae.Config()
    for what, frames, height, width, targets in CASES:
        height, width = height * args.percent // 100, width * args.percent // 100
        shape = (frames, 3, height, width) if what == "encode" else ((frames - 1) // 4 + 1, 16, height // 8, width // 8)
        x = torch.randn(shape, dtype=dtype)
        name = f"{what}, {frames} frames {width}x{height}" if frames > 1 else f"{what}, one image {width}x{height}"
        words = ("vae", what, "--size", f"{width}x{height}", "--frames", str(frames), "--repeat", "1")
        ours = lambda: reseed(args, *words)
        table.row(args, name, lambda: getattr(vae, what)(w, x, config), ours, targets[args.dtype])


def dit_rows(args, table, torch, dtype):
    import dit
    config = dit.Config("3b", width=2560, heads=20, layers=2, mm_layers=1)
    w = {name: tensor.to(dtype) for name, tensor in dit.dit_weights(1, config).items()}
    frames, height, width = LATENT
    x, text = torch.randn(frames, 33, height, width, dtype=dtype), torch.randn(TEXT, 5120, dtype=dtype)
    latent = f"{frames}x{height}x{width}"
    words = ("dit", "--model", "formula:3b", "--layers", "2", "--latent", latent, "--repeat", str(REPEAT))
    name = f"transformer 3B, two layers, latent {latent}"
    theirs, ours = lambda: dit.forward(w, x, text, config), lambda: reseed(args, *words)
    table.row(args, name, theirs, ours, DIT[args.dtype], REPEAT)


def conv_rows(args, table, torch, dtype):
    """The first two of five frames are the temporal cache of Reseed."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for channels, side, targets in CONVS:
        conv = torch.nn.Conv3d(channels, channels, 3, padding=(0, 1, 1)).to(dtype)
        conv = conv.to(memory_format=torch.channels_last_3d)
        x = torch.randn(1, channels, 5, side, side, dtype=dtype).to(memory_format=torch.channels_last_3d)
        flops = 2 * 27 * channels * channels * 3 * side * side

        def ours():
            words = ("conv", "--channels", str(channels), "--side", str(side), "--repeat", str(REPEAT))
            result = reseed(args, *words)
            return {**result, "median": flops / 1e9 / result["effective_gflops_per_second"]}
        name = f"convolution {channels} > {channels} 3x3x3 at {side}x{side}, one thread"
        results = table.row(args, name, lambda: conv(x), ours, targets[args.dtype], REPEAT)
        if (args.dtype, channels) == ("f32", 128):
            share = statistics.median(result["share_of_peak"] for result in results)
            peak = statistics.median(result["peak_gflops_per_second"] for result in results)
            name = f"executed products of the same as a share of the core's peak, {peak:.0f} GFLOP/s"
            print(f"| {name} | | | {share:.2f} | | | |", flush=True)
    torch.set_num_threads(threads)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reseed", default="target/release/reseed", metavar="FILE")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="conv,dit,vae", help="which rows, of conv, dit and vae")
    parser.add_argument("--percent", type=int, default=100, help="scale of the sides of VAE frames, for slow machines")
    args = parser.parse_args()
    sys.path.insert(0, str(REFERENCE))
    import torch
    torch.set_grad_enabled(False)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    threads = torch.get_num_threads()
    rounds = f"{args.rounds} rounds, medians"
    print(f"PyTorch {torch.__version__}, {threads} threads, {args.dtype}, formula weights; {rounds}\n")
    table = Table()
    for rows in args.only.split(","):
        {"conv": conv_rows, "dit": dit_rows, "vae": vae_rows}[rows](args, table, torch, dtype)
    sys.exit(table.failed)


if __name__ == "__main__":
    main()
