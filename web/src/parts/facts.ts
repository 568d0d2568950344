import type { Client } from '../api/types.ts';
import { text } from '../text.ts';

/** What is known of the program that asked. */
export function ofClient(client: Client): { label: string; value: string; note?: string }[] {
  const said = text.facts;
  return [
    { label: said.host, value: client.host_name, note: said.hostNote },
    { label: said.address, value: client.address },
    { label: said.time, value: moment(new Date(client.time)) },
  ].filter(({ value }) => value !== '');
}

/** Date and time as this person's browser writes them; empty for what is no time. */
export function moment(time: Date): string {
  if (Number.isNaN(time.getTime())) return '';
  return new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' }).format(time);
}

/** The time of day, and the date where it is not today. */
export function clock(time: Date, now: Date): string {
  const sameDay = time.toDateString() === now.toDateString();
  return sameDay ? new Intl.DateTimeFormat(undefined, { timeStyle: 'short' }).format(time) : moment(time);
}
