// Uploads by tus 1.0: in parts, and continued after a break, also when the page was closed in between.

import { request } from './api.js';
import { emit, recall, remember } from './state.js';

const HEADERS = { 'Tus-Resumable': '1.0.0' };
const PART = 2 << 20; // small enough for progress that moves
const ATTEMPTS = 6;
const KEPT = 50; // unfinished uploads that are remembered

const pause = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));
// The same file, when it is dropped again.
const fingerprint = ({ name, size, lastModified }) => `${name}|${size}|${lastModified}`;

const known = (blob) => recall('uploads', []).find(([print]) => print === fingerprint(blob))?.[1];
function keep(blob, place) {
  const others = recall('uploads', []).filter(([print]) => print !== fingerprint(blob));
  remember('uploads', place ? [[fingerprint(blob), place], ...others].slice(0, KEPT) : others);
}

async function offsetOf(place, signal) {
  const reply = await request(place, { method: 'HEAD', headers: HEADERS, signal });
  return Number(reply.headers.get('Upload-Offset'));
}

// The address of the upload of a file, and the bytes that have arrived.
async function open(blob, signal) {
  const place = known(blob);
  if (place) {
    try {
      return [place, await offsetOf(place, signal)];
    } catch (error) {
      if (error.status !== 404) throw error;
    }
  }
  const name = btoa(String.fromCharCode(...new TextEncoder().encode(blob.name)));
  const reply = await request('/v1/uploads', {
    method: 'POST', signal,
    headers: { ...HEADERS, 'Upload-Length': blob.size, 'Upload-Metadata': `filename ${name}` },
  });
  const created = new URL(reply.headers.get('Location'), location.href).pathname;
  keep(blob, created);
  return [created, 0];
}

async function send(place, part, offset, signal) {
  const headers = { ...HEADERS, 'Upload-Offset': offset, 'Content-Type': 'application/offset+octet-stream' };
  const reply = await request(place, { method: 'PATCH', body: part, headers, signal });
  return Number(reply.headers.get('Upload-Offset'));
}

// A refusal that another attempt does not change.
const isFinal = ({ status }) => status >= 400 && status < 500 && ![408, 409, 423].includes(status);

async function transfer(file, signal) {
  const { blob } = file;
  let place;
  for (let attempt = 0; ;) {
    try {
      if (!place) [place, file.sent] = await open(blob, signal);
      else if (attempt) file.sent = await offsetOf(place, signal);
      while (file.sent < blob.size) {
        file.sent = await send(place, blob.slice(file.sent, file.sent + PART), file.sent, signal);
        attempt = 0;
        emit('progress', file);
      }
      keep(blob, null);
      return place.split('/').pop();
    } catch (error) {
      if (signal.aborted || isFinal(error) || ++attempt > ATTEMPTS) throw error;
      file.waiting = true;
      emit('progress', file);
      await pause(400 * 2 ** attempt);
      file.waiting = false;
    }
  }
}

// Uploads go one after another, so that the first file is ready soon.
let last = Promise.resolve();
export function upload(file) {
  file.error = null;
  file.sent = 0;
  file.stopper = new AbortController();
  const { signal } = file.stopper;
  const turn = last.then(async () => {
    if (signal.aborted) return;
    try {
      file.upload = await transfer(file, signal);
    } catch (error) {
      if (signal.aborted) return;
      file.error = `The upload failed: ${error.message}`;
    }
    emit('files');
  });
  last = turn;
  return turn;
}

// Stops an upload, or removes it from the server when no job needs it.
export async function discard(file) {
  file.stopper?.abort();
  const place = file.upload ? `/v1/uploads/${file.upload}` : known(file.blob);
  if (!place) return;
  keep(file.blob, null);
  await request(place, { method: 'DELETE', headers: HEADERS }).catch(() => {});
}
