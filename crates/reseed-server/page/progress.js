// Progress that moves between two events of the server, at the rate of the job.

const EASE = 350; // milliseconds in which most of a correction is shown
const still = matchMedia('(prefers-reduced-motion: reduce)');

export class Progress {
  constructor() {
    Object.assign(this, { done: 0, total: null, fps: 0, eta: null, at: 0, step: 1, shown: 0, drawn: 0 });
  }

  // What the server reports. Frames arrive batch by batch; the bar may run ahead by one batch and no more.
  report({ done, total, fps, eta_seconds: eta }, running) {
    const now = performance.now();
    if (done > this.done) this.step = Math.max(1, done - this.done);
    if (done < this.done || !running) this.shown = done;
    const changed = done !== this.done || (eta !== null && eta !== this.eta);
    if (changed || !running || !this.at) this.at = now;
    Object.assign(this, { done, total, eta, fps: running ? fps || 0 : 0, drawn: this.drawn || now });
  }

  share(now) {
    if (!this.total) return 0;
    const ahead = still.matches ? 0 : Math.min(this.fps * (now - this.at) / 1000, this.step * 0.95);
    const target = Math.min(this.total, this.done + ahead);
    const eased = still.matches ? 1 : 1 - Math.exp(-(now - this.drawn) / EASE);
    this.shown = Math.max(this.shown, this.shown + (target - this.shown) * eased);
    this.drawn = now;
    return Math.min(1, this.shown / this.total);
  }

  left(now) {
    return this.eta === null || this.eta === undefined ? null : Math.max(0, this.eta - (now - this.at) / 1000);
  }
}
