// The page: plain modules, no build step, no request to another site.

const $ = (id) => document.getElementById(id);
const jobs = new Map();
const inputs = [];

async function call(method, path, body, headers = {}) {
  const options = { method, headers, credentials: 'same-origin' };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers = { 'Content-Type': 'application/json', ...headers };
  }
  const reply = await fetch(path, options);
  if (reply.status === 401) showSignIn();
  if (reply.status === 204) return null;
  const value = await reply.json();
  if (!reply.ok) throw new Error(value.detail || value.title);
  return value;
}

function report(id, error) { $(id).textContent = error ? error.message : ''; }

function element(tag, properties = {}, children = []) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Times and sizes as people read them.
function clock(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  const parts = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return parts[0] ? `${parts[0]} h ${parts[1]} min` : parts[1] ? `${parts[1]} min ${parts[2]} s` : `${parts[2]} s`;
}
function bytes(count) {
  const unit = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const step = count > 0 ? Math.min(4, Math.floor(Math.log2(count) / 10)) : 0;
  return `${(count / 1024 ** step).toFixed(step ? 1 : 0)} ${unit[step]}`;
}
const base = (path) => path.split(/[\\/]/).pop();

// Signing in.
function showSignIn() {
  $('signin').hidden = false;
  $('new').hidden = $('queue').hidden = true;
}
$('signin-form').addEventListener('submit', async (event) => {
  event.preventDefault();
  try {
    await call('POST', '/login', { token: $('token').value.trim() });
    location.reload();
  } catch (error) {
    report('signin-error', error);
  }
});

// Settings, remembered from visit to visit.
const form = $('settings');
function restoreSettings() {
  const kept = JSON.parse(localStorage.getItem('settings') || '{}');
  for (const [name, value] of Object.entries(kept)) {
    const field = form.elements.namedItem(name);
    if (field && (field.tagName !== 'SELECT' || [...field.options].some((option) => option.value === value))) {
      field.value = value;
    }
  }
}
function chosen() {
  const values = Object.fromEntries(new FormData(form));
  localStorage.setItem('settings', JSON.stringify(values));
  const [name, value] = values.size.split(':');
  const settings = { [name]: name === 'scale' ? Number(value) : value, batch_size: Number(values.batch_size) || 5 };
  if (values.color) settings.color = values.color;
  if (values.codec) settings.codec = values.codec;
  return { model: values.model || undefined, settings };
}

// Inputs: uploads in parts that continue after a break, or paths under a root.
function source(input) { return input.upload ? { upload: input.upload } : { input: input.path }; }
function isReady(input) { return Boolean(input.path || input.done); }

function showInputs() {
  $('inputs').replaceChildren(...inputs.map((input) => {
    const state = input.error || (isReady(input) ? '' : `${Math.floor(100 * input.sent / Math.max(1, input.file.size))}%`);
    const remove = element('button', { textContent: 'Remove', type: 'button' });
    remove.setAttribute('aria-label', `Remove ${input.name}`);
    remove.addEventListener('click', () => { inputs.splice(inputs.indexOf(input), 1); showInputs(); estimate(); });
    return element('li', {}, [element('span', { textContent: `${input.name} ${state}` }), remove]);
  }));
  const ready = inputs.some(isReady);
  $('start').disabled = $('preview').disabled = !ready;
}

