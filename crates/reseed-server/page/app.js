// The page: plain modules, no build step, no request to another site.

import { call, listen, reconnectNow } from './api.js';
import { startBrowser } from './browse.js';
import { $, announce, icon } from './dom.js';
import { startEstimate } from './estimate.js';
import { startFiles } from './files.js';
import { startPreview } from './preview.js';
import { startQueue } from './queue.js';
import { startResults } from './results.js';
import { startSettings } from './settings.js';
import { emit, on, recall, remember, state } from './state.js';
import { showSystem, startSystem } from './system.js';

const THEMES = { auto: 'Theme of the system', light: 'Light theme', dark: 'Dark theme' };
let started = false;
// Factors, then sizes, then the others.
const kind = ({ name }) => (/^\d+x$/.test(name) ? 0 : /^\d/.test(name) ? 1 : 2);

function showTheme(theme) {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $('theme').replaceChildren(icon(theme));
  $('theme').title = THEMES[theme];
  $('theme').ariaLabel = `${THEMES[theme]}; change it`;
}

function startTheme() {
  const names = Object.keys(THEMES);
  let theme = recall('theme', 'auto');
  showTheme(names.includes(theme) ? theme : 'auto');
  $('theme').addEventListener('click', () => {
    theme = names[(names.indexOf(theme) + 1) % names.length];
    remember('theme', theme);
    showTheme(theme);
    announce(THEMES[theme]);
  });
}

function route() {
  const system = location.hash === '#system';
  $('work').hidden = system;
  $('system').hidden = !system;
  $('signin').hidden = true;
  for (const [id, current] of [['to-work', !system], ['to-system', system]]) {
    if (current) $(id).setAttribute('aria-current', 'page');
    else $(id).removeAttribute('aria-current');
  }
  showSystem(system);
}

function showSignIn() {
  $('work').hidden = $('system').hidden = true;
  $('signin').hidden = false;
  $('token').focus();
}

$('signin-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  const problem = $('signin-error');
  problem.hidden = true;
  try {
    await call('POST', '/login', { token: $('token').value.trim() });
    location.reload();
  } catch (error) {
    problem.textContent = error.message;
    problem.hidden = false;
    $('token').select();
  }
});

async function load() {
  const [capabilities, { models }, { presets }] = await Promise.all(
    ['/v1/capabilities', '/v1/models', '/v1/presets'].map((path) => call('GET', path)));
  presets.sort((a, b) => kind(a) - kind(b));
  models.sort((a, b) => b.installed - a.installed);
  Object.assign(state, { capabilities, models, presets });
  const [device] = capabilities.devices;
  $('device').textContent = device ? device.description || device.name : '';
}

async function begin() {
  try {
    await load();
  } catch (error) {
    if (error.status !== 401) {
      $('offline').hidden = false;
      setTimeout(begin, 2000);
    }
    return;
  }
  if (!started) {
    started = true;
    startSettings();
    startFiles();
    startBrowser();
    startPreview();
    startEstimate();
    startResults();
    startQueue();
    startSystem();
    addEventListener('hashchange', route);
  }
  $('offline').hidden = true;
  route();
  listen();
}

startTheme();
on('signed-out', showSignIn);
on('connection', async () => {
  $('offline').hidden = state.connected;
  if (!state.connected) return;
  // The server may be another one than before: other models, other limits.
  await load().then(() => emit('models')).catch(() => {});
});
$('reconnect').onclick = () => (started ? reconnectNow() : begin());
begin();
