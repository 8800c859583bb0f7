"""Packs the training data small, with material that is made here: python3 pack.py --data DIR --out FILE

The file is a tar of photographs, clips, masks (text in the fonts of this machine, line art) and clips that ffmpeg
compressed. It needs numpy, pillow and ffmpeg, and no torch.
"""
import argparse
import io
import json
import random
import subprocess
import tarfile
from pathlib import Path

import numpy as np
from PIL import Image

import masks
from arguments import add_data, data_file

TILE, SIDE, FRAMES = 512, 256, 17        # as in the data: photographs, sides and frames of clips
CROP, LENGTH, FASTEST = 192, 9, 16       # of compressed clips: side, frames, pixels per frame of a pan
# Canvas and options of each encoder: every cell of a canvas is a clip. DV has one size.
CANVAS, DV_CANVAS = (768, 576), (672, 576)
H264 = lambda crf: ("libx264", CANVAS, ["-preset", "medium", "-crf", str(crf)])
MPEG2 = lambda q: ("mpeg2video", CANVAS, ["-qscale:v", str(q), "-g", "12", "-bf", "2"])
MPEG4 = lambda q: ("mpeg4", CANVAS, ["-qscale:v", str(q)])
DV = ("dvvideo", DV_CANVAS, ["-s", "720x576", "-r", "25"])
ENCODERS = {2: [H264(24), H264(30), H264(36), MPEG2(6), MPEG2(14), MPEG4(10), DV], 4: [H264(26), H264(34), MPEG2(10)]}


def jpeg(image, quality):
    data = io.BytesIO()
    image.save(data, "JPEG", quality=quality, subsampling=0, optimize=True)
    return data.getvalue()


def shot(rng, photos, clips):
    """A record that names a clip of CROP x CROP pixels and LENGTH frames: a part of a real clip, or a pan."""
    if rng.random() < 0.4:
        room = SIDE - CROP
        return dict(clip=rng.choice(clips), t=rng.randint(0, FRAMES - LENGTH), y=rng.randint(0, room),
                    x=rng.randint(0, room), vy=0, vx=0)
    record = dict(photo=rng.choice(photos), t=0)
    for axis in "yx":
        speed = rng.randint(-FASTEST, FASTEST) if rng.random() < 0.6 else rng.randint(-2, 2)
        reach = abs(speed) * (LENGTH - 1)
        record |= {"v" + axis: speed, axis: rng.randint(0, TILE - CROP - reach) + (reach if speed < 0 else 0)}
    return record


def frames_of(record, images):
    """Its frames, as the training cuts them."""
    if "clip" in record:
        stack = images[record["clip"]].reshape(FRAMES, SIDE, SIDE, 3)[record["t"]:record["t"] + LENGTH]
        return stack[:, record["y"]:record["y"] + CROP, record["x"]:record["x"] + CROP]
    at = [(record["y"] + t * record["vy"], record["x"] + t * record["vx"]) for t in range(LENGTH)]
    return np.stack([images[record["photo"]][y:y + CROP, x:x + CROP] for y, x in at])


def through(codec, options, canvas):
    """Frames [T, H, W, 3] through an encoder and back."""
    t, h, w, _ = canvas.shape
    call = ["ffmpeg", "-v", "error", "-threads", "1", "-f", "rawvideo"]
    raw = ["-pix_fmt", "rgb24", "-s", f"{w}x{h}", "-r", "25", "-i", "-"]
    flags = ["-sws_flags", "bicubic+accurate_rnd+full_chroma_int"]
    coded = subprocess.run([*call, *raw, *flags, "-pix_fmt", "yuv420p", "-c:v", codec, *options, "-f", "nut", "-"],
                           input=canvas.tobytes(), capture_output=True, check=True).stdout
    back = subprocess.run(["ffmpeg", "-v", "error", "-i", "-", *flags, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"],
                          input=coded, capture_output=True, check=True).stdout
    return np.frombuffer(back, np.uint8).reshape(t, h, w, 3)


def compressed(rng, images, scale, encoder):
    """A canvas of clips through an encoder: its frames, and the record of every cell in rows."""
    codec, (width, height), options = encoder
    side = CROP // scale
    photos = [n for n in images if "img/" in n]
    clips = [n for n in images if "vid/" in n]
    records = [shot(rng, photos, clips) for _ in range(width // side * (height // side))]
    size = (720, 576) if codec == "dvvideo" else (width, height)
    canvas = np.zeros((LENGTH, size[1], size[0], 3), np.uint8)
    for i, record in enumerate(records):
        y, x = i // (width // side) * side, i % (width // side) * side
        for t, frame in enumerate(frames_of(record, images)):
            small = Image.fromarray(frame).resize((side, side), Image.BICUBIC)
            canvas[t, y:y + side, x:x + side] = small
    return through(codec, options, canvas)[:, :height, :width], records


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data(parser)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--quality", type=int, help="compress photographs and clips again")
    parser.add_argument("--tiles", type=Path, help="folder with more tiles, as tiles.py writes them")
    parser.add_argument("--masks", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng, images = random.Random(args.seed), {}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(data_file(parser, args, "train.tar")) as source, tarfile.open(args.out, "w") as out:
        def add(name, data):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            out.addfile(info, io.BytesIO(data))

        def add_image(name, data):
            images[name] = np.array(Image.open(io.BytesIO(data)).convert("RGB"))
            add(name, data)

        for member in sorted((m for m in source if m.name.endswith(".jpg")), key=lambda m: m.name):
            image = Image.open(source.extractfile(member)).convert("RGB")
            if "img/" in member.name and image.size != (TILE, TILE):
                continue
            data = source.extractfile(member).read() if args.quality is None else jpeg(image, args.quality)
            add_image(member.name, data)
        for path in sorted(args.tiles.glob("*.jpg")) if args.tiles else []:
            add_image(f"img/more_{path.name}", path.read_bytes())
        for i in range(args.masks):
            data = io.BytesIO()
            masks.mask(rng, i).save(data, "PNG", optimize=True)
            add(f"mask/{i:03}.png", data.getvalue())
        listed = []
        for scale, encoders in ENCODERS.items():
            for encoder in encoders:
                canvas, records = compressed(rng, images, scale, encoder)
                listed.append(dict(scale=scale, codec=encoder[0], records=records))
                for t, frame in enumerate(canvas):
                    add(f"coded/{len(listed) - 1:02}/{t:02}.jpg", jpeg(Image.fromarray(frame), 90))
        add("coded.json", json.dumps(listed).encode())
    print(args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
