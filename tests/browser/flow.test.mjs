// The page as a user meets it: every screen, and every step from a file to its result.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { accessible, assertClean, drop, launch, look, NARROW, open, shot } from './browser.mjs';
import { Server } from './server.mjs';

const LIMIT = 100 * 1024;
let server;
let browser;
let tab;
let page;
let clip;

const job = (state = '') => page.locator(`.job${state && `[data-state=${state}]`}`);
const action = (name) => page.locator('.job-actions').getByRole('button', { name: `${name}:` });
const images = (root) => page.locator(`${root} .pane img[src]`);
const clipOf = () => page.locator('#compare .pane.side-0').evaluate((pane) => pane.style.clipPath);

// Signs in by the cookie of the token, as the address does that the server prints.
async function visit(options) {
  tab = await open(browser, server.origin, options);
  page = tab.page;
  const reply = await tab.context.request.post(`${server.origin}/login`, { data: { token: server.token } });
  assert.equal(reply.status(), 204);
  await page.goto(`${server.origin}/`);
  await page.locator('#work').waitFor();
}

async function addBySearch(...names) {
  await page.getByRole('button', { name: 'Browse server' }).click();
  await page.locator('#browser-list .entry').first().waitFor();
  if (!(await page.getByRole('checkbox', { name: names[0] }).count())) {
    await page.getByRole('button', { name: 'videos' }).click();
  }
  for (const name of names) await page.getByRole('checkbox', { name }).check();
  await page.getByRole('button', { name: /^Add \d/ }).click();
}

async function startJob(name) {
  await addBySearch(name);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await job('running').waitFor();
}

before(async () => {
  server = new Server();
  browser = await launch();
  clip = server.clip('tape.mp4');
  server.clip('slow.mp4', { size: '64x48', frames: 240 });
  server.clip('second.mp4', { frames: 10 });
  server.clip('short.mp4', { frames: 120 });
  await server.start();
});

beforeEach(async () => {
  if (tab) await tab.context.close();
  tab = null;
  await server.clear();
});

after(async () => {
  await browser?.close();
  await server?.remove();
});

test('the page is small, in plain files, and asks no other site', () => {
  const folder = new URL('../../crates/reseed-server/page', import.meta.url).pathname;
  const total = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  assert.ok(total <= LIMIT, `${total} bytes`);
});

test('the address of the server signs in once; later the token does', async () => {
  tab = await open(browser, server.origin);
  page = tab.page;
  await page.goto(server.url);
  await page.locator('#work').waitFor();
  await tab.context.close();

  tab = await open(browser, server.origin);
  page = tab.page;
  tab.watch.quiet = true; // the browser logs every refused request
  await page.goto(`${server.origin}/`);
  await page.getByLabel('Token').waitFor();
  await look(page, 'sign-in');
  await page.getByLabel('Token').fill('0123456789abcdef');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').filter({ hasText: 'not the token' }).waitFor();
  await page.getByLabel('Token').fill(server.token);
  await page.keyboard.press('Enter');
  await page.locator('#work').waitFor();
  tab.watch.quiet = false;
  await page.reload();
  await page.locator('#work').waitFor();
  assertClean(tab);
});

test('a dropped clip: estimate, preview, wipe, start, comparison of the result, download', async () => {
  await visit();
  await look(page, 'empty');
  await drop(page, [{ name: 'tape.mp4', path: clip }]);
  await page.locator('#estimate .facts').waitFor();
  assert.match(await page.locator('#estimate').innerText(), /64\s×\s48/);
  assert.match(await page.locator('#estimate').innerText(), /24 frames/);
  assert.equal(await page.locator('#estimate [role=meter]').count(), 1);
  await images('#compare').first().waitFor();
  await look(page, 'file');

  await page.getByRole('button', { name: 'Preview this frame' }).click();
  await page.locator('#compare[data-both=true]').waitFor();
  await wipeWithPointer();
  await zoomAndPan();
  await look(page, 'preview');
  // A preview that is outdated is shown no longer, and comes back with its settings.
  await page.getByRole('radio', { name: '4×' }).first().check();
  await page.locator('#compare[data-both=false]').waitFor();
  await page.locator('#estimate').getByText(/128\s×\s96/).waitFor();
  await page.getByRole('radio', { name: '2×' }).first().check();
  await page.locator('#compare[data-both=true]').waitFor();

  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await job('done').waitFor();
  await look(page, 'done');
  await action('Compare').click();
  await page.locator('#result-compare[data-both=true]').waitFor();
  const [before, after] = await images('#result-compare').evaluateAll((list) => list.map((image) => image.src).sort());
  assert.notEqual(before, after);
  await look(page, 'result');
  await page.locator('#result').getByRole('slider', { name: 'Time' }).fill('0');
  await page.waitForFunction((old) => document.querySelector('#result-compare img').src !== old, after);
  const [download] = await Promise.all([page.waitForEvent('download'),
    page.locator('#result').getByRole('link', { name: 'Download' }).click()]);
  assert.ok(statSync(await download.path()).size > 0);
  await page.getByRole('button', { name: 'Open folder' }).click();
  assert.ok(existsSync(join(await server.shown(), 'tape.mp4')));
  assertClean(tab);
});

