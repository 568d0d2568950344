// What is built in, and what it was built by.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { gzipSync } from 'node:zlib';

const PERMISSIVE = ['0BSD', 'Apache-2.0', 'BSD-2-Clause', 'BSD-3-Clause', 'ISC', 'MIT'];
/** Runs in tests alone: no byte of it is in `dist`. */
const TESTS_ALONE: Record<string, string> = { 'axe-core': 'MPL-2.0' };
/** Compressed; a page on a slow line has to be there at once. */
const SCRIPT_BYTES = 30 * 1024;

test('every package may be used by a company without asking, and none has an address of its own', () => {
  const lock = JSON.parse(readFileSync('package-lock.json', 'utf8')) as {
    packages: Record<string, { license?: string; resolved?: string; integrity?: string; optional?: boolean }>;
  };
  for (const [path, { license, resolved, integrity }] of Object.entries(lock.packages)) {
    if (path === '') continue;
    const name = path.replace(/^.*node_modules\//, '');
    const fine = license !== undefined && (PERMISSIVE.includes(license) || TESTS_ALONE[name] === license);
    assert.ok(fine, `${name} has the licence ${license}`);
    assert.equal(resolved, undefined, `${name} is fetched from wherever the registry is`);
    assert.match(integrity ?? '', /^sha512-/, name);
  }
  const { devDependencies } = JSON.parse(readFileSync('package.json', 'utf8')) as { devDependencies: Record<string, string> };
  for (const [name, version] of Object.entries(devDependencies)) assert.match(version, /^\d+\.\d+\.\d+$/, name);
});

test('what is served is small, and names nothing that is elsewhere', () => {
  assert.deepEqual(readdirSync('dist').sort(), ['app.css', 'app.js', 'icon.svg', 'index.html']);
  const script = readFileSync('dist/app.js');
  assert.ok(gzipSync(script).length <= SCRIPT_BYTES, `${gzipSync(script).length} bytes of script`);
  const page = readFileSync('dist/index.html', 'utf8');
  assert.doesNotMatch(page, /<style|style=|<script(?![^>]* src=)|\bon\w+=/);
  assert.doesNotMatch(readFileSync('dist/app.css', 'utf8'), /url\(|@import/);
  assert.doesNotMatch(script.toString(), /\beval\(|new Function\(|document\.write/);
  const hosts = script.toString().match(/https?:\/\/[\w.-]+/g) ?? [];
  const harmless = new Set(['http://www.w3.org', 'https://svelte.dev']);
  assert.deepEqual(hosts.filter((host) => !harmless.has(host)), []);
  for (const file of ['app.js', 'app.css', 'icon.svg']) {
    const hash = createHash('sha256').update(readFileSync(`dist/${file}`)).digest('hex').slice(0, 16);
    assert.ok(page.includes(`"/web/${file}?v=${hash}"`), `${file} is named by its hash`);
  }
});
