"""Trains the setting `sharp` of a model: its fine decoder layers, against a discriminator. All other layers are fixed.

    python3 sharp.py --data train.tar --from run --out sharp --until 480
"""
import argparse
import math
import time
from pathlib import Path

import torch

import checkpoint
import degrade
import evaluate
import low_band
from data import Train
from discriminator import Discriminator, feature_distance, model_loss, own_loss
from model import FINE_PARTS, Dit, Vae
from scenes import Scenes
from start import free
from train import AVERAGE, Task, distance, share

PIXELS, FEATURES = 1.0, 0.3              # weights of the loss, beside those of the arguments
OWN_RATE = 2e-4                          # of the discriminator
BANDS = ((1, 3), (4, 7), (8, 14))        # sums of both frequencies, as in `detail` of the engine
FLOOR = 1 / 255
REPORT = 30                              # seconds

TASKS = [
    (Task("still", 10, 192, 192, 4), 4),
    (Task("still", 10, 192, 192, 2), 2),
    (Task("still", 10, 192, 192, 3), 1),
    (Task("clip", 2, 128, 128, 4, frames=9), 2),
    (Task("clip", 2, 128, 128, 2, frames=9), 1),
]


def amplitudes(x, offset=(0, 0)):
    """Root mean squares [N, blocks, 3] of the bands of 8x8 blocks of luma."""
    y = evaluate.luma(x)[:, 0, offset[0]:, offset[1]:]
    y = y[:, :y.shape[1] // 8 * 8, :y.shape[2] // 8 * 8]
    blocks = y.unflatten(2, (-1, 8)).unflatten(1, (-1, 8)).transpose(2, 3).flatten(3).flatten(1, 2)
    squares = (blocks @ degrade.cosines(x.device).T).square()
    order = torch.arange(64, device=x.device) // 8 + torch.arange(64, device=x.device) % 8
    bands = [squares[..., (order >= first) & (order <= last)].mean(-1) for first, last in BANDS]
    return (torch.stack(bands, -1) + 1e-10).sqrt()


def detail(a, b, offset=(0, 0)):
    """Difference in the amount of local detail, in octaves."""
    a, b = (amplitudes(v, offset) + FLOOR for v in (a, b))
    return (a / b).log2().abs().mean()


class Trainer:
    def __init__(self, weights, sizes, train, args):
        self.fixed, self.sizes, self.args, self.scenes = weights, sizes, args, Scenes(train)
        self.device = train.device
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        chosen = {n: v for n, v in weights.items() if n.startswith(FINE_PARTS)}
        self.own = {n: v.detach().clone().requires_grad_() for n, v in chosen.items()}
        self.average = {n: v.detach().clone() for n, v in self.own.items()}
        self.masks = {n: free(n, v.shape).to(self.device) for n, v in self.own.items()}
        groups = [{"params": [v], "part": share(n, v, True)} for n, v in self.own.items()]
        self.optimizer = torch.optim.Adam(groups, lr=1e-9, betas=(0.9, 0.999), eps=1e-8)
        self.judge = Discriminator().to(self.device)
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters(), lr=OWN_RATE, betas=(0.5, 0.99))
        tasks = [(task.shrunk() if args.small else task, n) for task, n in TASKS]
        self.turns = [task for _, task in sorted((((k + 0.5) / n, task) for task, n in tasks for k in range(n)),
                                                 key=lambda turn: turn[0])]
        self.seen = {}

    def results(self, task, small, seen):
        """The networks up to the fine layers, then those, then the low band."""
        fixed, t = Vae(self.fixed, self.sizes), task.length()
        with torch.no_grad():
            latents = Dit(self.fixed, self.sizes).restore(fixed.encode(seen, t), (t + 3) // 4)
            h, t = fixed.coarse(latents, (t + 3) // 4)
            strengths = low_band.strengths(self.fixed, small)
        vae = Vae(self.fixed | self.own, self.sizes)
        out = task.joined(vae.head("decoder", *vae.fine(h, t)).float() / 2 + 0.5)
        return low_band.blend(out, small, strengths)

    def step(self, task):
        x, small, seen, motion = [*task.draw(self.scenes, self.dtype), None][:4]
        out = self.results(task, small, seen)
        condition = degrade.resize(small, *x.shape[-2:]).clamp(0, 1)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            real, real_features = self.judge(x, condition)
            fake, fake_features = self.judge(out, condition)
            own = model_loss(real.float().detach(), fake.float())
            features = feature_distance(real_features, fake_features)
        offset = torch.randint(8, (2,)).tolist()
        octaves = detail(out, x, offset)
        loss = PIXELS * distance(out - x, task.frames, motion) + self.args.detail * octaves
        loss = loss + self.args.adversary * own + FEATURES * self.args.adversary * features
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        for name, p in self.own.items():
            p.grad.mul_(self.masks[name])
        torch.nn.utils.clip_grad_norm_(list(self.own.values()), 0.5)
        self.optimizer.step()
        self.judge_optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            real, fake = self.judge(x, condition)[0].float(), self.judge(out.detach(), condition)[0].float()
        judged = own_loss(real, fake)
        judged.backward()
        self.judge_optimizer.step()
        for name, value in (("judge", judged), ("model", own), ("features", features), ("detail", octaves)):
            self.seen[name] = torch.lerp(self.seen.get(name, value.detach()), value.detach(), 0.01)

    def run(self, began):
        start = reported = time.time()
        length, count = max(began + self.args.until - start, 1), 0
        while (part := (time.time() - start) / length) < 1:
            rate = self.args.rate * (0.5 + 0.5 * math.cos(math.pi * part)) * min(1, (count + 1) / 300)
            for group in self.optimizer.param_groups:
                group["lr"] = rate * group["part"]
            for task in self.turns:
                self.step(task)
                count += 1
            with torch.no_grad():
                for name, value in self.average.items():
                    value.lerp_(self.own[name], 1 - AVERAGE ** len(self.turns))
            if time.time() - reported > REPORT:
                reported = time.time()
                losses = {name: round(value.item(), 3) for name, value in self.seen.items()}
                print(f"  {count} {reported - start:.0f}s {losses}", flush=True)
        return count

    def result(self):
        """Weights between the two settings: all the way, a fine grid shows in dark and plain areas."""
        return self.fixed | {n: torch.lerp(self.fixed[n], v, self.args.way) for n, v in self.average.items()}


@torch.no_grad()
def watch(weights, sizes, held):
    """PSNR and detail on the held-back photographs, 4x and 2x, clean and degraded."""
    judge, rows = evaluate.Judge(weights, sizes), []
    for scale in (4, 2):
        clean = degrade.bytes_of(degrade.resize(held, held.shape[-2] // scale, held.shape[-1] // scale))
        for small in (clean, degrade.set_small(held, scale)):
            up = evaluate.bicubic(small, held.shape[-2:])
            out = torch.cat([judge.run(frame[None], True) for frame in up])
            out = low_band.finished(out, small, judge.strengths(small))
            rows.append((round(evaluate.psnr(out, held), 2), round(detail(out, held).item(), 3)))
    return rows


def main():
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the file that pack.py wrote, or train.tar")
    parser.add_argument("--from", dest="origin", type=Path, required=True, help="the model, or its checkpoint")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--until", type=float, default=480, help="seconds")
    parser.add_argument("--rate", type=float, default=0.02, help="highest rate, times the fan-in of a layer")
    parser.add_argument("--detail", type=float, default=0.01, help="weight of the amount of detail")
    parser.add_argument("--adversary", type=float, default=0.05, help="weight of the discriminator")
    parser.add_argument("--way", type=float, default=0.6, help="share of the way from the model to what is trained")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="small batches, to try the code on a CPU")
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    torch.backends.cudnn.benchmark = True
    train = Train(args.data, device)
    weights, sizes, steps = checkpoint.load(args.origin, device)
    held = train.held.permute(0, 3, 1, 2).float() / 255
    held = held[:2, :, :64, :64] if args.small else held
    print(f"ready after {time.time() - began:.0f}s, held {watch(weights, sizes, held)}", flush=True)
    trainer = Trainer(weights, sizes, train, args)
    count = trainer.run(began)
    checkpoint.save(args.out, trainer.result(), sizes, steps + count)
    found, seconds = watch(trainer.result(), sizes, held), time.time() - began
    print(f"{count} steps, held {found}, done after {seconds:.0f}s", flush=True)


if __name__ == "__main__":
    main()