async function wipeWithPointer() {
  const box = await page.locator('#compare .stage').boundingBox();
  const middle = box.y + box.height / 2;
  const start = await clipOf();
  await page.mouse.move(box.x + box.width / 2, middle);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, middle, { steps: 5 });
  await page.mouse.up();
  const dragged = await clipOf();
  assert.notEqual(dragged, start);
  const line = await page.locator('#compare .line').boundingBox();
  assert.ok(Math.abs(line.x + line.width / 2 - (box.x + box.width * 0.6)) <= 4, 'the line follows the pointer');
  const slider = page.locator('#compare').getByRole('slider', { name: 'Wipe' });
  await slider.focus();
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await clipOf(), dragged);
  await page.locator('#compare .stage').focus();
  await page.keyboard.press('End');
  assert.equal(await slider.inputValue(), '100');
  await slider.fill('50');
}

async function zoomAndPan() {
  const image = page.locator('#compare .pane.side-0 img');
  const width = () => image.evaluate((node) => node.getBoundingClientRect().width);
  const stage = page.locator('#compare .stage');
  await page.locator('#compare').getByRole('radio', { name: '1:1' }).check();
  assert.equal(await width(), 64);
  await page.locator('#compare').getByRole('radio', { name: '2:1' }).check();
  assert.equal(await width(), 128);
  assert.equal(await image.evaluate((node) => node.style.imageRendering), 'pixelated');
  await page.locator('#compare').getByRole('radio', { name: 'Side by side' }).check();
  assert.equal(await stage.getAttribute('data-mode'), 'side');
  await stage.focus();
  await page.keyboard.press('s');
  assert.equal(await stage.getAttribute('data-mode'), 'wipe');
  await page.keyboard.press('0');
  assert.ok(await width() > 128);
}

test('progress moves between events; a job is paused, cancelled and resumed', async () => {
  await visit();
  await startJob('slow.mp4');
  const fill = page.locator('.job .bar span');
  const share = () => fill.evaluate((node) => Number(/scaleX\(([^)]*)\)/.exec(node.style.transform)?.[1] || 0));
  await page.waitForFunction(() => /of 240 frames/.test(document.querySelector('.job-counts').textContent));
  const seen = new Set();
  for (let i = 0; i < 30; i++) {
    seen.add(await share());
    await page.waitForTimeout(30);
  }
  assert.ok(seen.size >= 5, `${seen.size} positions of the bar`);
  await look(page, 'running');
  await action('Pause').click();
  await job('paused').waitFor();
  await action('Resume').click();
  await job('running').waitFor();
  await action('Cancel').click();
  await job('cancelled').waitFor();
  const kept = await page.locator('.job-counts').innerText();
  assert.match(kept, /of 240 frames/);
  await look(page, 'cancelled');
  await action('Resume').click();
  await job('running').waitFor();
  assertClean(tab);
});

test('a reload in mid-job shows the job again; settings and theme are remembered', async () => {
  await visit();
  await addBySearch('tape.mp4');
  await page.getByRole('radio', { name: 'Anime' }).check();
  await page.getByText('Advanced').click();
  await page.getByLabel('Seed', { exact: true }).fill('7');
  // News of the file may arrive while somebody types.
  await page.evaluate(async () => (await import('/state.js')).emit('selection'));
  await page.getByLabel('Seed', { exact: true }).press('Tab');
  await page.locator('#preset-about').getByText('changed').waitFor();
  await page.getByRole('button', { name: /Theme of the system/ }).click();
  await page.getByRole('button', { name: /Light theme/ }).click();
  await page.locator('#estimate .facts').waitFor();
  await look(page, 'advanced');
  await page.getByRole('button', { name: 'Remove tape.mp4' }).click();
  await startJob('slow.mp4');
  await page.reload();
  await job('running').waitFor();
  assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark');
  await addBySearch('tape.mp4');
  assert.ok(await page.getByRole('radio', { name: 'Anime' }).isChecked());
  assert.equal(await page.getByLabel('Seed', { exact: true }).inputValue(), '7');
  await page.getByRole('button', { name: 'Reset' }).click();
  assert.equal(await page.getByLabel('Seed', { exact: true }).inputValue(), '');
  assertClean(tab);
});

test('the server is killed in mid-job: a banner, then the job continues', async () => {
  await visit();
  await startJob('short.mp4');
  await page.waitForFunction(() => /of 120 frames/.test(document.querySelector('.job-counts').textContent));
  tab.watch.quiet = true; // the browser logs every failed request
  await server.stop('SIGKILL');
  await page.locator('#offline').waitFor();
  await look(page, 'offline');
  await server.start();
  await page.locator('#offline').waitFor({ state: 'hidden' });
  tab.watch.quiet = false;
  await job('done').waitFor({ timeout: 300_000 }); // only a job that continues gets there
  assertClean(tab);
});

