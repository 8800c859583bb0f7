"""Trains the model in stages of given minutes, from a checkpoint if one is given:

    python3 train.py --data DIR --out run vae-images:1 vae-clips:2 dit:1 end-to-end:5

vae-images   the VAE on photographs
vae-clips    the VAE on clips and photographs
dit          the transformer on degraded photographs and clips, with the VAE frozen
end-to-end   both on degraded images, and the VAE on clean images
restore      the same, mostly on sharp photographs at a quarter of their size
"""
import argparse
import json
import math
import time
from pathlib import Path

import torch

import checkpoint
import degrade
import evaluate
from arguments import add_data, data_file
from data import TILE, Train, validation
from model import Dit, NormSilu, Sizes, Vae
from start import free, shapes, start

LOWEST_RATE, VECTOR_FAN, WARM_STEPS, AVERAGE = 0.01, 150, 300, 0.999
BARE = 0.3                               # share of the loss that is taken before the low band is blended back


class Task:
    """A kind of batch: its crops, the scale that they are restored from (or None), and the size of the tiles."""

    def __init__(self, count, h, w, frames=1, scale=None, window=None, level=TILE):
        self.count, self.h, self.w, self.frames, self.scale, self.window = count, h, w, frames, scale, window
        self.level = level

    def shrunk(self):
        """The same on a few small crops."""
        count, h, w = max(2, self.count // 8), self.h // 4 // 16 * 16, self.w // 4 // 16 * 16
        return Task(count, h, w, self.frames, self.scale, self.window, self.level)

    def loss(self, w, sizes, train, dtype):
        h, width, t, vae, latents = self.h, self.w, self.frames, Vae(w, sizes), (self.frames + 3) // 4
        with torch.no_grad():
            still = t == 1
            x = train.stills(self.count, h, width, self.level) if still else train.moving(self.count, t, h, width)
            seen = x
            if self.scale:
                small, clean = degrade.random_small(x, t, self.scale)
                seen = degrade.resize(small, h, width).clamp(0, 1)
            seen = (seen * 2 - 1).to(dtype).contiguous(memory_format=torch.channels_last)
        z = vae.encode(seen, t)
        if self.scale:
            z = Dit(w, sizes).restore(z, latents, self.window)
        out = vae.decode(z, latents).float() / 2 + 0.5
        if not self.scale:
            return distance(out, x, t)
        whole = evaluate.low_band(out, small, trust(clean))
        return BARE * distance(out, x, t) + (1 - BARE) * distance(whole, x, t)


def trust(clean):
    """Share of the low band that is blended back: all of it for a clean image, at most half for a degraded one."""
    part = torch.where(clean, 1.0, 0.5 * torch.rand(clean.shape, device=clean.device))
    return part[:, None, None, None]


def distance(a, b, t):
    """Logarithm of the mean square error of each clip, and the mean error of the differences between frames."""
    a, b = a.unflatten(0, (-1, t)), b.unflatten(0, (-1, t))
    loss = 0.05 * ((a - b).square().mean((1, 2, 3, 4)) + 1e-5).log().mean()
    if t > 1:
        wrong = a.diff(dim=1) - b.diff(dim=1)
        loss = loss + (wrong.square() + 3e-6).sqrt().mean()
    return loss


STILLS, CLIPS = Task(64, 128, 128), Task(6, 128, 128, frames=9)
RESTORE = [
    Task(10, 320, 320, scale=4, window=(1, 12, 12)),
    Task(10, 240, 432, scale=4),
    Task(4, 192, 240, frames=5, scale=4),
    Task(10, 240, 432, scale=2),
    Task(10, 320, 320, scale=4),
    Task(3, 128, 128, frames=17, scale=2),
    Task(6, 128, 128, frames=9, scale=4),
]
SHARP = [
    (Task(16, 256, 256, scale=4, level=256), 4),
    (Task(10, 240, 432, scale=4), 1),
    (Task(10, 320, 320, scale=4, window=(1, 12, 12), level=352), 2),
    (Task(16, 256, 256, scale=2, level=256), 1),
    (Task(4, 192, 240, frames=5, scale=4), 1),
    (Task(4, 192, 240, frames=5, scale=2), 2),
    (Task(3, 128, 128, frames=17, scale=4), 1),
    (STILLS, 1),
    (CLIPS, 1),
]
even = lambda tasks: [(task, 1) for task in tasks]
# Stage: its batches and their counts per round, the trained networks, the highest rate times the fan-in of a layer.
STAGES = {
    "vae-images": (even([STILLS]), ("vae",), 0.04),
    "vae-clips": (even([STILLS, CLIPS]), ("vae",), 0.04),
    "dit": (even(RESTORE), ("dit",), 0.08),
    "end-to-end": (even([*RESTORE[:3], STILLS, *RESTORE[3:], CLIPS]), ("vae", "dit"), 0.03),
    "restore": (SHARP, ("vae", "dit"), 0.012),
}


class Stage:
    """Parameters, optimiser and steps of one stage. On a GPU each step is a CUDA graph."""

    def __init__(self, name, weights, sizes, train, args, origin=None, done=0):
        tasks, parts, self.rate = STAGES[name]
        self.sizes, self.train, self.cuda = sizes, train, train.device == "cuda"
        vae, dit = shapes(sizes)
        mine = [n for part in parts for n in (vae if part == "vae" else dit)]
        self.weights = {n: v.detach().clone().requires_grad_(n in mine) for n, v in weights.items()}
        self.names = {n: self.weights[n] for n in mine}
        self.params = list(self.names.values())
        self.average = [p.detach().clone() for p in self.params]
        self.free = {p: free(n, p.shape).to(train.device) for n, p in self.names.items() if n in vae}
        # The effect of a step on the output of a layer grows with its fan-in, so the rate falls with it.
        fans = {p: p[0].numel() if p.dim() > 1 else VECTOR_FAN for p in self.params}
        self.groups = [{"params": [p for p in self.params if fans[p] == fan], "part": 1 / fan,
                        "lr": torch.tensor(1e-9, device=train.device)} for fan in sorted(set(fans.values()))]
        self.optimizer = torch.optim.Adam(self.groups, betas=(0.9, 0.999), eps=1e-8,
                                          capturable=self.cuda, fused=self.cuda)
        if origin:
            checkpoint.load_moments(origin, self.optimizer, self.names, done)
        self.seen = [torch.zeros((), device=train.device) for _ in tasks]
        self.turns = [i for _, i in sorted(((k + 0.5) / n, i) for i, (_, n) in enumerate(tasks) for k in range(n))]
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.steps = [self.recorded(i, task.shrunk() if args.small else task) for i, (task, _) in enumerate(tasks)]

    def step(self, i, task):
        self.optimizer.zero_grad(set_to_none=True)
        loss = task.loss(self.weights, self.sizes, self.train, self.dtype)
        loss.backward()
        for p, mask in self.free.items():
            if p.grad is not None:
                p.grad.mul_(mask)
        torch.nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], 0.5, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, self.params, 1 - AVERAGE)
            self.seen[i].lerp_(loss.detach(), 0.02)

    def recorded(self, i, task):
        if not self.cuda:
            return lambda: self.step(i, task)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(i, task)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(i, task)
        return graph.replay

    def run(self, minutes, begun):
        """Takes the tasks in turn until the time is over. The rate rises quickly and falls as a cosine of time."""
        start, count, kept = time.time(), 0, self.copies()
        while (part := (time.time() - start) / (60 * minutes)) < 1:
            rate = self.rate * max(LOWEST_RATE, 0.5 + 0.5 * math.cos(math.pi * part))
            for group in self.optimizer.param_groups:
                group["lr"].fill_(rate * group["part"] * min(1, (count + 1) / WARM_STEPS))
            for i in self.turns:
                self.steps[i]()
                count += 1
            if count % (100 * len(self.turns)) == 0:
                losses = [round(s.item(), 5) for s in self.seen]
                print(f"  {begun + count} {time.time() - start:.0f}s rate {rate:.1e} {losses}", flush=True)
                if not all(map(math.isfinite, losses)):
                    print("  not finite: back to the last good weights at half the rate", flush=True)
                    self.restore(kept)
                    self.rate /= 2
                else:
                    kept = self.copies()
        if self.cuda:
            torch.cuda.synchronize()
        return count

    def tensors(self):
        moments = [s[m] for s in self.optimizer.state.values() for m in ("exp_avg", "exp_avg_sq")]
        return self.params, self.average, moments, self.seen

    def copies(self):
        return [[v.detach().clone() for v in group] for group in self.tensors()]

    @torch.no_grad()
    def restore(self, kept):
        for group, values in zip(self.tensors(), kept):
            for tensor, value in zip(group, values):
                tensor.copy_(value)

    def result(self):
        average = dict(zip(self.names, self.average))
        return {n: average.get(n, v).detach() for n, v in self.weights.items()}


