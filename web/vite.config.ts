import { createHash } from 'node:crypto';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

// The proxy serves these under names that stay; what changes is the hash in the query, so that a browser may keep a file for good.
function hashed(): Plugin {
  return {
    name: 'sallyport-hashed',
    enforce: 'post',
    generateBundle(_, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('the build has made no index.html');
      let html = String(page.source).replaceAll(' crossorigin', '');
      for (const file of Object.values(bundle)) {
        const content = file.type === 'chunk' ? file.code : file.source;
        const hash = createHash('sha256').update(content).digest('hex').slice(0, 16);
        html = html.replaceAll(`"/web/${file.fileName}"`, `"/web/${file.fileName}?v=${hash}"`);
      }
      page.source = html;
    },
  };
}

export default defineConfig({
  base: '/web/',
  plugins: [svelte(), hashed()],
  build: {
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    reportCompressedSize: false,
    rollupOptions: {
      output: {
        inlineDynamicImports: true,
        entryFileNames: 'app.js',
        assetFileNames: ({ names }) => (names[0]?.endsWith('.css') ? 'app.css' : '[name][extname]'),
      },
    },
  },
});
