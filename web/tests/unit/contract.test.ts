import assert from 'node:assert/strict';
import { test } from 'node:test';
import contract from '../../src/api/contract.json';
import type { Calls } from '../../src/api/types.ts';

// Where the types and the examples part, svelte-check fails here; the proxy's tests hold its own types to the same file.
const typed: { [N in keyof Calls]: { request: Calls[N]['request']; answer: object } } = contract;
const answered: { [N in Full]: { answer: Calls[N]['answer'] } } = contract;
type Full = { [N in keyof Calls]: Calls[N]['answer'] extends Record<string, never> ? never : N }[keyof Calls];
type Exact<A, B> = [keyof A] extends [keyof B] ? ([keyof B] extends [keyof A] ? true : never) : never;
const complete: Exact<Calls, typeof contract> = true;
const answers: { [N in Full]: Exact<Calls[N]['answer'], (typeof contract)[N]['answer']> } | null = null;

test('there is an example of every call', () => {
  assert.ok(complete && answers === null && answered);
  assert.equal(Object.keys(typed).length, 24);
});
