"""Photographs and clips, decoded once and kept on the device as bytes; random crops of them, batched."""
import io
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from PIL import Image

TILE, SIDE, FRAMES = 512, 256, 17


def decode(data):
    return torch.from_numpy(np.array(Image.open(io.BytesIO(data)).convert("RGB")))


def read(path):
    """Every picture of a tar: name to [H, W, 3] bytes."""
    with tarfile.open(path) as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar if m.name.endswith(".jpg")}
    with ThreadPoolExecutor() as pool:
        return dict(zip(files, pool.map(decode, files.values())))


class Train:
    """The training set on a device. Every HELD-th photograph is held back to watch the training by."""
    HELD = 40

    def __init__(self, path, device):
        pictures = dict(sorted(read(path).items()))
        photos = [p for n, p in pictures.items() if "img/" in n and p.shape[:2] == (TILE, TILE)]
        clips = [p.view(FRAMES, SIDE, SIDE, 3) for n, p in pictures.items() if "vid/" in n]
        self.held = torch.stack(photos[::self.HELD]).to(device)
        self.photos = torch.stack([p for i, p in enumerate(photos) if i % self.HELD]).to(device)
        self.clips = torch.stack(clips).to(device)
        self.device = device

    def places(self, count, room, size, flip=True):
        """A random range of indices [count, size] each, some of them backwards."""
        start = (torch.rand(count, 1, device=self.device) * (room - size + 1)).long()
        step = torch.arange(size, device=self.device)
        back = (torch.rand(count, 1, device=self.device) < 0.5) & flip
        return start + torch.where(back, size - 1 - step, step)

    def stills(self, count, h, w):
        """[count, 3, h, w] in [0, 1]."""
        i = torch.randint(len(self.photos), (count, 1, 1), device=self.device)
        y, x = self.places(count, TILE, h), self.places(count, TILE, w)
        return planes(self.photos[i, y[:, :, None], x[:, None, :]])

    def moving(self, count, frames, h, w):
        """[count * frames, 3, h, w]: half real clips, half photographs that the camera pans over."""
        real = (count + 1) // 2
        i = torch.randint(len(self.clips), (real, 1, 1, 1), device=self.device)
        t, y, x = self.places(real, FRAMES, frames), self.places(real, SIDE, h), self.places(real, SIDE, w)
        shots = self.clips[i, t[:, :, None, None], y[:, None, :, None], x[:, None, None, :]]
        return planes(torch.cat([shots, self.pans(count - real, frames, h, w)]).flatten(0, 1))

    def pans(self, count, frames, h, w, fastest=4):
        reach = fastest * (frames - 1)
        i = torch.randint(len(self.photos), (count, 1, 1, 1), device=self.device)
        t = torch.arange(frames, device=self.device)
        speed = torch.randint(-fastest, fastest + 1, (2, count, 1), device=self.device)
        y, x = self.places(count, TILE - 2 * reach, h), self.places(count, TILE - 2 * reach, w)
        y = y[:, None, :] + reach + (speed[0] * t)[:, :, None]
        x = x[:, None, :] + reach + (speed[1] * t)[:, :, None]
        return self.photos[i, y[:, :, :, None], x[:, :, None, :]]


def planes(pixels):
    """Bytes [N, h, w, 3] to [N, 3, h, w] in [0, 1], channels last in memory."""
    return pixels.permute(0, 3, 1, 2).float() / 255


def validation(path):
    """Photographs and clips [T, 3, H, W] in [0, 1], by name."""
    photos, clips = {}, {}
    for name, picture in sorted(read(path).items()):
        if "img/" in name:
            photos[name.split("/")[-1]] = planes(picture[None])
        else:
            clips.setdefault(name.split("/")[-2], []).append(planes(picture[None]))
    return photos, {name: torch.cat(frames) for name, frames in clips.items()}
