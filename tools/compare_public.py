"""Times the public ComfyUI implementation and Reseed on one GPU, in turns, and prints a Markdown table.

    git clone https://github.com/numz/ComfyUI-SeedVR2_VideoUpscaler public
    pip install torch diffusers einops omegaconf rotary_embedding_torch psutil
    python tools/compare_public.py --public public --reseed target/release/reseed [--rounds 3]

The public networks have random weights, those of Reseed formula weights; times do not depend on them. Public: the VAE
in f16 with slices of four frames and the memory limits of its configuration (default) or without (fastest), the DiT in
bf16 with PyTorch's attention, tensors on the GPU. Reseed: its benchmarks, with copies from and to the host.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch

LATENT = (5, 90, 160)
TEXT = 58
SIZES = ((17, 1280, 720), (1, 1920, 1080))
DIT = dict(vid_in_channels=33, vid_out_channels=16, vid_dim=2560, vid_out_norm="fusedrms", txt_in_dim=5120,
           txt_in_norm="fusedln", txt_dim=2560, emb_dim=6 * 2560, heads=20, head_dim=128, expand_ratio=4,
           norm="fusedrms", norm_eps=1e-5, ada="single", qk_bias=False, qk_norm="fusedrms", patch_size=[1, 2, 2],
           num_layers=32, mm_layers=10, mlp_type="swiglu", msa_type=None, block_type=32 * ["mmdit_sr"],
           window=32 * [(4, 3, 3)], window_method=16 * ["720pwin_by_size_bysize", "720pswin_by_size_bysize"],
           rope_type="mmrope3d", rope_dim=128)
LIMITS = (0.5, None)                     # GiB of one convolution or norm: default, fastest


class Public:
    """The networks of the public implementation, one at a time in GPU memory. Its messages go to stderr."""

    def __init__(self, folder):
        sys.path.insert(0, str(folder))
        with contextlib.redirect_stdout(sys.stderr):
            from omegaconf import OmegaConf
            from src.models.dit_3b import nadit
            from src.models.video_vae_v3.modules import attn_video_vae
        sizes = OmegaConf.load(folder / "src/models/video_vae_v3/s8_c16_t4_inflation_sd3.yaml")
        with torch.device("cuda"):
            self.vae = attn_video_vae.VideoAutoencoderKLWrapper(**sizes, freeze_encoder=False).half().eval()
        self.vae.set_causal_slicing(split_size=4, memory_device="same")
        self.vae.debug, self.transformer = None, nadit.NaDiT

    def encode(self, frames, width, height):
        x = torch.zeros(1, 3, frames, height, width, device="cuda", dtype=torch.half).uniform_(-1, 1)
        return lambda: self.vae.encode(x)

    def decode(self, frames, width, height):
        z = torch.randn(1, 16, (frames + 3) // 4, height // 8, width // 8, device="cuda", dtype=torch.half)
        return lambda: self.vae.decode(z)

    def step(self):
        self.vae, (t, h, w) = None, LATENT
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            dit = self.transformer(**DIT).eval()
        torch.set_default_dtype(torch.float32)
        on = dict(device="cuda", dtype=torch.bfloat16)
        vid, txt = torch.randn(t * h * w, 33, **on), torch.randn(TEXT, 5120, **on)
        shapes = torch.tensor([[t, h, w]], device="cuda"), torch.tensor([[TEXT]], device="cuda")
        when = torch.full((1,), 1000.0, **on)
        return lambda: dit(vid, txt, *shapes, when)

    def limit(self, gib):
        self.vae.set_memory_limit(gib, gib)


def milliseconds(run):
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def measured(run, rounds):
    """Median in milliseconds after one run that is not counted, and the peak of the memory in GiB."""
    with torch.no_grad(), contextlib.redirect_stdout(sys.stderr):
        run()
        torch.cuda.reset_peak_memory_stats()
        times = [milliseconds(run) for _ in range(rounds)]
    peak = torch.cuda.max_memory_allocated() / 2**30
    torch.cuda.empty_cache()
    return statistics.median(times), peak


def reseed(program, rounds, *words):
    """The same of a benchmark of Reseed."""
    command = [program, "bench", *words, "--device", "cuda", "--repeat", str(rounds), "--json"]
    line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[0]
    event = json.loads(line)
    return 1e3 * event["median"], event["gpu_peak_bytes"] / 2**30


def networks(public, args):
    """Name, public default, public fastest, Reseed exact, Reseed in 8 bits; each milliseconds and GiB."""
    for frames, width, height in SIZES:
        for what in ("decode", "encode"):
            run, rows = getattr(public, what)(frames, width, height), []
            for gib in LIMITS:
                public.limit(gib)
                rows.append(measured(run, args.rounds))
            words = ("vae", what, "--size", f"{width}x{height}", "--frames", str(frames))
            rows += [reseed(args.reseed, args.rounds, *words, "--precision", mode) for mode in ("exact", "int8")]
            yield f"{what}, {frames} x {width}x{height}", rows
    words = ("dit", "--model", "formula:3b", "--latent", "x".join(map(str, LATENT)))
    step = measured(public.step(), args.rounds)
    yield "DiT 3B, one step", [step, step] + [reseed(args.reseed, args.rounds, *words, "--precision", mode)
                                              for mode in ("exact", "int8")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=pathlib.Path, required=True, help="sources of the public implementation")
    parser.add_argument("--reseed", required=True, help="the program")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
          f"{time.strftime('%Y-%m-%d')}\n")
    print("| | public default | public fastest | Reseed | Reseed int8 | against default | int8 against default |")
    print("|---|---|---|---|---|---|---|")
    sums, clip = [0.0] * 4, SIZES[0][0]
    for name, rows in networks(Public(args.public), args):
        times = [row[0] for row in rows]
        cells = [f"{ms:.0f} ms, {gib:.1f} GiB" for ms, gib in rows]
        print(f"| {name} | " + " | ".join(cells) + f" | {times[0] / times[2]:.1f}x | {times[0] / times[3]:.1f}x |",
              flush=True)
        if f", {SIZES[1][0]} x" not in name:
            sums = [total + ms for total, ms in zip(sums, times)]
    rates = [1e3 * clip / total for total in sums]
    print("| frames per second of the three | " + " | ".join(f"{rate:.1f}" for rate in rates)
          + f" | {rates[2] / rates[0]:.1f}x | {rates[3] / rates[0]:.1f}x |")


if __name__ == "__main__":
    main()
