// Makes the screenshots of the guide: the clip of `reseed demo` at half its size, restored by the built-in model.

import { join } from 'node:path';
import { launch, open, shot } from './browser.mjs';
import { Server } from './server.mjs';

const CLIP = new URL('../../crates/reseed-media/assets/demo/clip.mjpeg', import.meta.url).pathname;
const server = new Server('nano');
const browser = await launch();
try {
  for (const name of ['cockatoo.mp4', 'garden.mp4']) {
    const input = ['-f', 'mjpeg', '-framerate', '20', '-i', CLIP, '-frames:v', '20', '-vf', 'scale=240:136'];
    server.encode(input, join(server.root, name));
  }
  await server.start();
  const viewport = { width: 1440, height: 860 };
  const { page } = await open(browser, server.origin, { viewport, colorScheme: 'light' });
  const add = async (name) => {
    await page.getByRole('button', { name: 'Browse server' }).click();
    if (!(await page.getByRole('checkbox').first().isVisible().catch(() => false))) {
      await page.getByRole('button', { name: 'videos' }).click({ timeout: 3000 }).catch(() => {});
    }
    await page.getByRole('checkbox', { name }).check();
    await page.getByRole('button', { name: /^Add \d/ }).click();
    await page.locator('#estimate .facts').waitFor();
  };
  await page.goto(server.url);
  await add('garden.mp4');
  await page.locator('#start').click();
  await page.locator('.job[data-state=done]').waitFor({ timeout: 600_000 });
  await add('cockatoo.mp4');
  await page.getByRole('button', { name: 'Preview this frame' }).click();
  await page.locator('#compare[data-both=true]').waitFor({ timeout: 600_000 });
  await page.mouse.move(0, 0);
  await page.waitForTimeout(500);
  await shot(page, 'serve-page');
  await page.emulateMedia({ colorScheme: 'dark' });
  await page.getByRole('button', { name: /^Compare:/ }).click();
  await page.locator('#result-compare[data-both=true]').waitFor();
  await page.locator('#result-compare').getByRole('radio', { name: '2:1' }).check();
  // The path of a temporary folder says nothing.
  await page.locator('#result code').evaluate((node) => node.remove());
  await page.mouse.move(0, 0);
  await page.waitForTimeout(500);
  await shot(page, 'serve-result');
} finally {
  await browser.close();
  await server.remove();
}
