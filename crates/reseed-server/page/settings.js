// The form of settings, for all files or for one of them.

import { asRequest, FIELDS, GROUPS, inForce, targetOf, targets, targetValues } from './choices.js';
import { $, base, h, icon, radios } from './dom.js';
import { emit, on, recall, remember, state } from './state.js';

const TIME = '[0-9]+(:[0-9]{1,2}){0,2}(\\.[0-9]+)?';
const FIRST = { preset: '2x', model: null, changed: {} };
let shared = { ...FIRST, ...recall('settings', {}) };
const saving = { beside: false, overwrite: false, ...recall('saving', {}) };
let own = false; // whether the form edits the selected file alone

const choice = () => (own && state.selected?.own) || shared;
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const title = (name) => (/^\d/.test(name) ? name.replace(/x$/, '×').replace(/k$/, 'K') : capital(name));

export const settingsOf = (file) => asRequest(file.own || shared, state.presets);

function update(next) {
  if (own && state.selected) state.selected.own = next;
  else {
    shared = next;
    remember('settings', shared);
  }
  show();
  emit('settings');
}

const change = (values) => update({ ...choice(), changed: { ...choice().changed, ...values } });

const option = ([value, text]) => h('option', { value }, text);
const select = (name, options, onchange) => h('select', { name, onchange }, Object.entries(options).map(option));

function field({ name, label, options, number, empty, hint, inverted }) {
  const id = hint ? `hint-${name}` : undefined;
  if (inverted) {
    const box = h('input', { type: 'checkbox', name, onchange: () => change({ [name]: box.checked ? null : true }) });
    return h('label', { className: 'check' }, box, label);
  }
  const onchange = () => {
    const value = control.value.trim();
    if (control.reportValidity()) change({ [name]: value === '' ? null : number ? Number(value) : value });
  };
  const [min, max, step] = number || [];
  const own = number ? { type: 'number', min, max, step } : { pattern: TIME, title: hint };
  const control = options ? select(name, options, onchange)
    : h('input', { name, placeholder: empty, onchange, 'aria-describedby': id, ...own });
  const help = hint && h('p', { className: 'help', id }, hint);
  return h('div', { className: 'field' }, h('label', {}, label, control), help);
}

function saveField(name, label) {
  const box = h('input', { type: 'checkbox', checked: saving[name], onchange: () => {
    saving[name] = box.checked;
    remember('saving', saving);
    emit('settings');
  } });
  return h('label', { className: 'check' }, box, label);
}

function build() {
  const labelled = (label, name, work) => h('label', { className: 'field' }, label,
    select(name, {}, ({ target }) => work(target.value)));
  const advanced = h('details', { id: 'advanced', open: recall('advanced', false) },
    h('summary', {}, icon('next'), 'Advanced'),
    GROUPS.map(([name, fields]) => h('fieldset', {}, h('legend', {}, name), fields.map(field),
      name === 'Output' && state.capabilities.roots.length > 0 && [
        saveField('beside', 'Save beside the input'), saveField('overwrite', 'Replace existing files')])));
  advanced.addEventListener('toggle', () => remember('advanced', advanced.open));
  $('settings-form').replaceChildren(
    h('div', { id: 'presets' }),
    h('p', { id: 'preset-about', className: 'soft' }),
    h('div', { className: 'pair' },
      labelled('Size', 'target', (value) => change(targetValues(value))),
      labelled('Model', 'model', (model) => update({ ...choice(), model }))),
    advanced);
  $('settings-form').addEventListener('submit', (event) => event.preventDefault());
}

function showPresets(current) {
  const names = state.presets.map(({ name }) => [name, title(name)]);
  const take = (preset) => update({ ...FIRST, preset });
  put($('presets'), radios('preset', 'Preset', names, current.preset, take, 'chips'));
  const preset = state.presets.find(({ name }) => name === current.preset);
  const changed = Object.keys(current.changed).length > 0 || current.model;
  const about = preset ? capital(preset.description) : 'Own settings';
  $('preset-about').replaceChildren(about, ...(changed ? [' · changed ', h('button', {
    className: 'link', onclick: () => update({ ...FIRST, preset: current.preset }),
  }, 'Reset')] : []));
}

function showScope() {
  if (state.files.length < 2 || !state.selected) {
    $('scope').replaceChildren();
    return;
  }
  const scopes = [['all', 'All files'], ['one', 'This file']];
  put($('scope'), radios('scope', 'Settings apply to', scopes, own ? 'one' : 'all', setScope));
}

// Replaces radio buttons; the chosen one keeps the focus.
function put(place, group) {
  const held = place.contains(document.activeElement);
  place.replaceChildren(group);
  if (held) group.querySelector(':checked')?.focus();
}

// Settings of its own begin as those of all files, and end when the user goes back to all.
function setScope(value) {
  own = value === 'one';
  state.selected.own = own ? structuredClone(shared) : null;
  show();
  emit('settings');
}

function show() {
  // The settings of the only file are those of all files.
  if (state.files.length === 1 && state.selected?.own) {
    shared = state.selected.own;
    state.selected.own = null;
    remember('settings', shared);
  }
  own = Boolean(state.selected?.own);
  const current = choice();
  const { model, values } = inForce(current, state.presets);
  showPresets(current);
  showScope();
  const { elements } = $('settings-form');
  const target = targetOf(values);
  elements.target.replaceChildren(...Object.entries(targets(target)).map(option));
  elements.target.value = target;
  elements.model.replaceChildren(...state.models.map(({ name, about, installed }) =>
    h('option', { value: name, disabled: !installed }, installed ? `${name} (${about})` : `${name} (not installed)`)));
  elements.model.value = model ?? state.capabilities.model;
  for (const { name, inverted } of FIELDS) {
    const value = values[name];
    if (inverted) elements[name].checked = !value;
    // What is being typed stays.
    else if (elements[name] !== document.activeElement) elements[name].value = value ?? '';
  }
}

export function startSettings() {
  if (!state.presets.some(({ name }) => name === shared.preset)) shared = { ...shared, preset: state.presets[0]?.name };
  build();
  show();
  on('selection', show);
  on('files', showScope);
  on('models', show);
}

// Where the result of a file is written; the server chooses unless it is to lie beside the input.
export function outputOf(file, name) {
  if (!saving.beside || !file.path || !name) return {};
  const folder = file.path.slice(0, file.path.length - base(file.path).length);
  const dot = name.lastIndexOf('.');
  return { output: `${folder}${name.slice(0, dot)}-restored${name.slice(dot)}`, overwrite: saving.overwrite };
}