test('the whole flow by keyboard', async () => {
  await visit({ reducedMotion: 'reduce' });
  const tabTo = async (name) => {
    for (let i = 0; i < 80; i++) {
      await page.keyboard.press('Tab');
      const found = await page.evaluate(() => {
        const node = document.activeElement;
        const label = node.getAttribute('aria-label') || node.labels?.[0]?.textContent || node.textContent;
        return { label: label.trim(), ring: getComputedStyle(node).outlineStyle !== 'none' || node.matches('input') };
      });
      if (name.test(found.label)) {
        assert.ok(found.ring, `${name} shows no focus`);
        return;
      }
    }
    assert.fail(`the Tab key does not reach ${name}`);
  };
  await tabTo(/^Browse server/);
  await page.keyboard.press('Enter');
  await page.locator('#browser-list .entry').first().waitFor();
  await page.keyboard.press('Enter');
  await page.getByRole('checkbox', { name: 'tape.mp4' }).waitFor();
  await look(page, 'browse');
  await tabTo(/^tape.mp4/);
  await page.keyboard.press('Space');
  await tabTo(/^Add 1 file/);
  await page.keyboard.press('Enter');
  await page.locator('#estimate .facts').waitFor();
  await tabTo(/^Preview this frame/);
  await page.keyboard.press('Enter');
  await page.locator('#compare[data-both=true]').waitFor();
  await page.keyboard.press('Shift+Tab');
  await tabTo(/^Start/);
  await page.keyboard.press('Enter');
  await job('done').waitFor();
  assert.match(await page.locator('#announcer').innerText(), /tape.mp4 is done/);
  await tabTo(/^Compare: tape.mp4/);
  await page.keyboard.press('Enter');
  await page.locator('#result-compare[data-both=true]').waitFor();
  const slider = page.locator('#result-compare').getByRole('slider', { name: 'Wipe' });
  await page.keyboard.press('ArrowRight');
  assert.equal(await slider.inputValue(), '52');
  await page.keyboard.press('Escape');
  await page.locator('#result').waitFor({ state: 'hidden' });
  assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^Compare/);
  assertClean(tab);
});

test('many files: settings of their own, an order, a queue that grows while it runs', async () => {
  await visit();
  await startJob('slow.mp4');
  await addBySearch('second.mp4', 'tape.mp4');
  await page.locator('.file').nth(1).getByRole('button', { name: /tape/ }).first().click();
  await page.getByRole('radio', { name: 'This file' }).check();
  await page.getByRole('radio', { name: '4×' }).check();
  await page.locator('.file').nth(1).getByText('Own settings').waitFor();
  await page.locator('#estimate').getByText('2 files').waitFor();
  await look(page, 'many');
  await page.getByRole('button', { name: 'Add 2 jobs to the queue' }).click();
  await job('queued').nth(1).waitFor();
  const firstIs = (name) => page.waitForFunction((wanted) =>
    document.querySelector('.job[data-state=queued] .name').textContent === wanted, name);
  const names = () => job('queued').locator('.name').allInnerTexts();
  assert.deepEqual(await names(), ['second.mp4', 'tape.mp4']);
  assert.match(await job('queued').nth(1).innerText(), /128\s×\s96/);
  await page.getByRole('button', { name: 'Move up: tape.mp4' }).click();
  await firstIs('tape.mp4');
  await page.getByRole('button', { name: 'Move down: tape.mp4' }).focus();
  await page.keyboard.press('Alt+ArrowDown');
  await firstIs('second.mp4');
  await look(page, 'queue');
  assertClean(tab);
});

test('a file that is no video, and a job whose input is gone, say why', async () => {
  await visit();
  tab.watch.quiet = true; // the browser logs every refused request
  await drop(page, [{ name: 'notes.mp4', text: 'no video' }]);
  await page.locator('.file .problem').waitFor();
  assert.match(await page.locator('.file .problem').innerText(), /\w/);
  assert.ok(await page.locator('#start').isDisabled());
  await look(page, 'refused');
  await page.getByRole('button', { name: 'Remove notes.mp4' }).click();
  const path = server.clip('gone.mp4');
  await startJob('slow.mp4');
  await addBySearch('gone.mp4');
  await page.getByRole('button', { name: 'Add to the queue' }).click();
  await job('queued').waitFor();
  writeFileSync(path, 'no video any more');
  await action('Cancel').first().click();
  await job('failed').waitFor();
  assert.match(await job('failed').locator('.problem').innerText(), /\w/);
  await look(page, 'failed');
  tab.watch.quiet = false;
  assertClean(tab);
});

test('the system screen shows devices, memory, models and software', async () => {
  await visit();
  await page.getByRole('link', { name: 'System' }).click();
  await page.getByRole('heading', { name: 'Models' }).waitFor();
  const text = await page.locator('#system').innerText();
  assert.match(text, /nano/);
  assert.match(text, /ffmpeg/);
  assert.match(text, /formula:tiny/);
  await look(page, 'system');
  await page.goBack();
  await page.locator('#drop').waitFor();
  await page.setViewportSize(NARROW);
  await accessible(page, 'workspace');
  await shot(page, 'workspace-back');
  assertClean(tab);
});