const TUS = { 'Tus-Resumable': '1.0.0' };
const PART = 8 << 20;
async function upload(input) {
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(input.name)));
  const created = await fetch('/v1/uploads', {
    method: 'POST', headers: { ...TUS, 'Upload-Length': input.file.size, 'Upload-Metadata': `filename ${name}` },
  });
  if (created.status !== 201) throw new Error((await created.json()).detail);
  const place = created.headers.get('Location');
  for (let attempt = 0; input.sent < input.file.size;) {
    try {
      const reply = await fetch(place, {
        method: 'PATCH', body: input.file.slice(input.sent, input.sent + PART),
        headers: { ...TUS, 'Upload-Offset': input.sent, 'Content-Type': 'application/offset+octet-stream' },
      });
      if (!reply.ok) throw new Error((await reply.json()).detail);
      input.sent = Number(reply.headers.get('Upload-Offset'));
      attempt = 0;
    } catch (error) {
      if (++attempt > 5) throw error;
      await new Promise((wake) => setTimeout(wake, 500 * 2 ** attempt));
      const head = await fetch(place, { method: 'HEAD', headers: TUS }).catch(() => null);
      if (head && head.ok) input.sent = Number(head.headers.get('Upload-Offset'));
    }
    showInputs();
  }
  input.upload = base(place);
  input.done = true;
}
async function addFiles(files) {
  for (const file of files) {
    const input = { name: file.name, file, sent: 0 };
    inputs.push(input);
    showInputs();
    await upload(input).catch((error) => { input.error = error.message; });
    showInputs();
    estimate();
  }
}
$('files').addEventListener('change', (event) => addFiles([...event.target.files]));
const drop = $('drop');
for (const kind of ['dragover', 'dragleave', 'drop']) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle('over', kind === 'dragover');
    if (kind === 'drop') addFiles([...event.dataTransfer.files]);
  });
}
$('path-form').addEventListener('submit', (event) => {
  event.preventDefault();
  const path = $('path').value.trim();
  if (!path) return;
  inputs.push({ name: path, path });
  $('path').value = '';
  showInputs();
  estimate();
});

// The estimate of the first input.
let waiting;
function estimate() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const input = inputs.find(isReady);
    if (!input) { $('estimate').textContent = ''; return; }
    try {
      const value = await call('POST', '/v1/estimate', { ...source(input), ...chosen() });
      const memory = value.device_bytes ? `${bytes(value.device_bytes)} of GPU memory` : `${bytes(value.host_bytes)} of memory`;
      $('estimate').textContent = `${base(input.name)}: ${value.output_size.join('x')}, ${value.frames} frames, `
        + `about ${clock(value.seconds)}, ${memory}, ${bytes(value.output_bytes + value.work_bytes)} of disk space`;
      report('new-error', null);
    } catch (error) {
      $('estimate').textContent = '';
      report('new-error', error);
    }
  }, 250);
}
form.addEventListener('change', estimate);

$('start').addEventListener('click', async () => {
  for (const input of inputs.filter(isReady)) {
    try {
      await call('POST', '/v1/jobs', { ...source(input), ...chosen() }, { 'Idempotency-Key': crypto.randomUUID() });
      inputs.splice(inputs.indexOf(input), 1);
      report('new-error', null);
    } catch (error) {
      report('new-error', error);
    }
  }
  showInputs();
});

// The preview with a wipe.
$('preview').addEventListener('click', async () => {
  const input = inputs.find(isReady);
  const button = $('preview');
  button.disabled = true;
  button.textContent = 'Computing ...';
  try {
    const value = await call('POST', '/v1/previews', { ...source(input), ...chosen(), at: $('at').value });
    $('before').src = value.input;
    $('after').src = value.output;
    $('compare').hidden = false;
    wipe();
    report('new-error', null);
  } catch (error) {
    report('new-error', error);
  }
  button.textContent = 'Preview';
  button.disabled = false;
});
function wipe() {
  const share = Number($('wipe').value);
  $('before').style.clipPath = `inset(0 ${100 - share}% 0 0)`;
  $('line').style.left = `calc(${share / 100} * ${$('before').clientWidth}px - 1px)`;
}
$('wipe').addEventListener('input', wipe);
addEventListener('resize', wipe);
$('before').addEventListener('load', wipe);
$('zoom').addEventListener('click', () => {
  const full = $('stage').classList.toggle('full');
  $('zoom').setAttribute('aria-pressed', full);
  wipe();
});

