// Requests to the server and its stream of events.

import { emit, state } from './state.js';

const GRACE = 700; // milliseconds without a stream before the page says so
const RETRY = [500, 1000, 2000, 4000];

// An answer that is no success.
class Problem extends Error {
  constructor(status, detail) {
    // People know a file by its name, not by its place on the server.
    super(detail.replace(/^\/.*\/(?=[^/]+: )/, ''));
    this.status = status;
  }
}

async function problem(reply) {
  const value = await reply.json().catch(() => ({}));
  if (reply.status === 401) emit('signed-out');
  return new Problem(reply.status, value.detail || value.title || `the server answered with status ${reply.status}`);
}

export async function request(path, options = {}) {
  let reply;
  try {
    reply = await fetch(path, { credentials: 'same-origin', ...options });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'The server does not answer. Is it still running?');
  }
  if (!reply.ok) throw await problem(reply);
  return reply;
}

export async function call(method, path, body, { headers = {}, signal } = {}) {
  const options = { method, headers: { ...headers }, signal };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  const reply = await request(path, options);
  return reply.status === 204 ? null : reply.json();
}

export function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null) query.set(name, value);
  }
  return `${path}?${query}`;
}

let stream;
let attempts = 0;
let timer;

function setConnected(connected) {
  clearTimeout(timer);
  if (connected) attempts = 0;
  if (state.connected === connected) return;
  state.connected = connected;
  emit('connection');
}

// Opens the stream of events. After a break the browser asks for what it missed; where it gives up, the page opens a
// new stream, which begins with all jobs.
export function listen() {
  clearTimeout(timer);
  stream?.close();
  stream = new EventSource('/v1/events');
  stream.onopen = () => setConnected(true);
  stream.onerror = () => {
    clearTimeout(timer);
    if (stream.readyState === EventSource.CLOSED) {
      setConnected(false);
      timer = setTimeout(reconnect, RETRY[Math.min(attempts++, RETRY.length - 1)]);
    } else {
      timer = setTimeout(() => setConnected(false), GRACE);
    }
  };
  const data = (work) => (event) => work(JSON.parse(event.data));
  stream.addEventListener('snapshot', data(({ jobs }) => {
    state.jobs = new Map(jobs.map((job) => [job.id, job]));
    emit('jobs');
  }));
  stream.addEventListener('job', data((job) => {
    const before = state.jobs.get(job.id);
    state.jobs.set(job.id, job);
    emit('job', job, before);
  }));
  stream.addEventListener('removed', data(({ id }) => {
    state.jobs.delete(id);
    emit('jobs');
  }));
  stream.addEventListener('model', data((model) => emit('model', model)));
}

// A refused stream has no status; an ordinary request tells whether the token is the reason.
async function reconnect() {
  try {
    await request('/v1/capabilities');
  } catch (error) {
    if (error.status === 401) return;
  }
  listen();
}

export const reconnectNow = () => { attempts = 0; listen(); };
