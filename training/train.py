"""Trains the model until a number of seconds after the start of the program, from a checkpoint if one is given:

    python3 train.py --data train.tar --out run --until 500
    python3 train.py --data train.tar --from run --out run2 --until 500 --rate 0.015 --end 0.01
"""
import argparse
import contextlib
import math
import time
from pathlib import Path

import torch

import checkpoint
import degrade
import evaluate
import low_band
import mixed
from data import TILE, Train
from model import CompiledNormSilu, Dit, Sizes, Vae
from scenes import Scenes
from start import deeper, free, shapes, start

VECTOR_FAN, WARM_STEPS, AVERAGE = 150, 300, 0.999
ESTIMATOR = 0.05                         # rate of the estimator of the low band
BEFORE = 0.2                             # weight of the result before its low band is blended
STEADY = 0.5                             # weight of the change of the error between frames
EVEN = 1.0                               # weight of the differences in sharpness between frames
PLAIN = 2 / 255                          # sharpness of a frame without content
BRANCH = 3                               # rate of residual branches and of the transformer
BATCH = 5                                # frames that the networks see together; neighbours share one
REPORT, SAVE = 20, 120                   # seconds


class Task:
    """A kind of batch: what it shows, its size and the scale that it is restored from. Compiled tasks share a compiled
    network for each number of frames."""

    def __init__(self, kind, count, h, w, scale, frames=1, window=None, compiled=False):
        self.kind, self.count, self.h, self.w, self.scale = kind, count, h, w, scale
        self.frames, self.window, self.compiled = frames, window, compiled

    def shrunk(self):
        """The same on a few small crops."""
        h, w = (192, 192) if self.kind == "coded" else (max(n // 4 // 16 * 16, 64) for n in (self.h, self.w))
        return Task(self.kind, 1 if self.kind == "coded" else 2, h, w, self.scale, self.frames, self.window)

    @torch.no_grad()
    def draw(self, scenes, dtype):
        """Originals, their degraded inputs, those inputs as the networks see them, and the motion."""
        t, motion = self.frames, None
        if self.kind == "coded":
            x, small, motion = scenes.coded(self.count, self.scale)
        elif self.kind == "still":
            x = scenes.stills(self.count, self.h, self.w)
            small = mixed.random_small(x, t, self.scale)
        else:
            x, motion = scenes.clips(self.count, t, self.h, self.w)
            small = mixed.random_small(x, t, self.scale)
        seen = degrade.resize(small, *x.shape[-2:]).clamp(0, 1)
        seen = self.batches((seen * 2 - 1).to(dtype))
        return [x, small, seen.contiguous(memory_format=torch.channels_last)] + ([] if motion is None else [motion])

    def batches(self, v):
        """Clips as the engine cuts them: nine frames become two batches that share one."""
        if self.frames != 2 * BATCH - 1:
            return v
        clip = v.unflatten(0, (-1, self.frames))
        return torch.stack([clip[:, :BATCH], clip[:, BATCH - 1:]], 1).flatten(0, 2)

    def length(self):
        """Frames of a batch of the networks."""
        return BATCH if self.frames == 2 * BATCH - 1 else self.frames

    def joined(self, v):
        """The frame that two batches share is that of the first."""
        if self.frames != 2 * BATCH - 1:
            return v
        pair = v.unflatten(0, (-1, 2, BATCH))
        return torch.cat([pair[:, 0], pair[:, 1, 1:]], 1).flatten(0, 1)

    def loss(self, w, sizes, batch, networks):
        """After the low band is blended as the engine does, and in part before."""
        x, small, seen, motion = [*batch, None][:4]
        out = self.joined(networks(w, sizes, seen, self.length(), self.window))
        if self.scale == 1:
            return distance(out - x, self.frames, motion)
        blended = low_band.blend(out, small, low_band.strengths(w, small))
        loss = torch.lerp(distance(blended - x, self.frames, motion), distance(out - x, self.frames, motion), BEFORE)
        if self.frames == 1:
            return loss
        return loss + EVEN * unevenness(blended, x, self.frames)


def networks(w, sizes, seen, t, window):
    """Frames in [-1, 1] to results in [0, 1]."""
    vae, latents = Vae(w, sizes), (t + 3) // 4
    z = Dit(w, sizes).restore(vae.encode(seen, t), latents, window)
    return vae.decode(z, latents).float() / 2 + 0.5


def distance(error, t, motion):
    """Logarithm of the mean square error of each clip, and how much the error changes along the motion."""
    error = error.unflatten(0, (-1, t))
    loss = 0.05 * (error.square().mean((1, 2, 3, 4)) + 1e-5).log().mean()
    if t > 1:
        moved, inside = warped(error[:, :-1], motion)
        change = (error[:, 1:] - moved) * inside
        loss = loss + STEADY * (change.square() + 3e-6).sqrt().mean()
    return loss


def unevenness(out, x, t):
    """Mean deviation of the relative sharpness of a frame from that of its clip, without the first frame."""
    relative = ((evaluate.sharpness(out) + PLAIN) / (evaluate.sharpness(x) + PLAIN)).log().unflatten(0, (-1, t))[:, 1:]
    return (relative - relative.mean(1, keepdim=True)).abs().mean()


def warped(v, motion):
    """v [B, T, C, H, W] moved by whole pixels [B, 2], and where that has a source."""
    _, _, _, h, w = v.shape
    y, x = (torch.arange(n, device=v.device) - motion[:, i:i + 1] for i, n in ((0, h), (1, w)))
    inside = ((y >= 0) & (y < h))[:, :, None] & ((x >= 0) & (x < w))[:, None]
    moved = v.gather(3, y.clamp(0, h - 1)[:, None, None, :, None].expand_as(v))
    moved = moved.gather(4, x.clamp(0, w - 1)[:, None, None, None].expand_as(v))
    return moved, inside[:, None, None]


# Batches and their counts per round.
TASKS = [
    (Task("still", 6, 240, 432, 4, window=(1, 8, 14)), 1),
    (Task("clip", 2, 128, 128, 4, frames=17), 1),
    (Task("still", 10, 256, 256, 4, compiled=True), 9),
    (Task("still", 10, 256, 256, 2, compiled=True), 3),
    (Task("still", 10, 256, 256, 3, compiled=True), 1),
    (Task("still", 10, 256, 256, 1, compiled=True), 1),
    (Task("clip", 2, 192, 192, 4, frames=9, compiled=True), 2),
    (Task("clip", 2, 192, 192, 2, frames=9, compiled=True), 2),
    (Task("coded", 2, 192, 192, 2, frames=9, compiled=True), 1),
    (Task("coded", 2, 192, 192, 4, frames=9, compiled=True), 1),
]


class Trainer:
    """Parameters, optimiser and steps. On a GPU each step is a CUDA graph."""

    def __init__(self, weights, sizes, train, args, done):
        self.sizes, self.scenes, self.args, self.done = sizes, Scenes(train), args, done
        self.device, self.cuda, self.rate = train.device, train.device == "cuda", args.rate
        vae, _ = shapes(sizes)
        self.weights = {n: v.detach().clone().requires_grad_() for n, v in weights.items()}
        self.params = list(self.weights.values())
        self.average = [p.detach().clone() for p in self.params]
        masks = {p: free(n, p.shape).to(self.device) for n, p in self.weights.items() if n in vae}
        self.masked = [(p, mask) for p, mask in masks.items() if not mask.all()]
        parts = {n: share(n, p, n in vae) for n, p in self.weights.items()}
        groups = [{"params": [self.weights[n] for n in parts if parts[n] == part], "part": part,
                   "lr": torch.tensor(1e-9, device=self.device)} for part in sorted(set(parts.values()))]
        self.optimizer = torch.optim.Adam(groups, betas=(0.9, 0.999), eps=1e-8, capturable=self.cuda, fused=self.cuda)
        if args.origin:
            checkpoint.load_moments(args.origin, self.optimizer, self.weights, done)
        tasks = [(t, n) for t, n in TASKS if t.kind != "coded" or t.scale in train.coded]
        self.seen = [torch.zeros((), device=self.device) for _ in tasks]
        self.turns = [i for _, i in sorted(((k + 0.5) / n, i) for i, (_, n) in enumerate(tasks) for k in range(n))]
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        self.compiled = torch.compile(networks, dynamic=False) if self.cuda and not args.eager else networks
        tasks = [task.shrunk() if args.small else task for task, _ in tasks]
        self.batches = [task.draw(self.scenes, self.dtype) for task in tasks]
        with torch.no_grad():                                    # fills the caches that compiled code must not change
            for task, batch in zip(tasks, self.batches):
                networks(self.weights, sizes, batch[2], task.length(), task.window)
        self.steps = [self.recorded(i, task) for i, task in enumerate(tasks)]

    def step(self, i, task, side=None):
        """One step. The next batch of the task is drawn on a second stream meanwhile."""
        batch = self.batches[i]
        if side:
            side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side) if side else contextlib.nullcontext():
            following = task.draw(self.scenes, self.dtype)
        self.optimizer.zero_grad(set_to_none=True)
        loss = task.loss(self.weights, self.sizes, batch, self.compiled if task.compiled else networks)
        loss.backward()
        masked = [(p.grad, mask) for p, mask in self.masked if p.grad is not None]
        torch._foreach_mul_([g for g, _ in masked], [m for _, m in masked])
        torch.nn.utils.clip_grad_norm_([p for p in self.params if p.grad is not None], 0.5, foreach=True)
        self.optimizer.step()
        with torch.no_grad():
            self.seen[i].lerp_(loss.detach(), 0.02)
            if side:
                torch.cuda.current_stream().wait_stream(side)
            for old, new in zip(batch, following):
                old.copy_(new)

    def recorded(self, i, task):
        if not self.cuda or self.args.eager:
            return lambda: self.step(i, task)
        began, first, side = time.time(), torch.cuda.Stream(), torch.cuda.Stream()
        first.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(first):
            for _ in range(3):
                self.step(i, task)
        torch.cuda.current_stream().wait_stream(first)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(i, task, side)
        torch.cuda.synchronize()
        recorded, again = time.time(), 5
        for _ in range(again):
            graph.replay()
        torch.cuda.synchronize()
        print(f"  task {i} {task.kind} {task.scale}x: recorded in {recorded - began:.1f}s, "
              f"{(time.time() - recorded) / again * 1e3:.1f} ms a step", flush=True)
        return graph.replay

    def run(self, began):
        """Takes the tasks in turn until the time is over. The rate rises quickly and falls as a cosine of time."""
        start, count, kept = time.time(), 0, self.copies()
        reported = saved = start
        length = max(began + self.args.until - start, 1)
        while (part := (time.time() - start) / length) < 1:
            fall = self.args.end + (1 - self.args.end) * (0.5 + 0.5 * math.cos(math.pi * part))
            for group in self.optimizer.param_groups:
                group["lr"].fill_(self.rate * fall * group["part"] * min(1, (count + 1) / WARM_STEPS))
            for i in self.turns:
                self.steps[i]()
                count += 1
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.params, 1 - AVERAGE ** len(self.turns))
            if self.cuda:
                torch.cuda.synchronize()
            if time.time() - reported > REPORT:
                reported = time.time()
                losses = [round(s.item(), 4) for s in self.seen]
                print(f"  {self.done + count} {reported - start:.0f}s rate {self.rate * fall:.1e} {losses}", flush=True)
                if all(map(math.isfinite, losses)):
                    kept = self.copies()
                else:
                    print("  not finite: back to the last good weights at half the rate", flush=True)
                    self.restore(kept)
                    self.rate /= 2
                if reported - saved > SAVE:
                    saved = reported
                    self.save(count)
                    print(f"  held {watch(evaluate.Judge(self.result(), self.sizes), self.held)}", flush=True)
        self.save(count)
        return count

    def save(self, count):
        checkpoint.save(self.args.out, self.result(), self.sizes, self.done + count, self.optimizer, self.weights)

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
        return {n: v.detach() for n, v in zip(self.weights, self.average)}


