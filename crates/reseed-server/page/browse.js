// Files under the folders that the server may use.

import { address, call } from './api.js';
import { $, bytes, h, icon, iconButton, plural } from './dom.js';
import { addPaths } from './files.js';
import { recall, remember, state } from './state.js';

let marked = new Map();
let folder = null;

function showMarked() {
  $('browser-add').disabled = marked.size === 0;
  $('browser-add').textContent = marked.size ? `Add ${plural(marked.size, 'file')}` : 'Add files';
}

function entry(item) {
  if (item.kind === 'folder') {
    return h('li', {}, h('button', { className: 'entry', onclick: () => open(item.path) },
      icon('folder'), h('span', {}, item.name), icon('next')));
  }
  const box = h('input', { type: 'checkbox', checked: marked.has(item.path), onchange: () => {
    if (box.checked) marked.set(item.path, item);
    else marked.delete(item.path);
    showMarked();
  } });
  return h('li', {}, h('label', { className: 'entry' }, box, icon(item.kind === 'image' ? 'image' : 'film'),
    h('span', {}, item.name), h('small', { className: 'soft' }, item.bytes === null ? '' : bytes(item.bytes))));
}

async function open(path) {
  $('browser-problem').hidden = true;
  try {
    folder = await call('GET', path ? address('/v1/files', { path }) : '/v1/files');
  } catch (error) {
    // The remembered folder may be gone.
    if (path) return open('');
    $('browser-problem').textContent = error.message;
    $('browser-problem').hidden = false;
    return null;
  }
  remember('folder', folder.path);
  const { entries, parent } = folder;
  $('browser-path').textContent = folder.path || 'Folders of this server';
  $('browser-up').replaceChildren(...(parent === null ? []
    : [iconButton('up', 'Parent folder', () => open(parent))]));
  const rows = entries.map(entry);
  if (!rows.length) rows.push(h('li', { className: 'hint soft' }, 'No videos or images in this folder'));
  if (folder.truncated) rows.push(h('li', { className: 'hint soft' }, 'More files are not listed'));
  $('browser-list').replaceChildren(...rows);
  $('browser-list').scrollTop = 0;
  $('browser-folder').hidden = entries.filter(({ kind }) => kind === 'image').length < 2;
  $('browser-list').querySelector('button, input')?.focus();
  return null;
}

function close(entries) {
  addPaths(entries);
  $('browser').close();
}

export function startBrowser() {
  $('browse').hidden = state.capabilities.roots.length === 0;
  $('browse').onclick = () => {
    marked = new Map();
    showMarked();
    $('browser').showModal();
    open(recall('folder', ''));
  };
  $('browser-add').onclick = () => close([...marked.values()]);
  $('browser-folder').onclick = () => {
    const name = folder.path.split(/[\\/]/).pop();
    close([{ path: folder.path, name, bytes: null }]);
  };
}
