"""Trains the model until a number of seconds after the start of the program, from a checkpoint if one is given:

    python3 train.py --data train.tar --out run --until 500
    python3 train.py --data train.tar --from run --out run2 --until 500 --rate 0.015 --end 0.01
"""
import argparse
import math
import time
from pathlib import Path

import torch

import checkpoint
import degrade
import evaluate
import mixed
from data import TILE, Train
from model import Dit, NormSilu, Sizes, Vae
from scenes import Scenes
from start import free, shapes, start

VECTOR_FAN, WARM_STEPS, AVERAGE = 150, 300, 0.999
STEADY = 0.5                             # weight of the change of the error between frames
BRANCH = 3                               # rate of residual branches and of the transformer
BATCH = 5                                # frames that the networks see together; neighbours share one
REPORT, SAVE = 20, 120                   # seconds


class Task:
    """A kind of batch: what it shows, its size and the scale that it is restored from."""

    def __init__(self, kind, count, h, w, scale, frames=1, window=None):
        self.kind, self.count, self.h, self.w, self.scale = kind, count, h, w, scale
        self.frames, self.window = frames, window

    def shrunk(self):
        """The same on a few small crops."""
        h, w = (192, 192) if self.kind == "coded" else (max(n // 4 // 16 * 16, 32) for n in (self.h, self.w))
        return Task(self.kind, 1 if self.kind == "coded" else 2, h, w, self.scale, self.frames, self.window)

    def draw(self, scenes):
        """Originals, their degraded inputs, the inputs without defects, and the motion."""
        t = self.frames
        if self.kind == "coded":
            x, small, motion = scenes.coded(self.count, self.scale)
            clean = degrade.bytes_of(degrade.resize(x, *small.shape[-2:]))
            return x, small, clean, motion
        if self.kind == "still":
            x, motion = scenes.stills(self.count, self.h, self.w), None
        else:
            x, motion = scenes.clips(self.count, t, self.h, self.w)
        return (x, *mixed.random_small(x, t, self.scale), motion)

    def batches(self, v):
        """Clips as the engine cuts them: nine frames become two batches that share one."""
        if self.frames != 2 * BATCH - 1:
            return v, self.frames
        clip = v.unflatten(0, (-1, self.frames))
        return torch.stack([clip[:, :BATCH], clip[:, BATCH - 1:]], 1).flatten(0, 2), BATCH

    def joined(self, v):
        """The frame that two batches share is that of the first."""
        if self.frames != 2 * BATCH - 1:
            return v
        pair = v.unflatten(0, (-1, 2, BATCH))
        return torch.cat([pair[:, 0], pair[:, 1, 1:]], 1).flatten(0, 1)

    def loss(self, w, sizes, scenes, dtype):
        with torch.no_grad():
            x, small, clean, motion = self.draw(scenes)
            strength = mixed.strengths(self.count, x.device)
            goal = mixed.target(x, small, clean, strength, self.frames)
            seen = degrade.resize(small, *x.shape[-2:]).clamp(0, 1)
            seen, t = self.batches((seen * 2 - 1).to(dtype))
            seen = seen.contiguous(memory_format=torch.channels_last)
            strength = strength.repeat_interleave(seen.shape[0] // t // self.count, output_size=seen.shape[0] // t)
        vae, latents = Vae(w, sizes), (t + 3) // 4
        z = Dit(w, sizes).restore(vae.encode(seen, t), latents, self.window, strength)
        out = self.joined(vae.decode(z, latents).float() / 2 + 0.5)
        return distance(out - goal, self.frames, motion)


def distance(error, t, motion):
    """Logarithm of the mean square error of each clip, and how much the error changes along the motion."""
    error = error.unflatten(0, (-1, t))
    loss = 0.05 * (error.square().mean((1, 2, 3, 4)) + 1e-5).log().mean()
    if t > 1:
        moved, inside = warped(error[:, :-1], motion)
        change = (error[:, 1:] - moved) * inside
        loss = loss + STEADY * (change.square() + 3e-6).sqrt().mean()
    return loss


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
    (Task("still", 10, 256, 256, 4), 4),
    (Task("still", 10, 256, 256, 2), 3),
    (Task("still", 10, 256, 256, 3), 1),
    (Task("still", 10, 256, 256, 1), 1),
    (Task("still", 6, 240, 432, 4, window=(1, 8, 14)), 1),
    (Task("clip", 2, 192, 192, 4, frames=9), 2),
    (Task("clip", 2, 192, 192, 2, frames=9), 3),
    (Task("clip", 2, 128, 128, 4, frames=17), 1),
    (Task("coded", 2, 192, 192, 2, frames=9), 1),
    (Task("coded", 2, 192, 192, 4, frames=9), 1),
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
        self.free = {p: free(n, p.shape).to(self.device) for n, p in self.weights.items() if n in vae}
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
        self.steps = [self.recorded(i, task.shrunk() if args.small else task) for i, (task, _) in enumerate(tasks)]

    def step(self, i, task):
        self.optimizer.zero_grad(set_to_none=True)
        loss = task.loss(self.weights, self.sizes, self.scenes, self.dtype)
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
        if not self.cuda or self.args.eager:
            return lambda: self.step(i, task)
        began, side = time.time(), torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step(i, task)
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step(i, task)
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
    """PSNR on the held-back photographs, 4x: clean and degraded, and bicubic of both."""
    small = degrade.resize(held, held.shape[-2] // 4, held.shape[-1] // 4)
    rows = []
    for lo in (degrade.bytes_of(small), degrade.set_small(held, 4)):
        up = evaluate.bicubic(lo, held.shape[-2:])
        out = torch.cat([judge.run(p[None], True) for p in up])
        rows += [round(evaluate.psnr(y, held), 2) for y in (out, up)]
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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs")
    parser.add_argument("--small", action="store_true", help="small batches, to try the code on a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    train, steps = Train(args.data, device), 0
    if args.origin:
        weights, sizes, steps = checkpoint.load(args.origin, device)
    else:
        sizes = Sizes()
        weights = first_weights(sizes, train)
    held = train.held.permute(0, 3, 1, 2).float() / 255
    held = held[:3, :, :64, :64] if args.small else held
    tiles, count = len(train.photos[TILE].tiles), sum(v.numel() for v in weights.values())
    print(f"ready after {time.time() - began:.0f}s, torch {torch.__version__}, {tiles} photographs, {count} weights, "
          f"held {watch(evaluate.Judge(weights, sizes), held)}", flush=True)
    if device == "cuda":
        NormSilu.compile()
    trainer = Trainer(weights, sizes, train, args, steps)
    print(f"recorded after {time.time() - began:.0f}s", flush=True)
    steps += trainer.run(began)
    print(f"{steps} steps, held {watch(evaluate.Judge(trainer.result(), sizes), held)}, "
          f"done after {time.time() - began:.0f}s", flush=True)


if __name__ == "__main__":
    main()
