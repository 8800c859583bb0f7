// The files that jobs are made of: dropped, chosen or found on the server.

import { address, call } from './api.js';
import { $, bar, bytes, duration, fill, h, icon, iconButton, line, pixels, setText } from './dom.js';
import { emit, isReady, on, state } from './state.js';
import { discard, upload } from './uploads.js';

export const source = (file) => (file.path ? { input: file.path } : { upload: file.upload });

export function select(file) {
  if (state.selected === file) return;
  state.selected = file;
  emit('selection');
  show();
}

// What the server finds out about a file, once it has it.
async function describe(file) {
  if (!isReady(file) || file.info || file.error || file.describing) return;
  file.describing = true;
  try {
    file.info = await call('GET', address('/v1/inputs', source(file)));
  } catch (error) {
    file.error = error.message;
    file.unusable = true;
  }
  file.describing = false;
  emit('files');
  if (state.selected === file) emit('selection');
}

function add(file) {
  state.files.push(file);
  if (!state.selected) state.selected = file;
  emit('files');
  emit('selection');
}

function addBlobs(blobs) {
  for (const blob of blobs) {
    const file = { name: blob.name, blob, bytes: blob.size, sent: 0 };
    add(file);
    upload(file);
  }
}

export function addPaths(entries) {
  for (const { path, name, bytes: size } of entries) {
    if (!state.files.some((file) => file.path === path)) add({ name, path, bytes: size });
  }
}

export function remove(file, started = false) {
  const place = state.files.indexOf(file);
  if (place < 0) return;
  state.files.splice(place, 1);
  // A job still needs its upload.
  if (file.blob && !started) discard(file);
  if (state.selected === file) state.selected = state.files[Math.min(place, state.files.length - 1)] || null;
  emit('files');
  emit('selection');
}

function facts(file) {
  if (file.error) return '';
  if (!isReady(file)) {
    const percent = Math.floor(100 * file.sent / Math.max(1, file.bytes));
    if (file.waiting) return `Connection lost, trying again · ${percent} %`;
    return line(file.sent ? `Uploading · ${percent} %` : 'Waiting to upload', bytes(file.bytes));
  }
  if (!file.info) return 'Reading …';
  const { size, frames, seconds, kind } = file.info;
  const length = kind !== 'image' && seconds ? duration(seconds) : frames > 1 && `${frames} frames`;
  return line(pixels(size), length, file.bytes && bytes(file.bytes));
}

function build(file) {
  const facts = h('span', { className: 'soft' });
  const thumb = h('span', { className: 'thumb' }, icon(file.info?.kind === 'image' ? 'image' : 'film'));
  const chip = h('span', { className: 'badge', hidden: true }, 'Own settings');
  const main = h('button', { className: 'file-main', onclick: () => select(file) },
    thumb, h('span', { className: 'file-text' }, h('span', { className: 'name' }, file.name), facts, chip));
  const sent = bar(`Upload of ${file.name}`);
  const retry = h('button', { className: 'link', onclick: () => upload(file) }, 'Try again');
  const problem = h('p', { className: 'problem' }, h('span'), ' ', retry);
  file.item = h('li', { className: 'file' }, main,
    iconButton('close', `Remove ${file.name}`, () => {
      remove(file);
      ($('file-list').querySelector('[aria-pressed=true]') || $('picker')).focus();
    }), sent, problem);
  file.parts = { facts, thumb, chip, main, sent, problem, retry };
}

function showFile(file) {
  if (!file.item) build(file);
  const { facts: text, thumb, chip, main, sent, problem, retry } = file.parts;
  setText(text, facts(file));
  main.ariaPressed = state.selected === file;
  chip.hidden = !file.own;
  const uploading = !isReady(file) && !file.error;
  sent.hidden = !uploading;
  fill(sent, file.bytes ? file.sent / file.bytes : 0);
  problem.hidden = !file.error;
  retry.hidden = file.unusable || !file.blob;
  setText(problem.firstChild, file.error || '');
  if (file.info && !thumb.querySelector('img')) {
    const at = Math.min((file.info.seconds || 0) / 4, 10);
    const image = h('img', { alt: '', hidden: true });
    image.addEventListener('load', () => {
      image.hidden = false;
      thumb.replaceChildren(image);
    });
    image.src = address('/v1/inputs/frame', { ...source(file), at, width: 160 });
    thumb.append(image);
  }
}

function show() {
  $('work').classList.toggle('empty', state.files.length === 0);
  state.files.forEach(showFile);
  const items = state.files.map((file) => file.item);
  const list = $('file-list');
  // Nodes stay where they are unless the list changed, so that the focus stays.
  if (items.length !== list.children.length || items.some((item, place) => list.children[place] !== item)) {
    list.replaceChildren(...items);
  }
  state.files.forEach(describe);
}

export function startFiles() {
  on('files', show);
  on('settings', show);
  on('progress', showFile);
  $('picker').addEventListener('change', () => {
    addBlobs([...$('picker').files]);
    $('picker').value = '';
  });
  let depth = 0;
  const carriesFiles = (event) => [...(event.dataTransfer?.types || [])].includes('Files');
  const toggle = (over) => { $('dropping').hidden = !over; $('drop').classList.toggle('over', over); };
  addEventListener('dragenter', (event) => { if (carriesFiles(event)) { depth++; toggle(true); } });
  addEventListener('dragleave', (event) => { if (carriesFiles(event) && --depth <= 0) { depth = 0; toggle(false); } });
  addEventListener('dragover', (event) => { if (carriesFiles(event)) event.preventDefault(); });
  addEventListener('drop', (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    depth = 0;
    toggle(false);
    addBlobs([...event.dataTransfer.files]);
  });
  show();
}
