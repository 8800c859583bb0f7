// A place in a clip: a slider with single steps.

import { debounce, h, iconButton, setText, timecode } from './dom.js';

const WAIT = 120; // milliseconds of rest before a frame is asked for

export class Playhead {
  constructor(root, onseek) {
    const settle = debounce(WAIT, onseek);
    this.range = h('input', { type: 'range', value: 0, ariaLabel: 'Time', oninput: () => this.changed(settle) });
    this.time = h('output', { className: 'time' });
    const step = (by) => () => {
      this.range.value = Number(this.range.value) + by;
      this.changed(settle);
    };
    this.root = root;
    root.classList.add('playhead');
    root.append(iconButton('back', 'One frame back', step(-1)), this.range, iconButton('next', 'One frame on', step(1)),
      this.time);
  }

  setClip({ seconds, fps }, at = 0) {
    this.fps = fps || 25;
    this.frames = Math.max(1, Math.round((seconds || 0) * this.fps));
    this.range.max = this.frames - 1;
    this.range.value = Math.round(at * this.fps);
    this.root.hidden = this.frames < 2;
    this.label();
  }

  // The middle of the frame, so that rounding does not choose its neighbour.
  get at() {
    return this.root.hidden ? 0 : Math.round((Number(this.range.value) + 0.5) / this.fps * 1e4) / 1e4;
  }

  changed(settle) {
    this.label();
    settle();
  }

  label() {
    const [now, end] = [Number(this.range.value), this.frames].map((frame) => timecode(frame / this.fps));
    setText(this.time, `${now} / ${end}`);
    this.range.ariaValueText = `${now} of ${end}`;
  }
}