def first_weights(sizes, train):
    """Seven stills for three clips, so that the transform suits both."""
    stills = train.stills(420, 64, 64)[:, None].expand(-1, 5, -1, -1, -1)
    moving = train.moving(180, 5, 64, 64).unflatten(0, (-1, 5))
    return start(sizes, torch.cat([stills, moving])[torch.randperm(600)] * 2 - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help="stage:minutes")
    add_data(parser)
    parser.add_argument("--from", dest="origin", type=Path, help="checkpoint to continue from")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="small batches, to try the code on a CPU")
    args = parser.parse_args()
    tar = data_file(parser, args, "train.tar")
    began, device = time.time(), "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    train = Train(tar, device)
    steps = 0
    if args.origin:
        weights, sizes, steps = checkpoint.load(args.origin, device)
    else:
        sizes = Sizes()
        weights = first_weights(sizes, train)
    tiles = len(train.photos[TILE].tiles)
    print(f"ready after {time.time() - began:.0f}s, torch {torch.__version__}, {tiles} photographs", flush=True)
    if device == "cuda":
        NormSilu.compile()
    for i, (name, minutes) in enumerate(stage.split(":") for stage in args.stages):
        stage = Stage(name, weights, sizes, train, args, args.origin if i == 0 else None, steps)
        print(f"{name}: recorded after {time.time() - began:.0f}s", flush=True)
        steps += stage.run(float(minutes), steps)
        weights = stage.result()
        checkpoint.save(args.out, weights, sizes, steps, stage.optimizer, stage.names)
        judge = evaluate.Judge(weights, sizes)
        held = train.held.permute(0, 3, 1, 2).float() / 255
        held = held[:, :, :64, :64] if args.small else held
        print(f"{name}: {steps} steps, held photographs {watch(judge, held)}", flush=True)
        del stage
    if (args.data / "val.tar").exists() and not args.small:
        sets = [{k: v.to(device) for k, v in s.items()} for s in validation(args.data / "val.tar")]
        rows = evaluate.table(evaluate.Judge(weights, sizes), *sets)
        evaluate.show(rows)
        (args.out / "figures.json").write_text(json.dumps(rows, indent=1))
    print(f"done after {time.time() - began:.0f}s", flush=True)


def watch(judge, held):
    """PSNR on the held-back photographs: reconstruction, 4x restoration, and bicubic."""
    small = degrade.resize(held, held.shape[-2] // 4, held.shape[-1] // 4)
    up = evaluate.bicubic(degrade.bytes_of(small), held.shape[-2:])
    one = lambda x, restore: torch.cat([judge.run(p[None], restore) for p in x])
    return [round(evaluate.psnr(y, held), 2) for y in (one(held, False), one(up, True), up)]


if __name__ == "__main__":
    main()
