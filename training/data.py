"""The training data, decoded once and kept on the device as bytes, and the validation set."""
import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

import degrade

TILE, SIDE, FRAMES = 512, 256, 17
LEVELS = (512, 352, 256)                 # downscaled copies of the tiles: smaller ones are sharper


def decode(data):
    image = Image.open(io.BytesIO(data))
    return torch.from_numpy(np.array(image if image.mode == "L" else image.convert("RGB")))


def read(path):
    """Every image of a tar, name to [H, W, 3] or [H, W] bytes, and the list of compressed clips."""
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar if m.name.endswith((".jpg", ".png", ".json"))}
    coded = json.loads(files.pop("coded.json", b"[]"))
    with ThreadPoolExecutor() as pool:
        return dict(sorted(zip(files, pool.map(decode, files.values())))), coded


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


class Coded:
    """Compressed clips of one scale: the inputs, and the place of each original."""

    def __init__(self, sets, images, photos, clips, device):
        inputs, places = [], []
        for number, group in sets:
            side = 192 // group["scale"]
            frames = torch.stack([v for n, v in images.items() if n.startswith(f"coded/{number:02}/")])
            columns = frames.shape[2] // side
            for i, record in enumerate(group["records"]):
                name, known = ("clip", clips) if "clip" in record else ("photo", photos)
                if record[name] not in known:                  # held back
                    continue
                y, x = i // columns * side, i % columns * side
                inputs.append(frames[:, y:y + side, x:x + side])
                kind = [name == "clip", known.index(record[name])]
                places.append(kind + [record[k] for k in ("t", "y", "x", "vy", "vx")])
        self.inputs, self.places = torch.stack(inputs).to(device), torch.tensor(places, device=device)


class Train:
    """The training set on a device. Every HELD-th photograph is held back to monitor the training."""
    HELD = 40

    def __init__(self, path, device):
        images, coded = read(path)
        tiles = {n: p for n, p in images.items() if "img/" in n and p.shape[:2] == (TILE, TILE)}
        names = [n for i, n in enumerate(tiles) if i % self.HELD]
        clips = {n: p.view(FRAMES, SIDE, SIDE, 3) for n, p in images.items() if "vid/" in n}
        self.device = device
        self.held = torch.stack([p for i, p in enumerate(tiles.values()) if i % self.HELD == 0]).to(device)
        whole = torch.stack([tiles[n] for n in names]).to(device)
        self.photos = {side: Photos(whole, side) for side in LEVELS}
        self.clips = torch.stack(list(clips.values())).to(device)
        masks = [p for n, p in images.items() if n.startswith("mask/")] or [torch.zeros(TILE, TILE, dtype=torch.uint8)]
        self.masks = torch.stack(masks).to(device)
        self.coded = {}
        for scale in {group["scale"] for group in coded}:
            sets = [(i, group) for i, group in enumerate(coded) if group["scale"] == scale]
            self.coded[scale] = Coded(sets, images, names, list(clips), device)


def planes(pixels):
    """Bytes [N, h, w, 3] to [N, 3, h, w] in [0, 1], channels last in memory."""
    return pixels.permute(0, 3, 1, 2).float() / 255


def validation(path):
    """Photographs and clips [T, 3, H, W] in [0, 1], by name."""
    photos, clips = {}, {}
    for name, image in read(path)[0].items():
        if "img/" in name:
            photos[name.split("/")[-1]] = planes(image[None])
        else:
            clips.setdefault(name.split("/")[-2], []).append(planes(image[None]))
    return photos, {name: torch.cat(frames) for name, frames in clips.items()}
