// The queue: jobs that run, wait and have ended.

import { call } from './api.js';
import { $, announce, base, h, toast } from './dom.js';
import { JobItem } from './job.js';
import { emit, isActive, isEnded, on, state } from './state.js';

const LISTS = { now: 'Running', next: 'Waiting', ended: 'Ended' };
const items = new Map();
const lists = {};
let frame = null;

const group = (job) => (isActive(job) ? 'now' : isEnded(job) ? 'ended' : 'next');
const name = (job) => job.input_name || base(job.input);

function order(a, b) {
  if (isEnded(a) && isEnded(b)) return b.changed_at - a.changed_at;
  // Paused jobs have no position; they stay behind those that wait.
  return (a.position ?? 1e9) - (b.position ?? 1e9) || a.created_at - b.created_at;
}

const waiting = () => [...state.jobs.values()].filter((job) => job.state === 'queued' && !job.stopping).sort(order);

export async function act(action, job) {
  try {
    const path = `/v1/jobs/${job.id}`;
    if (action === 'up' || action === 'down') await move(job, action === 'up' ? -1 : 1);
    else if (action === 'cancel' || action === 'remove') await call('DELETE', path);
    else if (action === 'compare') emit('compare', job);
    else await call('POST', `${path}/${action}`);
  } catch (error) {
    toast(`${name(job)}: ${error.message}`);
  }
}

async function move(job, by) {
  const jobs = waiting().map(({ id }) => id);
  const from = jobs.indexOf(job.id);
  const to = from + by;
  if (from < 0 || to < 0 || to >= jobs.length) return;
  jobs.splice(to, 0, ...jobs.splice(from, 1));
  await call('POST', '/v1/order', { jobs });
  announce(`${name(job)} is now number ${to + 1} of ${jobs.length}`);
}

// Puts the items in their places. A node moves only if it must, because it loses the focus.
function arrange() {
  const jobs = [...state.jobs.values()];
  for (const [id, item] of items) {
    if (!state.jobs.has(id)) {
      item.root.remove();
      items.delete(id);
    }
  }
  for (const kind of Object.keys(LISTS)) {
    const own = jobs.filter((job) => group(job) === kind).sort(order);
    const { list, head } = lists[kind];
    head.parentNode.hidden = own.length === 0;
    own.forEach((job, place) => {
      const { root } = items.get(job.id);
      if (list.children[place] === root) return;
      const held = root.contains(document.activeElement) && document.activeElement;
      list.insertBefore(root, list.children[place] || null);
      if (held) held.focus();
    });
  }
  const wait = waiting();
  wait.forEach((job, place) => items.get(job.id).setEnds(place === 0, place === wait.length - 1));
  $('queue-empty').hidden = jobs.length > 0;
  $('clear').hidden = jobs.filter((job) => isEnded(job) && !job.stopping).length < 2;
  title();
}

function show(job) {
  if (!items.has(job.id)) items.set(job.id, new JobItem(job, act));
  items.get(job.id).show(job);
}

function title() {
  const running = [...state.jobs.values()].find((job) => job.state === 'running');
  const { done = 0, total = 0 } = running?.progress || {};
  document.title = running ? `${total ? Math.floor(100 * done / total) : 0} % · Reseed` : 'Reseed';
}

// Bars and times move with the screen while a job runs.
function animate(now) {
  frame = null;
  let active = false;
  for (const item of items.values()) active = item.draw(now) || active;
  if (active) frame = requestAnimationFrame(animate);
}

function wake() {
  frame ??= requestAnimationFrame(animate);
}

// Screen readers hear of ends and of quarters, not of every frame.
function report(job, before) {
  if (!before) return;
  const quarter = ({ progress: { done, total } }) => (total ? Math.floor(4 * done / total) : 0);
  if (job.state !== before.state) {
    announce(`${name(job)} is ${job.state}${job.error ? `: ${job.error.detail}` : ''}`);
  } else if (job.state === 'running' && quarter(job) > quarter(before) && quarter(job) < 4) {
    announce(`${name(job)}: ${25 * quarter(job)} percent`);
  }
}

export function startQueue() {
  for (const [kind, text] of Object.entries(LISTS)) {
    const head = h('h3', { id: `queue-${kind}` }, text);
    const list = h('ol', { className: 'jobs', 'aria-labelledby': head.id });
    lists[kind] = { head, list };
    $('queue-lists').append(h('div', { className: 'job-group', hidden: true }, head, list));
  }
  $('queue-title').tabIndex = -1;
  $('clear').addEventListener('click', async () => {
    const ended = [...state.jobs.values()].filter((job) => isEnded(job) && !job.stopping);
    if (!confirm(`Remove ${ended.length} ended jobs, and results that the server keeps?`)) return;
    for (const job of ended) await act('remove', job);
    $('queue-title').focus();
  });
  on('jobs', () => {
    state.jobs.forEach(show);
    arrange();
    wake();
  });
  on('job', (job, before) => {
    show(job);
    report(job, before);
    if (!before || ['state', 'position', 'stopping'].some((name) => before[name] !== job[name])) arrange();
    title();
    wake();
  });
}
