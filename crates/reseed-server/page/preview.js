// The selected file: its frames, and one of them restored before the job runs.

import { address, call } from './api.js';
import { Compare } from './compare.js';
import { $, announce, duration, h, icon, pixels, setText, toast } from './dom.js';
import { source } from './files.js';
import { Playhead } from './playhead.js';
import { settingsOf } from './settings.js';
import { isReady, on, state } from './state.js';

let compare;
let playhead;
let running = null;

const key = (file) => JSON.stringify([playhead.at, settingsOf(file)]);

function note(text) {
  setText($('preview-note'), text);
}

function showButton() {
  const file = state.selected;
  const button = $('preview');
  button.disabled = !file?.info && !running;
  setText(button.querySelector('span'), running ? 'Stop the preview' : 'Preview this frame');
}

// Shows what is known of the frame at the playhead: the computed preview, or the input alone.
async function showFrame() {
  const file = state.selected;
  if (!file?.info || running) return;
  const made = file.previews?.get(key(file));
  try {
    if (made) {
      await compare.show(made.input, made.output);
      note(`Frame ${made.frame + 1} · ${pixels([made.width, made.height])} · the pixels of the finished file`);
    } else {
      await compare.show(address('/v1/inputs/frame', { ...source(file), at: playhead.at }));
      note(file.previews?.size ? 'The time or the settings have changed since the last preview.' : '');
    }
    compare.say();
  } catch {
    compare.say(h('p', {}, 'This frame cannot be shown'));
  }
}

// A new clip begins a third in, where more is to be seen than in its first frame.
function showFile() {
  stop();
  const file = state.selected;
  note('');
  showButton();
  setText($('viewer-facts'), file ? file.name : '');
  if (!file?.info) {
    compare.clear();
    playhead.setClip({});
    const wait = file && isReady(file) ? 'Reading …' : 'Shown when uploaded';
    const text = file?.error ? 'This file cannot be shown' : wait;
    compare.say(icon('film'), h('p', {}, text));
    return;
  }
  const { seconds, fps, kind } = file.info;
  playhead.setClip(kind === 'image' ? {} : { seconds, fps }, file.at ?? (seconds || 0) / 3);
  showFrame();
}

function stop() {
  running?.abort();
  running = null;
}

async function compute() {
  const file = state.selected;
  const own = running = new AbortController();
  const wanted = key(file);
  const since = performance.now();
  const clock = h('span');
  const tick = setInterval(() => setText(clock, duration((performance.now() - since) / 1000)), 500);
  compare.say(h('span', { className: 'spinner' }), h('p', {}, 'Computing the frame with its batch'), clock);
  announce('Computing the preview');
  showButton();
  try {
    const body = { ...source(file), ...settingsOf(file), at: playhead.at };
    const made = await call('POST', '/v1/previews', body, { signal: own.signal });
    file.previews ??= new Map();
    file.previews.set(wanted, made);
    announce('The preview is ready');
  } catch (error) {
    if (error.name !== 'AbortError') toast(`The preview failed: ${error.message}`);
  }
  clearInterval(tick);
  if (running === own) running = null;
  if (running) return;
  compare.say();
  showButton();
  showFrame();
}

export function startPreview() {
  compare = new Compare($('compare'));
  compare.bar.before($('playhead'));
  playhead = new Playhead($('playhead'), () => {
    stop();
    showButton();
    if (state.selected) state.selected.at = Number(playhead.range.value) / playhead.fps;
    showFrame();
  });
  $('preview').addEventListener('click', () => {
    if (running) {
      stop();
      compare.say();
      showButton();
      showFrame();
    } else compute();
  });
  on('selection', showFile);
  on('settings', showFrame);
  // Images of previews end with the server.
  on('connection', () => { if (state.connected) state.files.forEach((file) => file.previews?.clear()); });
  showFile();
}
