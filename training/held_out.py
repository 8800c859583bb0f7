"""Makes a test set from wallpapers of Debian packages that no training set uses.

    apt-get download mate-backgrounds plasma-workspace-wallpapers
    for package in *.deb; do dpkg-deb -x $package unpacked; done
    python held_out.py unpacked held-out

Every photograph is reduced until its own compression and blur are gone, and the square with the most detail is kept.
"""
import argparse
import pathlib

import numpy
from PIL import Image

SIDE = 320  # of the squares
SHORT = 800  # shorter side of the reduced photographs
# (file below /usr/share, author); GPL-2+ for MATE, LGPL-3 for Plasma, as their packages state
PHOTOGRAPHS = (
    ("backgrounds/mate/nature/Aqua.jpg", "Charles Barbin"),
    ("backgrounds/mate/nature/Garden.jpg", "Charles Barbin"),
    ("backgrounds/mate/nature/LadyBird.jpg", "Charles Barbin"),
    ("backgrounds/mate/nature/YellowFlower.jpg", "Charles Barbin"),
    ("backgrounds/mate/nature/Blinds.jpg", "Lennart Poettering and Andrea Cimitan"),
    ("backgrounds/mate/nature/Dune.jpg", "Marco Cogoni and Hylke Bons"),
    ("backgrounds/mate/nature/Wood.jpg", "Jean-François Fortin Tam"),
    ("wallpapers/Autumn/contents/images/2560x1600.jpg", "RJ Quiralta"),
    ("wallpapers/BytheWater/contents/images/2560x1600.jpg", "Maciej Wiklo"),
    ("wallpapers/ColorfulCups/contents/images/2560x1600.jpg", "Dmitri Popov"),
    ("wallpapers/FallenLeaf/contents/images/2560x1600.jpg", "Martin Klapetek"),
    ("wallpapers/Path/contents/images/2560x1600.jpg", "Risto Saukonpää"),
)


def busiest_square(image):
    """The square whose luma differs most between neighbours, on a grid of half squares."""
    luma = numpy.asarray(image.convert("L"), numpy.float32)
    change = numpy.zeros_like(luma)
    change[:, 1:] += numpy.abs(numpy.diff(luma, axis=1))
    change[1:] += numpy.abs(numpy.diff(luma, axis=0))
    height, width = luma.shape
    places = [(y, x) for y in range(0, height - SIDE + 1, SIDE // 2) for x in range(0, width - SIDE + 1, SIDE // 2)]
    y, x = max(places, key=lambda at: change[at[0]:at[0] + SIDE, at[1]:at[1] + SIDE].sum())
    return image.crop((x, y, x + SIDE, y + SIDE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("unpacked", type=pathlib.Path, help="folder with the unpacked packages")
    parser.add_argument("out", type=pathlib.Path, help="folder of the set")
    args = parser.parse_args()
    (args.out / "img").mkdir(parents=True, exist_ok=True)
    for name, _ in PHOTOGRAPHS:
        path = args.unpacked / "usr/share" / name
        parts = pathlib.Path(name).parts
        stem = path.stem if "mate" in parts else parts[1]
        image = Image.open(path).convert("RGB")
        scale = SHORT / min(image.size)
        image = image.resize([round(side * scale) for side in image.size], Image.LANCZOS)
        busiest_square(image).save(args.out / "img" / f"{stem}.png")


if __name__ == "__main__":
    main()
