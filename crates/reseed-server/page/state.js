// What the page knows, who listens to changes of it, and what it remembers from visit to visit.

export const state = {
  capabilities: null,
  models: [],
  presets: [],
  jobs: new Map(),
  files: [],
  selected: null,
  connected: false,
};

const listeners = new Map();

export function on(topic, listener) {
  listeners.set(topic, [...(listeners.get(topic) || []), listener]);
}

export function emit(topic, ...values) {
  for (const listener of listeners.get(topic) || []) listener(...values);
}

// A browser may refuse to store anything; the page works without.
export function recall(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`reseed.${key}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem(`reseed.${key}`, JSON.stringify(value));
  } catch { /* the value lasts as long as the page */ }
}

export const isReady = (file) => Boolean(file.path || file.upload);
export const isActive = (job) => job.state === 'running' || job.stopping;
export const isEnded = (job) => ['done', 'failed', 'cancelled'].includes(job.state);
