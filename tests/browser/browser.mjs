// A chromium that notices console errors, requests to other sites and violations of accessibility rules.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const FOLDER = process.env.SCREENSHOTS;
export const WIDE = { width: 1600, height: 1000 };
export const NARROW = { width: 360, height: 740 };

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });

// A page whose errors are collected. `quiet` is true while errors are expected, such as when the server is killed.
export async function open(browser, origin, options = {}) {
  const context = await browser.newContext({ viewport: WIDE, reducedMotion: 'no-preference', ...options });
  context.setDefaultTimeout(60_000);
  if (process.env.PAGE) await context.route('**/*', (route) => fromFolder(route, process.env.PAGE));
  const page = await context.newPage();
  const watch = { errors: [], foreign: [], quiet: false };
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type()) && !watch.quiet) watch.errors.push(message.text());
  });
  page.on('pageerror', (error) => watch.errors.push(String(error)));
  page.on('request', (request) => {
    const { origin: target, protocol } = new URL(request.url());
    if (target !== origin && !['data:', 'blob:'].includes(protocol)) watch.foreign.push(request.url());
  });
  return { context, page, watch };
}

// Answers with a file of the folder instead of the one in the program, so that a change needs no build.
async function fromFolder(route, folder) {
  const path = join(folder, new URL(route.request().url()).pathname.slice(1) || 'index.html');
  if (!existsSync(path)) return route.fallback();
  const response = await route.fetch();
  return route.fulfill({ response, body: readFileSync(path) });
}

export function assertClean({ watch }) {
  assert.deepEqual(watch.errors, [], 'console errors');
  assert.deepEqual(watch.foreign, [], 'requests to other sites');
}

// All rules of axe, without its own script in the page's policy.
export async function accessible(page, screen) {
  await page.evaluate((code) => (globalThis.axe ? 0 : new Function(code)()), AXE).catch(async () => {
    // The policy of the page forbids code from text, which a debugger may run.
    const session = await page.context().newCDPSession(page);
    await session.send('Runtime.evaluate', { expression: AXE });
  });
  const violations = await page.evaluate(async () => {
    const found = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ target, any }) =>
      `${target.join(' ')} ${any.map(({ message }) => message).join('; ')}`).join(' | ')}`);
  });
  assert.deepEqual(violations, [], `accessibility of ${screen}`);
}

export async function shot(page, name, options = {}) {
  if (!FOLDER) return;
  mkdirSync(FOLDER, { recursive: true });
  await page.screenshot({ path: join(FOLDER, `${name}.png`), ...options });
}

// One screen in both themes and both widths: rules of accessibility, no sideways scrolling, a screenshot of each.
export async function look(page, name) {
  const before = page.viewportSize();
  for (const [width, viewport] of [['wide', WIDE], ['narrow', NARROW]]) {
    await page.setViewportSize(viewport);
    for (const colorScheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme });
      await page.waitForTimeout(250);
      await shot(page, `${name}-${width}-${colorScheme}`, { fullPage: width === 'narrow' });
      await accessible(page, `${name}, ${width}, ${colorScheme}`);
    }
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    assert.ok(over <= 0, `${name} scrolls sideways by ${over} pixels when ${width}`);
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize(before);
}

// Drops files as a user does; the browser's own files cannot be read by a script, so the page gets copies.
export async function drop(page, files) {
  const transfer = await page.evaluateHandle((list) => {
    const data = new DataTransfer();
    for (const { name, content } of list) {
      const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
      data.items.add(new File([bytes], name, { lastModified: 1 }));
    }
    return data;
  }, files.map(({ name, path, text }) => ({
    name, content: (text !== undefined ? Buffer.from(text) : readFileSync(path)).toString('base64'),
  })));
  const kinds = ['dragenter', 'dragover', 'drop'];
  for (const kind of kinds) await page.dispatchEvent('#drop', kind, { dataTransfer: transfer });
}
