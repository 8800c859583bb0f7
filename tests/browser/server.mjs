// `reseed serve` as a process, with folders of its own.

import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const RESEED = process.env.RESEED;

export class Server {
  constructor(model = 'formula:tiny') {
    this.model = model;
    this.folder = mkdtempSync(join(tmpdir(), 'reseed-browser-'));
    this.root = join(this.folder, 'videos');
    mkdirSync(this.root);
    this.data = join(this.folder, 'data');
    this.port = 0;
    // A desktop whose file manager writes down the folder that it is to show.
    this.desktop = join(this.folder, 'desktop');
    mkdirSync(this.desktop);
    const manager = `#!/bin/sh\nprintf %s "$1" > '${this.desktop}/shown'\n`;
    writeFileSync(join(this.desktop, 'xdg-open'), manager, { mode: 0o755 });
  }

  // The folder that the file manager shows, once it does.
  async shown() {
    const file = join(this.desktop, 'shown');
    while (!existsSync(file) || !readFileSync(file, 'utf8')) await new Promise((resolve) => setTimeout(resolve, 50));
    return readFileSync(file, 'utf8');
  }

  // A moving pattern; its frames differ, so that a time can be recognised.
  clip(name, { size = '32x24', frames = 24, rate = 8 } = {}) {
    const source = `testsrc2=size=${size}:rate=${rate}`;
    return this.encode(['-f', 'lavfi', '-i', source, '-frames:v', frames], join(this.root, name));
  }

  encode(input, path) {
    const codec = ['-pix_fmt', 'yuv420p', '-c:v', 'libx264', '-crf', '18'];
    execFileSync('ffmpeg', ['-y', '-v', 'error', ...input, ...codec, path]);
    return path;
  }

  // The first start takes a free port, later ones the same.
  async start() {
    const options = ['--bind', `127.0.0.1:${this.port}`, '--data', this.data, '--root', this.root,
      '--model', this.model, '--device', 'cpu', '--threads', '1', '--json'];
    const env = { ...process.env, PATH: `${this.desktop}:${process.env.PATH}`, DISPLAY: ':0' };
    this.child = spawn(RESEED, ['serve', ...options], { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const ended = new Promise((resolve, reject) => {
      this.child.once('exit', (code) => reject(new Error(`serve ended: ${code}`)));
    });
    ended.catch(() => {});
    const line = new Promise((resolve) => createInterface({ input: this.child.stdout }).once('line', resolve));
    const { url, address } = JSON.parse(await Promise.race([line, ended]));
    this.url = url;
    this.origin = `http://${address}`;
    this.port = Number(address.split(':').pop());
  }

  get token() {
    return readFileSync(join(this.data, 'token'), 'utf8').trim();
  }

  // Ends the process. SIGKILL leaves it no time for anything.
  async stop(signal = 'SIGTERM') {
    if (!this.child || this.child.exitCode !== null || this.child.signalCode) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill(signal);
    await ended;
  }

  async request(path, options = {}) {
    const headers = { Authorization: `Bearer ${this.token}`, 'Content-Type': 'application/json' };
    const reply = await fetch(`${this.origin}${path}`, { headers, ...options });
    return reply.status === 204 ? null : reply.json();
  }

  // Removes all jobs, so that tests do not see those of others.
  async clear() {
    for (let pass = 0; pass < 100; pass++) {
      const { jobs } = await this.request('/v1/jobs');
      if (!jobs.length) return;
      for (const { id } of jobs) await this.request(`/v1/jobs/${id}`, { method: 'DELETE' });
      await new Promise((wake) => setTimeout(wake, 100));
    }
    throw new Error('jobs are left');
  }

  async remove() {
    await this.stop();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
