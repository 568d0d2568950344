// `npm run dev`: the pages as they are edited, against the stand-in for the proxy.
import { createServer } from 'vite';
import { Mock, filled } from './mock.ts';

const mock = await Mock.start();
const server = await createServer({
  base: '/web/',
  plugins: [
    {
      name: 'sallyport-mock',
      transformIndexHtml: { order: 'pre', handler: filled },
      configureServer({ middlewares }) {
        middlewares.use((request, response, next) => {
          if (request.method === 'POST' && request.url?.startsWith('/web/')) void mock.serve(request, response);
          else {
            if (/^\/((login|approve|enrol)$|invite\/|$)/.test(request.url ?? '')) request.url = '/web/';
            next();
          }
        });
      },
    },
  ],
});
await server.listen();
const address = `http://localhost:${server.config.server.port}`;
mock.origin = address;
for (const page of ['/', '/login#loopback-1', '/login#headless-1', '/approve#approve-1', '/enrol#enrol-123', '/invite/invitation']) {
  console.log(address + page);
}
