"""Masks, 512 pixels wide: text in the fonts of this machine, and line art. Training colours them."""
import random
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

SIDE, FINER = 512, 2                     # drawn at FINER times the size
FONTS = Path("/usr/share/fonts")
WORDS = ("the quick restored frame of a video shows one line at noon where light falls on water and every letter must "
         "stay sharp Directed by Produced with Music Camera Editing 1984 2026 00:42 17% Copyright Station Platform "
         "Größe façade señor Þórr łódź Ελλάδα ταχύς Москва кадр свет").split()
# A font of a script is known by a part of its path.
SCRIPTS = {"wqy": "视频修复帧光线水面每个字母清晰导演摄影音乐剪辑车站月台", "ipa": "映像の復元は線を鮮明に保ちます監督撮影音楽駅",
           "nanum": "영상복원은모든선을선명하게유지합니다감독촬영음악역", "lohit": "चित्रकोसाफरखनाप्रकाशजलरेखा",
           "amiri": "الصورةواضحةكلحرفالضوءالماء"}


@cache
def fonts():
    found = sorted(p for p in FONTS.rglob("*") if p.suffix.lower() in (".ttf", ".otf", ".ttc"))
    if not found:
        raise SystemExit(f"no fonts: {FONTS} holds no .ttf, .otf or .ttc file; install a font package")
    return found


def words(rng, path):
    for part, letters in SCRIPTS.items():
        if part in str(path).lower():
            return "".join(rng.choice(letters) for _ in range(rng.randint(2, 9)))
    word = rng.choice(WORDS)
    return word.upper() if rng.random() < 0.2 else word


def text(rng, image):
    """Lines of text from top to bottom, each block in its own font and size."""
    draw, y = ImageDraw.Draw(image), 0
    while y < image.height:
        path = rng.choice(fonts())
        size = int(rng.choice((9, 11, 13, 16, 20, 26, 34, 48, 72, 110)) * FINER * rng.uniform(0.9, 1.1))
        try:
            font = ImageFont.truetype(str(path), size)
        except OSError:
            continue
        for _ in range(rng.randint(1, 5)):
            line = " ".join(words(rng, path) for _ in range(rng.randint(1, 2 + 6 * 20 * FINER // size)))
            x = rng.choice((4, rng.randint(0, image.width // 2)))
            draw.text((x, y), line, 255, font, stroke_width=rng.choice((0, 0, 0, 0, size // 24)))
            y += int(size * rng.uniform(1.05, 1.5))


def line_art(rng, image):
    """Lines, curves, outlines, hatching and filled shapes."""
    draw, side = ImageDraw.Draw(image), image.width
    place = lambda: (rng.uniform(0, side), rng.uniform(0, side))
    for _ in range(rng.randint(12, 40)):
        width, kind, (x, y), reach = rng.choice((1, 2, 2, 3, 4, 6, 10)), rng.random(), place(), rng.uniform(8, side / 3)
        box, value = (x, y, x + reach, y + reach * rng.uniform(0.4, 1.4)), rng.choice((0, 255, 255))
        if kind < 0.3:
            draw.line([place() for _ in range(rng.randint(2, 5))], 255, width, joint="curve")
        elif kind < 0.45:
            draw.ellipse(box, outline=255, width=width)
        elif kind < 0.55:
            draw.rectangle(box, fill=value)
        elif kind < 0.65:
            draw.ellipse(box, fill=value)
        elif kind < 0.75:
            draw.polygon([place() for _ in range(3)], outline=255, width=width)
        elif kind < 0.87:
            step = rng.randint(2 * width, 8 * width + 4)
            for offset in range(0, int(reach), step):
                draw.line((x + offset, y, x + offset + reach * rng.choice((0, 0.3)), y + reach), 255, width)
        else:
            draw.arc(box, rng.uniform(0, 180), rng.uniform(180, 360), 255, width)


def mask(rng: random.Random, i):
    """Two of three masks are text."""
    image = Image.new("L", (SIDE * FINER, SIDE * FINER))
    (line_art if i % 3 == 2 else text)(rng, image)
    return image.resize((SIDE, SIDE), Image.BOX)