def share(name, p, in_vae):
    """Share of a tensor in the rate. The effect of a step on the output of a layer grows with its fan-in, so the rate
    falls with it. The path through the VAE starts as a fine transform and moves more slowly than the branches."""
    if name in low_band.shapes():
        return ESTIMATOR
    fan = p[0].numel() if p.dim() > 1 else VECTOR_FAN
    path = in_vae and (".resnets." not in name or "conv_shortcut" in name)
    return (1 if path else BRANCH) / fan


def first_weights(sizes, train):
    """Seven stills for three clips, so that the transform suits both."""
    scenes = Scenes(train)
    stills = scenes.stills(420, 64, 64)[:, None].expand(-1, 5, -1, -1, -1)
    moving = scenes.clips(180, 5, 64, 64)[0].unflatten(0, (-1, 5))
    return start(sizes, torch.cat([stills, moving])[torch.randperm(600)] * 2 - 1)


def watch(judge, held):
    """PSNR on the held-back photographs, 4x and 2x: clean and degraded, bicubic of both, and the mean strengths of the
    low band."""
    rows = []
    for scale in (4, 2):
        small = degrade.resize(held, held.shape[-2] // scale, held.shape[-1] // scale)
        for lo in (degrade.bytes_of(small), degrade.set_small(held, scale)):
            up = evaluate.bicubic(lo, held.shape[-2:])
            out = torch.cat([judge.run(p[None], True) for p in up])
            strength = judge.strengths(lo)
            out = low_band.finished(out, lo, strength)
            rows += [round(v, 2) for v in (evaluate.psnr(out, held), evaluate.psnr(up, held), strength.mean().item())]
    return rows


def main():
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the file that pack.py wrote, or train.tar")
    parser.add_argument("--from", dest="origin", type=Path, help="checkpoint to continue from")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, default=500, help="seconds")
    parser.add_argument("--rate", type=float, default=0.03, help="highest rate, times the fan-in of a layer")
    parser.add_argument("--end", type=float, default=0.5, help="share of the rate at the end")
    parser.add_argument("--blocks", type=int, help="layers of the transformer, if it should have more than before")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="no compilation and no CUDA graphs")
    parser.add_argument("--small", action="store_true", help="small batches, to try the code on a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = False                # of the degradations
    train, steps = Train(args.data, device), 0
    if args.origin:
        weights, sizes, steps = checkpoint.load(args.origin, device)
        weights, sizes = deeper(weights, sizes, args.blocks or sizes.blocks)
    else:
        sizes = Sizes(blocks=args.blocks or Sizes.blocks)
        weights = first_weights(sizes, train)
    held = train.held.permute(0, 3, 1, 2).float() / 255
    held = held[:3, :, :64, :64] if args.small else held
    if not low_band.shapes().keys() <= weights.keys():
        weights |= low_band.start(device)
    tiles, count = len(train.photos[TILE].tiles), sum(v.numel() for v in weights.values())
    print(f"ready after {time.time() - began:.0f}s, torch {torch.__version__}, {tiles} photographs, {count} weights, "
          f"held {watch(evaluate.Judge(weights, sizes), held)}", flush=True)
    if device == "cuda":
        CompiledNormSilu.compile()
    trainer = Trainer(weights, sizes, train, args, steps)
    trainer.held = held
    print(f"recorded after {time.time() - began:.0f}s", flush=True)
    steps += trainer.run(began)
    print(f"{steps} steps, held {watch(evaluate.Judge(trainer.result(), sizes), held)}, "
          f"done after {time.time() - began:.0f}s", flush=True)


if __name__ == "__main__":
    main()
