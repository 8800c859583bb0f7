// What the jobs will need, before they start: time, memory and disk space.

import { call } from './api.js';
import { $, bytes, debounce, duration, h, pixels, plural, rate, setText, toast } from './dom.js';
import { remove, source } from './files.js';
import { outputOf, settingsOf } from './settings.js';
import { isActive, isReady, on, state } from './state.js';

let stopper = null;

const wish = (file) => ({ ...source(file), ...settingsOf(file) });
const usable = () => state.files.filter((file) => isReady(file) && !file.unusable);
const current = (file) => (file.estimated === JSON.stringify(wish(file)) ? file.estimate : null);

export function meter(label, { used = 0, need = 0, total, text }) {
  const share = (value) => `${Math.min(100, 100 * value / total)}%`;
  const tight = used + need > total;
  const bars = [h('span', { className: 'used' }), h('span', { className: tight ? 'need tight' : 'need' })];
  bars[0].style.width = share(used);
  bars[1].style.width = share(Math.min(need, Math.max(total - used, total * 0.01)));
  return h('div', { className: 'meter-row' },
    h('div', { className: 'meter-label' }, h('span', {}, label), h('span', { className: 'soft' }, text)),
    h('div', {
      className: 'meter', role: 'meter', ariaLabel: label, ariaValueMin: 0, ariaValueMax: total,
      ariaValueNow: Math.min(total, used + need), ariaValueText: text,
    }, bars));
}

function memory(estimates) {
  const { devices, memory_bytes: host, memory_free_bytes: hostFree } = state.capabilities;
  const device = devices.find(({ name }) => name === estimates[0].device) || devices[0];
  const isGpu = estimates[0].device_bytes > 0;
  const need = Math.max(...estimates.map((value) => value.device_bytes || value.host_bytes));
  const [total, free] = isGpu ? [device.memory_bytes, device.free_bytes] : [host, hostFree];
  const label = isGpu ? 'GPU memory' : 'Memory';
  if (!total) return h('p', { className: 'soft' }, `${label}: ${bytes(need)}`);
  const text = `${bytes(need)} of ${bytes(total)}${free ? `, ${bytes(free)} free` : ''}`;
  return meter(label, { used: free ? total - free : 0, need, total, text });
}

const fact = (term, value, detail) => h('div', {}, h('dt', {}, term), h('dd', {}, value, h('small', {}, detail)));

function showEstimate(files) {
  const known = files.map(current).filter(Boolean);
  if (!known.length) return;
  const sum = (read) => known.reduce((total, value) => total + read(value), 0);
  const one = known.length === 1 && known[0];
  const seconds = sum((value) => value.seconds);
  const frames = sum((value) => value.frames);
  const disk = sum((value) => value.output_bytes) + Math.max(...known.map((value) => value.work_bytes));
  const free = state.capabilities.data_free_bytes;
  const facts = h('dl', { className: 'facts' },
    fact('Time', `about ${duration(seconds)}`, seconds > 0 ? `${rate(frames / seconds)} frames per second` : ''),
    fact('Output', one ? pixels(one.output_size) : plural(known.length, 'file'), plural(frames, 'frame')),
    fact('Disk', bytes(disk), free && `${disk > free ? 'only ' : ''}${bytes(free)} free`));
  $('estimate-body').replaceChildren(facts, memory(known));
  $('estimate-body').title = `Based on ${known[0].based_on}`;
}

function showStart() {
  const files = usable();
  const busy = [...state.jobs.values()].some((job) => isActive(job) || job.state === 'queued');
  const text = files.length > 1 ? (busy ? `Add ${files.length} jobs to the queue` : `Start ${files.length} jobs`)
    : busy ? 'Add to the queue' : 'Start';
  setText($('start').querySelector('span'), text);
  $('start').disabled = starting || !files.some(current);
}

function problem(text) {
  setText($('estimate-problem'), text);
  $('estimate-problem').hidden = !text;
}

async function estimate() {
  stopper?.abort();
  const own = stopper = new AbortController();
  const files = usable();
  let failed = '';
  // Values of a file that is gone say nothing about another.
  if (!files.some((file) => file.estimate)) $('estimate-body').replaceChildren();
  for (const file of files) {
    const wanted = JSON.stringify(wish(file));
    if (file.estimated === wanted) continue;
    try {
      file.estimate = await call('POST', '/v1/estimate', JSON.parse(wanted), { signal: own.signal });
      file.estimated = wanted;
    } catch (error) {
      if (error.name === 'AbortError') return;
      file.estimated = null;
      failed = files.length > 1 ? `${file.name}: ${error.message}` : error.message;
    }
  }
  problem(failed);
  if (failed && !files.some(current)) $('estimate-body').replaceChildren();
  showEstimate(files);
  showStart();
}

const later = debounce(200, estimate);

let starting = false;
async function start() {
  starting = true;
  showStart();
  for (const file of usable()) {
    const body = { ...wish(file), ...outputOf(file, current(file)?.output_name) };
    // The same key for the same request: a lost answer makes no second job.
    if (file.asked !== JSON.stringify(body)) [file.asked, file.key] = [JSON.stringify(body), key()];
    try {
      await call('POST', '/v1/jobs', body, { headers: { 'Idempotency-Key': file.key } });
      remove(file, true);
    } catch (error) {
      toast(`${file.name} was not added: ${error.message}`);
    }
  }
  starting = false;
  showStart();
}

// Browsers have randomUUID on secure origins only.
const key = () => crypto.getRandomValues(new Uint32Array(4)).join('-');

export function startEstimate() {
  $('start').addEventListener('click', async () => {
    await start();
    // The button has gone with the last file.
    if (!state.files.length) $('queue-title').focus();
  });
  on('files', () => { showStart(); later(); });
  on('settings', () => { showStart(); later(); });
  on('jobs', showStart);
  on('job', showStart);
  on('connection', () => { if (state.connected) later(); });
}
