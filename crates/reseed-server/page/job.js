// One job in the list of the queue.

import { bar, base, bytes, duration, fill, h, icon, iconButton, line, pixels, plural, rate, setText } from './dom.js';
import { Progress } from './progress.js';

const ACTIONS = {
  up: ['up', 'Move up'], down: ['down', 'Move down'], pause: ['pause', 'Pause'], resume: ['play', 'Resume'],
  cancel: ['stop', 'Cancel'], retry: ['retry', 'Try again'], continue: ['play', 'Resume'],
  compare: ['compare', 'Compare'], download: ['drop', 'Download'],
  remove: ['bin', 'Remove from the list'],
};
const BY_STATE = {
  queued: ['up', 'down', 'pause', 'cancel'], running: ['pause', 'cancel'], paused: ['resume', 'cancel'],
  failed: ['retry', 'remove'], cancelled: ['continue', 'remove'], done: ['compare', 'download', 'remove'],
};
const STATES = {
  queued: 'Waiting', running: 'Running', paused: 'Paused', done: 'Done', failed: 'Failed', cancelled: 'Cancelled',
};
const PHASES = { wait: 'Preparing', encode: 'Encoding', upscale: 'Restoring', decode: 'Decoding' };

export function download(job, options) {
  return h('a', { className: 'button', href: `/v1/jobs/${job.id}/result`, download: '', ...options },
    icon('drop'), 'Download');
}

export class JobItem {
  constructor(job, act) {
    this.act = act;
    this.name = job.input_name || base(job.input);
    this.progress = new Progress();
    this.badge = h('span', { className: 'badge' });
    this.facts = h('p', { className: 'soft' });
    this.counts = h('p', { className: 'job-counts' });
    this.bar = bar(`Progress of ${this.name}`);
    this.problem = h('p', { className: 'problem', hidden: true });
    this.warnings = h('details', { className: 'warnings', hidden: true }, h('summary'), h('ul'));
    this.actions = h('div', { className: 'job-actions' });
    this.root = h('li', { className: 'job' },
      h('div', { className: 'job-head' }, h('p', { className: 'name', title: job.input }, this.name), this.badge),
      this.facts, this.bar, this.counts, this.problem, this.warnings, this.actions);
    this.root.dataset.id = job.id;
    this.root.addEventListener('keydown', (event) => {
      const action = { ArrowUp: 'up', ArrowDown: 'down' }[event.key];
      if (!event.altKey || !action || this.job.state !== 'queued') return;
      event.preventDefault();
      this.act(action, this.job);
    });
  }

  show(job) {
    this.job = job;
    const running = job.state === 'running';
    this.root.dataset.state = job.stopping ? 'stopping' : job.state;
    setText(this.badge, job.stopping ? 'Stopping' : STATES[job.state]);
    setText(this.facts, line(pixels(job.output_size), job.model, job.preset, running && job.device));
    this.progress.report(job.progress, running);
    this.bar.hidden = ['done', 'failed'].includes(job.state) || (job.state === 'queued' && !job.progress.done);
    this.bar.classList.toggle('unsure', running && !job.progress.done);
    this.problem.hidden = !job.error;
    setText(this.problem, job.error?.detail || '');
    this.showWarnings(job.progress.warnings);
    this.showActions(job);
    this.spoken = null;
    this.draw(performance.now());
  }

  showWarnings(warnings) {
    this.warnings.hidden = warnings.length === 0;
    if (this.warnings.dataset.count === String(warnings.length)) return;
    this.warnings.dataset.count = warnings.length;
    this.warnings.firstChild.replaceChildren(icon('warning'), plural(warnings.length, 'warning'));
    this.warnings.lastChild.replaceChildren(...warnings.map((text) => h('li', {}, text)));
  }

  showActions(job) {
    const wanted = job.stopping ? 'stopping' : job.state;
    if (this.actions.dataset.state === wanted) return;
    const held = this.actions.contains(document.activeElement);
    this.actions.dataset.state = wanted;
    const names = job.stopping ? [] : BY_STATE[job.state];
    this.buttons = Object.fromEntries(names.map((name) => [name, this.button(name, job)]));
    this.actions.replaceChildren(...Object.values(this.buttons));
    if (!held) return;
    // The button that was used has gone; its successor takes the focus.
    this.root.tabIndex = -1;
    (this.actions.firstChild || this.root).focus();
  }

  button(name, job) {
    const [shape, text] = ACTIONS[name];
    const label = `${text}: ${this.name}`;
    if (name === 'download') return download(job, { ariaLabel: label });
    // A cancelled job keeps its finished frames, so that a retry resumes it.
    const onclick = () => this.act(name === 'continue' ? 'retry' : name, this.job);
    if (['up', 'down', 'remove'].includes(name)) return iconButton(shape, label, onclick, { title: text });
    return h('button', { onclick, ariaLabel: label }, icon(shape), text);
  }

  setEnds(first, last) {
    // A button that is disabled would lose the focus.
    if (this.buttons.up) [this.buttons.up.ariaDisabled, this.buttons.down.ariaDisabled] = [first, last];
  }

  counted(now) {
    const { job } = this;
    const { done, total, fps, phase, batches, batches_total: all } = job.progress;
    const speed = fps && `${rate(fps)}\u00a0fps`;
    const running = job.state === 'running';
    const size = job.output_bytes && bytes(job.output_bytes);
    if (job.state === 'done') return line(plural(done || total || 0, 'frame'), size, speed);
    if (running && !done) return `${PHASES[phase] || 'Starting'} …`;
    if (job.state === 'failed' || !done) return '';
    const frames = total ? `${Math.floor(100 * done / total)} % · ${done} of ${total} frames` : plural(done, 'frame');
    if (!running) return frames;
    const left = this.progress.left(now);
    return line(frames, batches && all && `batch ${Math.min(batches + 1, all)} of ${all}`, speed,
      left !== null && (left < 1 ? 'almost done' : `${duration(left)} left`));
  }

  // Draws bar and times for this moment. True while they move.
  draw(now) {
    fill(this.bar, this.progress.share(now));
    // Text once in a while, so that it can be read.
    if (this.spoken === null || now - this.spoken > 900) {
      this.spoken = now;
      setText(this.counts, this.counted(now));
    }
    return this.job.state === 'running';
  }
}