// The queue.
function facts(job) {
  const { total, done, fps, eta_seconds: eta } = job.progress;
  const parts = [job.stopping ? 'stopping' : job.state];
  if (job.state === 'queued' && job.position !== null) parts.push(`position ${job.position + 1}`);
  parts.push(`${job.output_size.join('x')}`, job.model);
  if (done) parts.push(total ? `${done} of ${total} frames` : `${done} frames`);
  if (fps && job.state === 'running') parts.push(`${fps.toFixed(1)} fps`);
  if (eta !== null && job.state === 'running') parts.push(`${clock(eta)} left`);
  if (job.error) parts.push(job.error.detail);
  return parts.join(' · ');
}
const ACTIONS = {
  queued: ['First', 'Pause', 'Cancel'], running: ['Pause', 'Cancel'], paused: ['Resume', 'Cancel'],
  failed: ['Retry', 'Remove'], cancelled: ['Retry', 'Remove'], done: ['Download', 'Remove'],
};
async function act(action, id) {
  try {
    if (action === 'Download') location.assign(`/v1/jobs/${id}/result`);
    else if (action === 'First') await call('POST', '/v1/order', { jobs: [id] });
    else if (['Cancel', 'Remove'].includes(action)) await call('DELETE', `/v1/jobs/${id}`);
    else await call('POST', `/v1/jobs/${id}/${action.toLowerCase()}`);
  } catch (error) {
    report('new-error', error);
  }
}
function makeItem(job) {
  const bar = element('progress', { max: 1 });
  bar.setAttribute('aria-label', `Progress of ${base(job.input)}`);
  const item = element('li', {}, [
    element('div', { className: 'name', textContent: `${base(job.input)} → ${base(job.output)}` }),
    element('p', { className: 'facts' }), bar, element('div', { className: 'actions' }),
  ]);
  item.dataset.id = job.id;
  return item;
}
function showJob(job) {
  let item = document.querySelector(`#jobs li[data-id="${CSS.escape(job.id)}"]`);
  if (!item) $('jobs').append(item = makeItem(job));
  item.querySelector('.facts').textContent = facts(job);
  const bar = item.querySelector('progress');
  bar.hidden = job.state === 'done';
  bar.value = job.progress.total ? job.progress.done / job.progress.total : 0;
  const actions = item.querySelector('.actions');
  if (actions.dataset.state !== job.state) {
    actions.dataset.state = job.state;
    actions.replaceChildren(...ACTIONS[job.state].map((name) => {
      const button = element('button', { textContent: name, type: 'button' });
      button.setAttribute('aria-label', `${name} ${base(job.input)}`);
      button.addEventListener('click', () => act(name, job.id));
      return button;
    }));
  }
  $('empty').hidden = jobs.size > 0;
}
function listen() {
  const events = new EventSource('/v1/events');
  events.addEventListener('snapshot', (event) => {
    jobs.clear();
    $('jobs').replaceChildren();
    $('empty').hidden = false;
    for (const job of JSON.parse(event.data).jobs) { jobs.set(job.id, job); showJob(job); }
  });
  events.addEventListener('job', (event) => {
    const job = JSON.parse(event.data);
    jobs.set(job.id, job);
    showJob(job);
  });
  events.addEventListener('removed', (event) => {
    const { id } = JSON.parse(event.data);
    jobs.delete(id);
    document.querySelector(`#jobs li[data-id="${CSS.escape(id)}"]`)?.remove();
    $('empty').hidden = jobs.size > 0;
  });
}

async function begin() {
  const about = await call('GET', '/v1/capabilities');
  $('device').textContent = `${about.devices.join(', ')} · version ${about.version}`;
  $('by-path').hidden = $('path-form').hidden = about.roots.length === 0;
  $('roots').textContent = about.roots.join(', ');
  const { models } = await call('GET', '/v1/models');
  $('models').replaceChildren(...models.filter((model) => model.installed).map((model) => element('option', {
    value: model.name, textContent: model.name, selected: model.default, title: model.about,
  })));
  restoreSettings();
  listen();
}
begin().catch((error) => report('new-error', error));
