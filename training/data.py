"""Photographs and clips, decoded once and kept on the device as bytes; random crops of them, batched."""
import io
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

import degrade

TILE, SIDE, FRAMES = 512, 256, 17
LEVELS = (512, 352, 256)                 # downscaled copies of the tiles: smaller ones are sharper


def decode(data):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB")))


def read(path):
    """Every image of a tar: name to [H, W, 3] bytes."""
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar if m.name.endswith(".jpg")}
    with ThreadPoolExecutor() as pool:
        return dict(zip(files, pool.map(decode, files.values())))


class Photos:
    """Tiles of one size on a device, drawn with a probability that grows with their detail."""

    def __init__(self, tiles, side):
        shrink = lambda part: degrade.resize(planes(part), side, side).clamp(0, 1)
        small = [shrink(part) for part in tiles.split(32)]
        self.side, self.tiles = side, torch.cat([(part * 255).round().byte().permute(0, 2, 3, 1) for part in small])
        shares = torch.cat([detail(part) for part in small]).cumsum(0)
        self.shares = shares / shares[-1]

    def draw(self, count):
        places = torch.searchsorted(self.shares, torch.rand(count, device=self.shares.device))
        return places.clamp(max=len(self.tiles) - 1)


def detail(x):
    """Root mean square of the loss of images at a quarter of their size."""
    n, side = x.shape[0], x.shape[-1]
    lost = x - degrade.resize(degrade.resize(x, side // 4, side // 4), side, side)
    return lost.view(n, -1).square().mean(1).sqrt()


class Train:
    """The training set on a device. Every HELD-th photograph is held back to monitor the training."""
    HELD = 40

    def __init__(self, path, device):
        images = dict(sorted(read(path).items()))
        photos = [p for n, p in images.items() if "img/" in n and p.shape[:2] == (TILE, TILE)]
        clips = [p.view(FRAMES, SIDE, SIDE, 3) for n, p in images.items() if "vid/" in n]
        self.held = torch.stack(photos[::self.HELD]).to(device)
        tiles = torch.stack([p for i, p in enumerate(photos) if i % self.HELD]).to(device)
        self.photos = {side: Photos(tiles, side) for side in LEVELS}
        self.clips = torch.stack(clips).to(device)
        self.device = device

    def places(self, count, room, size, flip=True):
        """Random ranges of indices, [count, size], half of them reversed."""
        start = (torch.rand(count, 1, device=self.device) * (room - size + 1)).long()
        step = torch.arange(size, device=self.device)
        back = (torch.rand(count, 1, device=self.device) < 0.5) & flip
        return start + torch.where(back, size - 1 - step, step)

    def stills(self, count, h, w, level=TILE):
        """[count, 3, h, w] in [0, 1]; half of the square crops are transposed."""
        photos = self.photos[level]
        y, x = self.places(count, level, h), self.places(count, level, w)
        crops = photos.tiles[photos.draw(count)[:, None, None], y[:, :, None], x[:, None, :]]
        if h == w:
            turned = torch.rand(count, 1, 1, 1, device=self.device) < 0.5
            crops = torch.where(turned, crops.transpose(1, 2), crops)
        return planes(crops)

    def moving(self, count, frames, h, w):
        """[count * frames, 3, h, w]: half real clips, half pans over photographs."""
        real = (count + 1) // 2
        i = torch.randint(len(self.clips), (real, 1, 1, 1), device=self.device)
        t, y, x = self.places(real, FRAMES, frames), self.places(real, SIDE, h), self.places(real, SIDE, w)
        shots = self.clips[i, t[:, :, None, None], y[:, None, :, None], x[:, None, None, :]]
        return planes(torch.cat([shots, self.pans(count - real, frames, h, w)]).flatten(0, 1))

    def pans(self, count, frames, h, w, fastest=4):
        reach = fastest * (frames - 1)
        i = self.photos[TILE].draw(count)[:, None, None, None]
        t = torch.arange(frames, device=self.device)
        speed = torch.randint(-fastest, fastest + 1, (2, count, 1), device=self.device)
        y, x = self.places(count, TILE - 2 * reach, h), self.places(count, TILE - 2 * reach, w)
        y = y[:, None, :] + reach + (speed[0] * t)[:, :, None]
        x = x[:, None, :] + reach + (speed[1] * t)[:, :, None]
        return self.photos[TILE].tiles[i, y[:, :, :, None], x[:, :, None, :]]


def planes(pixels):
    """Bytes [N, h, w, 3] to [N, 3, h, w] in [0, 1], channels last in memory."""
    return pixels.permute(0, 3, 1, 2).float() / 255


def validation(path):
    """Photographs and clips [T, 3, H, W] in [0, 1], by name."""
    photos, clips = {}, {}
    for name, image in sorted(read(path).items()):
        if "img/" in name:
            photos[name.split("/")[-1]] = planes(image[None])
        else:
            clips.setdefault(name.split("/")[-2], []).append(planes(image[None]))
    return photos, {name: torch.cat(frames) for name, frames in clips.items()}
