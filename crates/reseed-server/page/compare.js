// Two images of the same frame: a wipe or side by side, to fit or with whole pixels of the screen.

import { choose, h, icon, iconButton, radios } from './dom.js';

const ZOOMS = [['fit', 'Fit'], ['1', '1:1'], ['2', '2:1'], ['4', '4:1']];
const MODES = [['wipe', 'Wipe'], ['side', 'Side by side']];
const SIDES = ['Input', 'Result'];
const STEP = 64; // pixels of the screen for an arrow key
const GRIP = 28; // pixels on either side of the line that move it in a zoomed view
let count = 0;

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
// Positions are whole device pixels, or the browser blurs the image.
const snap = (value) => Math.round(value * devicePixelRatio) / devicePixelRatio;

export class Compare {
  constructor(root) {
    const id = ++count;
    Object.assign(this, { zoom: 'fit', mode: 'wipe', center: [0, 0], size: null, both: false, shown: 0 });
    this.panes = SIDES.map((name, side) => h('div', { className: `pane side-${side}` }));
    this.tags = SIDES.map((name, side) => h('span', { className: `tag side-${side}`, ariaHidden: true }, name));
    this.line = h('div', { className: 'line' }, h('span', { className: 'grip' }, icon('grip')));
    this.cover = h('div', { className: 'cover' });
    this.stage = h('div', {
      className: 'stage', tabIndex: 0, role: 'group', ariaLabel: 'Comparison',
      'aria-describedby': `compare-help-${id}`,
    }, this.panes[1], this.panes[0], this.tags, this.line, this.cover);
    this.range = h('input', {
      type: 'range', min: 0, max: 100, step: 0.5, value: 50, ariaLabel: 'Wipe', oninput: () => this.render(),
    });
    this.zooms = radios(`zoom-${id}`, 'Zoom', ZOOMS, 'fit', (zoom) => this.setZoom(zoom));
    this.modes = radios(`mode-${id}`, 'View', MODES, 'wipe', (mode) => this.setMode(mode));
    this.bar = h('div', { className: 'compare-bar', hidden: true },
      h('label', { className: 'wipe' }, SIDES[0], this.range, SIDES[1]),
      this.modes, this.zooms,
      iconButton('expand', 'Full screen', () => this.fullscreen()));
    const help = h('p', { id: `compare-help-${id}`, className: 'unseen' },
      'Arrow keys move the wipe, or the view when it is zoomed. 0 fits, 1, 2 and 4 zoom, S shows both sides.');
    this.root = root;
    root.classList.add('compare');
    root.append(this.stage, this.bar, help);
    this.listen();
    new ResizeObserver(() => this.render()).observe(this.stage);
  }

  // Shows an image, or two of the same size. The view stays where it is, so that frames can be compared at one place.
  async show(before, after = null) {
    const turn = ++this.shown;
    const loaded = await Promise.all([before, after].filter(Boolean).map(async (src, side) => {
      const image = h('img', { src, alt: SIDES[side] });
      await image.decode();
      return image;
    }));
    if (turn !== this.shown) return;
    const { naturalWidth, naturalHeight } = loaded.at(-1);
    const size = [naturalWidth, naturalHeight];
    this.center = size.map((side, axis) => (this.size ? this.center[axis] * side / this.size[axis] : side / 2));
    this.size = size;
    this.both = loaded.length > 1;
    this.setImages(loaded);
    this.render();
  }

  clear() {
    this.shown++;
    this.size = null;
    this.both = false;
    this.setImages([]);
  }

  setImages(images) {
    this.images = images;
    this.panes.forEach((pane, side) => pane.replaceChildren(...images.slice(side, side + 1)));
    this.root.dataset.both = this.both;
    this.bar.hidden = images.length === 0;
  }

  say(...content) {
    this.cover.replaceChildren(...content);
    this.stage.classList.toggle('covered', content.length > 0);
  }

  setZoom(zoom, [x, y] = [0.5, 0.5]) {
    if (this.size && zoom !== this.zoom && zoom !== 'fit') {
      // The point of the image under the pointer stays under it.
      const { width, height, scale } = this.geometry();
      const next = Number(zoom) / devicePixelRatio;
      const away = [(x - 0.5) * width, (y - 0.5) * height];
      this.center = this.center.map((value, axis) => value + away[axis] / scale - away[axis] / next);
    }
    this.zoom = zoom;
    choose(this.zooms, zoom);
    this.render();
  }

  setMode(mode) {
    this.mode = mode;
    choose(this.modes, mode);
    this.render();
  }

  stepZoom(by, at) {
    const place = ZOOMS.findIndex(([name]) => name === this.zoom);
    this.setZoom(ZOOMS[clamp(place + by, 0, 3)][0], at);
  }

  fullscreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.root.requestFullscreen?.();
  }

  geometry() {
    const side = this.both && this.mode === 'side';
    const width = side ? (this.stage.clientWidth - 2) / 2 : this.stage.clientWidth;
    const height = this.stage.clientHeight;
    const fit = Math.min(width / this.size[0], height / this.size[1]);
    const scale = this.zoom === 'fit' ? fit : Number(this.zoom) / devicePixelRatio;
    return { side, width, height, scale };
  }

  render() {
    if (!this.size || !this.stage.clientWidth) return;
    const { side, width, height, scale } = this.geometry();
    const room = [width, height];
    const shown = this.size.map((length) => length * scale);
    const place = room.map((length, axis) => {
      if (shown[axis] <= length) {
        this.center[axis] = this.size[axis] / 2;
        return snap((length - shown[axis]) / 2);
      }
      const half = length / 2 / scale;
      this.center[axis] = clamp(this.center[axis], half, this.size[axis] - half);
      return snap(length / 2 - this.center[axis] * scale);
    });
    for (const { style } of this.images) {
      style.width = `${shown[0]}px`;
      style.height = `${shown[1]}px`;
      style.transform = `translate(${place[0]}px, ${place[1]}px)`;
      style.imageRendering = scale * devicePixelRatio >= 2 ? 'pixelated' : 'auto';
    }
    const left = Math.max(0, place[0]);
    const right = Math.min(width, place[0] + shown[0]);
    this.edges = [left, right];
    this.at = snap(left + (right - left) * this.range.value / 100);
    const wiping = this.both && !side;
    this.panes[0].style.clipPath = wiping ? `inset(0 ${width - this.at}px 0 0)` : 'none';
    this.line.style.transform = `translateX(${this.at}px)`;
    this.tags[0].classList.toggle('faint', wiping && this.at < 80);
    this.tags[1].classList.toggle('faint', wiping && this.at > width - 80);
    this.range.ariaValueText = `${Math.round(this.range.value)} % input`;
    this.range.disabled = side;
    Object.assign(this.stage.dataset, { mode: side ? 'side' : 'wipe', zoomed: shown[0] > width || shown[1] > height });
  }

  wipeTo(x) {
    const [left, right] = this.edges;
    this.range.value = 100 * (x - left) / Math.max(1, right - left);
    this.render();
  }

  pan(x, y) {
    const { scale } = this.geometry();
    this.center = [this.center[0] - x / scale, this.center[1] - y / scale];
    this.render();
  }

  listen() {
    const { stage } = this;
    const zoomed = () => stage.dataset.zoomed === 'true';
    stage.addEventListener('pointerdown', (event) => {
      if (!this.size || event.button !== 0) return;
      const x = event.clientX - stage.getBoundingClientRect().left;
      const wiping = this.both && stage.dataset.mode === 'wipe';
      const moves = wiping && (!zoomed() || Math.abs(x - this.at) < GRIP || event.shiftKey);
      if (!moves && !zoomed()) return;
      stage.setPointerCapture(event.pointerId);
      this.drag = { moves, from: [event.clientX, event.clientY] };
      stage.classList.add(moves ? 'wiping' : 'panning');
      if (moves) this.wipeTo(x);
    });
    stage.addEventListener('pointermove', (event) => {
      if (!this.drag) return;
      const { moves, from: [x, y] } = this.drag;
      if (moves) this.wipeTo(event.clientX - stage.getBoundingClientRect().left);
      else this.pan(event.clientX - x, event.clientY - y);
      this.drag.from = [event.clientX, event.clientY];
    });
    for (const kind of ['pointerup', 'pointercancel']) {
      stage.addEventListener(kind, () => {
        this.drag = null;
        stage.classList.remove('wiping', 'panning');
      });
    }
    const at = (event) => {
      const box = stage.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    stage.addEventListener('dblclick', (event) => this.setZoom(this.zoom === 'fit' ? '1' : 'fit', at(event)));
    stage.addEventListener('wheel', (event) => {
      // A plain wheel scrolls the page; a pinch arrives with Ctrl.
      if (!event.ctrlKey || !this.size) return;
      event.preventDefault();
      const now = performance.now();
      if (now - (this.wheeled || 0) < 150) return;
      this.wheeled = now;
      this.stepZoom(event.deltaY < 0 ? 1 : -1, at(event));
    }, { passive: false });
    stage.addEventListener('keydown', (event) => this.key(event, zoomed()));
  }

  key(event, zoomed) {
    if (!this.size || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    const far = event.shiftKey ? 4 : 1;
    const wipe = (value) => { this.range.value = value; this.render(); };
    const keys = {
      '+': () => this.stepZoom(1), '-': () => this.stepZoom(-1), 0: () => this.setZoom('fit'),
      s: () => this.setMode(this.mode === 'side' ? 'wipe' : 'side'), f: () => this.fullscreen(),
      Home: () => wipe(0), End: () => wipe(100),
    };
    if (arrow && zoomed) this.pan(arrow[0] * STEP * far, arrow[1] * STEP * far);
    else if (arrow?.[0] && this.both) wipe(Number(this.range.value) - arrow[0] * 2 * far);
    else if (['1', '2', '4'].includes(event.key)) this.setZoom(event.key);
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  }
}
