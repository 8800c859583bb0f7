// The machine: devices, memory, models and software.

import { call } from './api.js';
import { $, bar, bytes, duration, fill, h, icon, line, setText, toast } from './dom.js';
import { meter } from './estimate.js';
import { emit, on, state } from './state.js';

const REFRESH = 3000;
let timer = null;
const rows = new Map();
const parts = {};

const head = (name, ...rest) => h('div', { className: 'job-head' }, h('p', { className: 'name' }, name), rest);
const pair = (term, value) => h('div', {}, h('dt', {}, term), h('dd', {}, value));

const runs = (download) => ['running', 'waiting'].includes(download?.state);

function device({ name, description, kind, memory_bytes: total, free_bytes: free, state: now }) {
  const text = total && `${bytes(free)} of ${bytes(total)} free`;
  const usage = total && meter(kind === 'gpu' ? 'GPU memory' : 'Memory', { used: total - free, total, text });
  const badge = h('span', { className: 'badge', 'data-kind': now === 'busy' && now }, now === 'busy' ? 'Busy' : 'Idle');
  return h('li', {}, head(description || name, badge), h('p', { className: 'soft' }, name), usage);
}

function showMachine() {
  const about = state.capabilities;
  parts.devices.replaceChildren(...about.devices.map(device));
  const hints = [];
  if (about.gpu_error) hints.push(`No GPU is used: ${about.gpu_error}`);
  if (!about.ffmpeg.found) hints.push(`Videos cannot be read or written: ${about.ffmpeg.error || 'ffmpeg is missing'}`);
  parts.hints.replaceChildren(...hints.map((text) => h('p', { className: 'warn-box' }, icon('warning'), text)));
  parts.facts.replaceChildren(
    pair('Reseed', about.version),
    pair('ffmpeg', about.ffmpeg.found ? about.ffmpeg.path : 'not found'),
    pair('CPU', about.cpu?.description || ''),
    pair('Free disk space', about.data_free_bytes ? bytes(about.data_free_bytes) : 'unknown'),
    pair('Folders', about.roots.join(', ') || 'none; files are uploaded'),
    pair('Running for', duration(about.uptime_seconds)));
}

function modelRow(name) {
  const row = {
    text: h('p', { className: 'soft' }), badge: h('span', { className: 'badge', 'data-kind': 'good' }),
    problem: h('p', { className: 'problem' }), bar: bar(`Download of ${name}`), action: h('button'),
  };
  row.root = h('li', {}, head(name, row.badge, row.action), row.text, row.bar, row.problem);
  row.action.onclick = async () => {
    const method = runs(row.model.download) ? 'DELETE' : 'POST';
    try {
      emit('model', await call(method, `/v1/models/${encodeURIComponent(name)}`));
    } catch (error) {
      toast(`${name}: ${error.message}`);
    }
  };
  rows.set(name, row);
  return row;
}

function showModel(model) {
  const row = rows.get(model.name) || modelRow(model.name);
  row.model = model;
  const { download, installed, missing_bytes: missing, bytes: size } = model;
  const active = runs(download);
  row.badge.hidden = !installed;
  setText(row.badge, model.default ? 'Installed, default' : 'Installed');
  const { done_bytes: done, total_bytes: total, bytes_per_second: speed } = active ? download : {};
  setText(row.text, line(model.about, size && bytes(size),
    active && (download.state === 'waiting' ? 'waits for another download' : `${bytes(done)} of ${bytes(total)}`),
    speed && `${bytes(speed)}/s`, speed && `${duration((total - done) / speed)} left`));
  row.bar.hidden = !active;
  fill(row.bar, total ? done / total : 0);
  row.action.hidden = installed;
  const verb = active ? 'Stop' : missing < size ? `Download ${bytes(missing)}` : 'Download';
  setText(row.action, verb);
  row.action.ariaLabel = `${verb}: ${model.name}`;
  row.problem.hidden = download?.state !== 'failed';
  setText(row.problem, download?.error || '');
  return row.root;
}

function showModels() {
  const made = state.models.map(showModel);
  if (made.some((row, place) => parts.models.children[place] !== row)) parts.models.replaceChildren(...made);
}

async function refresh() {
  try {
    state.capabilities = await call('GET', '/v1/capabilities');
    showMachine();
  } catch { /* the banner tells */ }
}

export function showSystem(visible) {
  clearInterval(timer);
  if (!visible) return;
  refresh();
  timer = setInterval(() => { if (!document.hidden) refresh(); }, REFRESH);
}

export function startSystem() {
  for (const name of ['devices', 'models']) parts[name] = h('ul', { className: 'rows' });
  parts.facts = h('dl', { className: 'pairs' });
  parts.hints = h('div');
  const panel = (name, text, ...content) => h('section', { className: 'panel', 'aria-labelledby': `system-${name}` },
    h('h2', { id: `system-${name}` }, text), content);
  $('system-body').replaceChildren(parts.hints, h('div', { className: 'columns' },
    h('div', {}, panel('devices', 'Devices', parts.devices), panel('facts', 'Server', parts.facts)),
    panel('models', 'Models', parts.models)));
  showMachine();
  showModels();
  on('models', showModels);
  on('model', (model) => {
    const place = state.models.findIndex(({ name }) => name === model.name);
    const before = state.models[place];
    if (place < 0) state.models.push(model);
    else state.models[place] = model;
    showModels();
    if (before && !before.installed && model.installed) {
      toast(`The model ${model.name} is installed.`, 'good');
      emit('models');
    }
  });
}
