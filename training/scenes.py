"""Random originals of the training: crops of photographs, text and line art, real clips, pans, moving shapes, scrolling
text, fades and cuts. Clips come with the motion of their content in pixels per frame, or zero where it has no single
one."""
import torch

from data import FRAMES, LEVELS, SIDE, TILE, planes

FASTEST = 24                             # pixels per frame
DRAWN = 0.14                             # share of stills with text or line art
REAL, PANS, OBJECTS = 0.36, 0.24, 0.28   # shares of clips; the rest scrolls text
FADES, CUTS = 0.08, 0.04


class Scenes:
    def __init__(self, train):
        self.train, self.device = train, train.device

    def unit(self, *shape):
        return torch.rand(shape, device=self.device)

    def places(self, count, room, size):
        """Random ranges of indices [count, size], half of them reversed."""
        start = (self.unit(count, 1) * (room - size + 1)).long()
        step = torch.arange(size, device=self.device)
        return start + torch.where(self.unit(count, 1) < 0.5, size - 1 - step, step)

    def track(self, count, frames, size, speed):
        """Ranges of indices of a tile [count, frames, size] that move by a speed [count]; the motion of the content."""
        t, step = torch.arange(frames, device=self.device), torch.arange(size, device=self.device)
        reach = speed.abs() * (frames - 1)
        start = (self.unit(count) * (TILE - size - reach + 1)).long() + torch.where(speed < 0, reach, 0)
        back = self.unit(count) < 0.5
        order = torch.where(back[:, None], size - 1 - step, step)
        return (start[:, None] + speed[:, None] * t)[:, :, None] + order[:, None], torch.where(back, speed, -speed)

    def speeds(self, count, fastest):
        """Whole pixels; a third stands still along an axis."""
        return ((self.unit(count) * 2 - 1) * (fastest + 0.5)).round().long() * (self.unit(count) > 0.33)

    def crops(self, level, count, h, w):
        photos = self.train.photos[level]
        y, x = self.places(count, level, h), self.places(count, level, w)
        return photos.tiles[photos.draw(count)[:, None, None], y[:, :, None], x[:, None, :]]

    def stills(self, count, h, w):
        """[count, 3, h, w] in [0, 1]: half of the crops from the smallest, sharpest level that is large enough."""
        levels = [level for level in LEVELS if level >= max(h, w)]
        first = [count // (2 * len(levels))] * (len(levels) - 1)
        counts = first + [count - sum(first)]
        x = planes(torch.cat([self.crops(level, n, h, w) for level, n in zip(levels, counts)]))
        if h == w:
            x = torch.where(self.unit(count, 1, 1, 1) < 0.5, x.transpose(2, 3), x)
        mask = self.masks(count, self.places(count, TILE, h)[:, None], self.places(count, TILE, w)[:, None])[:, 0]
        return torch.where(self.unit(count, 1, 1, 1) < DRAWN, torch.lerp(self.ground(x), self.colour(count), mask), x)

    def masks(self, count, y, x):
        """Masks [count, T, 1, h, w] at indices [count, T, h] and [count, T, w]; half of them are inverted."""
        i = torch.randint(len(self.train.masks), (count, 1, 1, 1), device=self.device)
        mask = self.train.masks[i, y[..., :, None], x[..., None, :]].float() / 255
        return torch.where(self.unit(count, 1, 1, 1) < 0.3, 1 - mask, mask)[:, :, None]

    def colour(self, count):
        """[count, 3, 1, 1]; a third is black or white."""
        tone = (self.unit(count, 1, 1, 1) < 0.5).float().expand(-1, 3, -1, -1)
        return torch.where(self.unit(count, 1, 1, 1) < 0.35, tone, self.unit(count, 3, 1, 1))

    def ground(self, photo, kept=0.4):
        """A share of the photographs, flat colours and gradients."""
        n, _, h, w = photo.shape
        y = torch.linspace(-1, 1, h, device=self.device).view(1, 1, h, 1)
        x = torch.linspace(-1, 1, w, device=self.device).view(1, 1, 1, w)
        turn = self.unit(n, 1, 1, 1) * 6.2832
        ramp = (0.5 + 0.5 * (turn.cos() * x + turn.sin() * y)).clamp(0, 1)
        plain = torch.lerp(self.colour(n), self.colour(n), ramp * (self.unit(n, 1, 1, 1) < 0.5))
        return torch.where(self.unit(n, 1, 1, 1) < kept, photo, plain)

    def shape(self, count, frames, h, w):
        """Masks [count, T, 1, h, w] of a rectangle or an ellipse that moves."""
        t = torch.arange(frames, device=self.device) - (frames - 1) / 2
        speed = (self.unit(count, 2) * 2 - 1) * FASTEST
        speed = torch.where(self.unit(count, 1) < 0.5, speed.round(), speed)
        # Speeds along one axis are common in the world.
        speed = speed * (self.unit(count, 2) > 0.25)
        middle = torch.stack([self.unit(count) * h, self.unit(count) * w], 1)
        at = middle[:, None] + speed[:, None] * t[:, None]                            # count T 2
        half = 4 + self.unit(count, 2).square() * 44
        dy = (torch.arange(h, device=self.device) + 0.5 - at[..., :1]).abs()[..., :, None]
        dx = (torch.arange(w, device=self.device) + 0.5 - at[..., 1:]).abs()[..., None, :]
        hy, hx = (half[:, i].view(-1, 1, 1, 1) for i in (0, 1))
        box = (hy - dy + 0.5).clamp(0, 1) * (hx - dx + 0.5).clamp(0, 1)
        round_ = ((1 - ((dy / hy).square() + (dx / hx).square()).sqrt()) * torch.minimum(hy, hx) + 0.5).clamp(0, 1)
        return torch.where(self.unit(count, 1, 1, 1) < 0.6, box, round_)[:, :, None]

    def clips(self, count, frames, h, w):
        """[count * frames, 3, h, w] in [0, 1] and the motion [count, 2]."""
        kind = self.unit(count)
        real, pan = kind < REAL, (kind >= REAL) & (kind < REAL + PANS)
        object_ = (kind >= REAL + PANS) & (kind < REAL + PANS + OBJECTS)
        slow = [self.speeds(count, 2), self.speeds(count, 2)]
        speed = [torch.where(pan, self.speeds(count, FASTEST), s) for s in slow]
        (y, vy), (x, vx) = (self.track(count, frames, n, s) for n, s in zip((h, w), speed))
        i = self.train.photos[TILE].draw(count).view(-1, 1, 1, 1)
        base = self.train.photos[TILE].tiles[i, y[..., :, None], x[..., None, :]]
        i = torch.randint(len(self.train.clips), (count, 1, 1, 1), device=self.device)
        t, y, x = (self.places(count, room, n) for room, n in ((FRAMES, frames), (SIDE, h), (SIDE, w)))
        shots = self.train.clips[i, t[:, :, None, None], y[:, None, :, None], x[:, None, None, :]]
        base = torch.where(real.view(-1, 1, 1, 1, 1), shots, base).permute(0, 1, 4, 2, 3).float() / 255
        drawn = self.drawn(base, object_)
        base = torch.where((real | pan).view(-1, 1, 1, 1, 1), base, drawn)
        motion = torch.stack([vy, vx], 1) * pan[:, None]
        return self.edited(base).flatten(0, 1), motion

    def drawn(self, base, object_):
        """Two shapes, or text that scrolls, over a ground."""
        count, frames, _, h, w = base.shape
        still = self.ground(base[:, 0], 0)[:, None].expand_as(base)
        ground = torch.where(self.unit(count, 1, 1, 1, 1) < 0.6, base, still)
        (y, _), (x, _) = (self.track(count, frames, n, self.speeds(count, FASTEST // 2)) for n in (h, w))
        text = torch.lerp(ground, self.colour(count)[:, None], self.masks(count, y, x))
        for _ in range(2):
            ground = torch.lerp(ground, self.colour(count)[:, None], self.shape(count, frames, h, w))
        return torch.where(object_.view(-1, 1, 1, 1, 1), ground, text)

    def edited(self, x):
        """Fades, and cuts to the next clip of the batch."""
        count, frames = x.shape[:2]
        t = torch.arange(frames, device=self.device).view(1, -1, 1, 1, 1)
        fades = self.unit(count, 1, 1, 1, 1) < FADES
        end = torch.where(fades, self.unit(count, 1, 1, 1, 1) * 1.4, 1.0)
        x = (x * (1 + (end - 1) * t / (frames - 1))).clamp(0, 1)
        cut = torch.where(self.unit(count, 1, 1, 1, 1) < CUTS, self.unit(count, 1, 1, 1, 1) * frames, float(frames))
        return torch.where(t >= cut, x.roll(1, 0), x)

    def coded(self, count, scale):
        """Originals [count * T, 3, 192, 192], their compressed inputs and the motion [count, 2]."""
        coded = self.train.coded[scale]
        drawn = torch.randint(len(coded.inputs), (count,), device=self.device)
        inputs = coded.inputs[drawn]
        real, i, t0, y0, x0, vy, vx = coded.places[drawn].unbind(1)
        t, step = torch.arange(inputs.shape[1], device=self.device), torch.arange(192, device=self.device)
        at = lambda start, speed: (start[:, None] + speed[:, None] * t)[:, :, None] + step
        y, x = at(y0, vy)[..., :, None], at(x0, vx)[..., None, :]
        wide = lambda v: v.view(-1, 1, 1, 1)
        photos, clips = self.train.photos[TILE].tiles, self.train.clips
        pans = photos[wide(torch.where(real > 0, 0, i)), y, x]
        times = (t0[:, None] + t).clamp(max=FRAMES - 1)
        inside = lambda v: v.clamp(max=SIDE - 1)
        shots = clips[wide(torch.where(real > 0, i, 0)), times[:, :, None, None], inside(y), inside(x)]
        frames = torch.where((real > 0).view(-1, 1, 1, 1, 1), shots, pans)
        return planes(frames.flatten(0, 1)), planes(inputs.flatten(0, 1)), -torch.stack([vy, vx], 1)
