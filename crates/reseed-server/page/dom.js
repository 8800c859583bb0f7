// Elements, and times and sizes as people read them.

import { icon } from './icons.js';

export { icon };
export const $ = (id) => document.getElementById(id);

// Makes an element with properties, attributes, listeners (`on...`) and children.
export function h(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  if (tag === 'button') made.type = 'button';
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== 'list') made[name] = value;
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

export function iconButton(name, label, onclick, properties = {}) {
  return h('button', { className: 'quiet', title: label, ariaLabel: label, onclick, ...properties },
    icon(name));
}

export function bar(label) {
  return h('div', { className: 'bar', role: 'progressbar', ariaLabel: label }, h('span'));
}
export function fill(node, share) {
  node.ariaValueNow = Math.floor(100 * share);
  node.firstChild.style.transform = `scaleX(${share})`;
}

export function radios(name, label, options, chosen, onchange, className = 'segments') {
  const radio = (value) => h('input', {
    type: 'radio', name, value, checked: value === chosen, onchange: () => onchange(value),
  });
  return h('div', { className, role: 'radiogroup', ariaLabel: label },
    options.map(([value, text]) => h('label', {}, radio(value), h('span', {}, text))));
}
export function choose(group, value) {
  for (const input of group.querySelectorAll('input')) input.checked = input.value === value;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Facts on one line, without those that have no value.
export const line = (...parts) => parts.filter(Boolean).join('\u00a0· ');
export const plural = (count, word) => `${count.toLocaleString('en')} ${word}${count === 1 ? '' : 's'}`;
export const base = (path) => path.split(/[\\/]/).filter(Boolean).pop() || path;

// A length of time: 45 s, 2 min 10 s, 1 h 05 min.
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, '0');
  // Spaces within a length of time do not break a line.
  if (hours) return `${hours}\u00a0h\u00a0${two(minutes)}\u00a0min`;
  return minutes ? `${minutes}\u00a0min\u00a0${two(rest)}\u00a0s` : `${rest}\u00a0s`;
}

// A time within a clip: 0:04.20, 1:02:03.00.
export function timecode(seconds) {
  const hundredths = Math.max(0, Math.round(seconds * 100));
  const [hours, minutes] = [Math.floor(hundredths / 360000), Math.floor(hundredths / 6000) % 60];
  const rest = ((hundredths % 6000) / 100).toFixed(2).padStart(5, '0');
  return hours ? `${hours}:${String(minutes).padStart(2, '0')}:${rest}` : `${minutes}:${rest}`;
}

export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const step = count > 0 ? Math.min(4, Math.floor(Math.log2(count) / 10)) : 0;
  const value = count / 1024 ** step;
  return `${value.toFixed(step && value < 100 ? 1 : 0)}\u00a0${units[step]}`;
}

export const pixels = ([width, height]) => `${width}\u00a0×\u00a0${height}`;
export const rate = (fps) => (fps >= 10 ? fps.toFixed(0) : fps >= 1 ? fps.toFixed(1) : fps.toFixed(2));

export function debounce(wait, work) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...values), wait);
  };
}

// For screen readers.
export function announce(text) {
  $('announcer').textContent = text;
}

// Something that failed stays until it is closed.
export function toast(text, kind = 'bad') {
  const close = iconButton('close', 'Dismiss', () => item.remove());
  const item = h('div', { className: `toast ${kind}`, role: kind === 'bad' ? 'alert' : 'status' },
    icon(kind === 'bad' ? 'warning' : 'check'), h('p', {}, text), close);
  [...$('toasts').children].find((other) => other.textContent === item.textContent)?.remove();
  $('toasts').append(item);
  if (kind !== 'bad') setTimeout(() => item.remove(), 6000);
}
