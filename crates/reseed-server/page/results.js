// A finished job: input and output at any time of the clip.

import { address, call } from './api.js';
import { Compare } from './compare.js';
import { $, base, bytes, h, line, pixels, plural } from './dom.js';
import { download } from './job.js';
import { Playhead } from './playhead.js';
import { on, state } from './state.js';

let compare;
let playhead;
let job = null;

async function show() {
  const own = job;
  const frames = ['before', 'after'].map((side) => address(`/v1/jobs/${job.id}/frames/${side}`, { at: playhead.at }));
  const slow = setTimeout(() => compare.say(h('span', { className: 'spinner' })), 400);
  try {
    await compare.show(...frames);
    compare.say();
  } catch {
    if (own === job) compare.say(h('p', {}, 'This frame cannot be shown. Was the input or the result moved?'));
  }
  clearTimeout(slow);
}

function openFolder() {
  call('POST', `/v1/jobs/${job.id}/folder`).catch((error) => compare.say(h('p', {}, error.message)));
}

function open(chosen) {
  job = chosen;
  $('result-title').textContent = job.output_name || base(job.output);
  const { done, total } = job.progress;
  $('result-facts').textContent = line(`${pixels(job.input_size)} → ${pixels(job.output_size)}`,
    plural(done || total || 1, 'frame'), job.model, job.output_bytes && bytes(job.output_bytes));
  const seconds = job.is_still ? 0 : job.duration_seconds;
  $('result-actions').replaceChildren(
    download(job, { className: 'button primary' }),
    ...(state.capabilities.opens_folders ? [h('button', { onclick: openFolder }, 'Open folder')] : []),
    h('code', { className: 'soft' }, job.output));
  $('result').showModal();
  compare.clear();
  playhead.setClip({ seconds, fps: job.frame_rate }, (seconds || 0) / 3);
  show();
  compare.stage.focus();
}

export function startResults() {
  compare = new Compare($('result-compare'));
  compare.bar.before($('result-playhead'));
  playhead = new Playhead($('result-playhead'), show);
  on('compare', open);
}
