"""Times `reseed bench vae` against PyTorch on the CPU, in turns, on the same model and shapes.

    python -m venv venv && venv/bin/pip install torch numpy
    cargo build --release --locked
    venv/bin/python tools/compare_torch.py --reference DIR [--dtype f32|bf16] [--rounds 3]

DIR holds a PyTorch implementation of the VAE: `vae.py` with `Config`, `encode(w, x, cfg)` and `decode(w, z, cfg)`, and
`weights.py` with `vae_weights(seed)`. The machine should be quiet; both sides run warm, in turns, and medians count.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

CASES = [  # what, frames, height, width
    ("decode", 5, 128, 128),
    ("encode", 5, 128, 128),
    ("decode", 1, 512, 512),
    ("encode", 1, 512, 512),
]


def reseed(binary, what, frames, height, width, dtype):
    command = [binary, "bench", "vae", what, "--size", f"{width}x{height}", "--frames", str(frames),
               "--dtype", dtype, "--repeat", "1", "--json"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    return json.loads(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", required=True, metavar="DIR")
    parser.add_argument("--reseed", default="target/release/reseed", metavar="FILE")
    parser.add_argument("--dtype", default="f32", choices=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    sys.path.insert(0, args.reference)
    import torch
    import vae
    import weights
    torch.set_grad_enabled(False)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[args.dtype]
    w = {name: tensor.to(dtype) for name, tensor in weights.vae_weights(1).items()}
    config = vae.Config()
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {args.dtype}; medians of {args.rounds} rounds\n")
    print("| case | PyTorch s | Reseed s | times faster | Reseed GFLOP/s |")
    print("|---|---|---|---|---|")
    for what, frames, height, width in CASES:
        shape = (frames, 3, height, width) if what == "encode" else ((frames - 1) // 4 + 1, 16, height // 8, width // 8)
        x = torch.randn(shape, dtype=dtype)
        run = getattr(vae, what)
        run(w, x, config)
        torch_times, reseed_times, rates = [], [], []
        for _ in range(args.rounds):
            start = time.perf_counter()
            run(w, x, config)
            torch_times.append(time.perf_counter() - start)
            result = reseed(args.reseed, what, frames, height, width, args.dtype)
            reseed_times.append(result["median"])
            rates.append(result["gflops_per_second"])
        theirs, ours = statistics.median(torch_times), statistics.median(reseed_times)
        name = f"{what}, {frames} frames {width}x{height}" if frames > 1 else f"{what}, one image {width}x{height}"
        print(f"| {name} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.2f} | {statistics.median(rates):.0f} |", flush=True)


if __name__ == "__main__":
    main()
