// Bundles the tests (TypeScript and Svelte's runes) and runs them by Node's own test runner: `node tests/run.mjs unit|browser|dev`.
import { spawnSync } from 'node:child_process';
import { readFileSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build, transform } from 'esbuild';
import { compileModule } from 'svelte/compiler';

const web = join(dirname(fileURLToPath(import.meta.url)), '..');
process.chdir(web);
const [kind = 'unit', ...only] = process.argv.slice(2);
const out = join(web, 'node_modules', '.tests', kind);

const runes = {
  name: 'runes',
  setup({ onLoad }) {
    onLoad({ filter: /\.svelte\.ts$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, 'utf8'), { loader: 'ts', target: 'es2022' });
      return { contents: compileModule(code, { filename: path, generate: 'client' }).js.code, loader: 'js' };
    });
  },
};

const sources =
  kind === 'dev' ? ['tests/dev.ts'] : readdirSync(`tests/${kind}`).filter((name) => name.endsWith('.test.ts')).map((name) => `tests/${kind}/${name}`);
rmSync(out, { recursive: true, force: true });
await build({
  entryPoints: sources,
  outdir: out,
  outExtension: { '.js': '.mjs' },
  bundle: true,
  platform: 'node',
  format: 'esm',
  target: 'node18',
  conditions: ['browser'],
  external: ['playwright-core', 'axe-core', 'vite'],
  plugins: [runes],
  logLevel: 'warning',
  sourcemap: 'inline',
});
if (kind === 'dev') {
  await import(pathToFileURL(join(out, 'dev.mjs')).href);
} else {
  const built = readdirSync(out).filter((name) => name.endsWith('.mjs')).map((name) => join(out, name));
  const run = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-reporter=spec', ...only, ...built], { stdio: 'inherit' });
  process.exit(run.status ?? 1);
}
