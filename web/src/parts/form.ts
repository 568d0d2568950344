import { tick } from 'svelte';

/** Sends a form by code, and puts the keyboard on the first field that has to be filled in again. */
export function sends(act: () => Promise<void>): (event: SubmitEvent) => void {
  return (event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    void act().finally(() => toFirstWrong(form));
    void toFirstWrong(form);
  };
}

/** Moves the keyboard to the first field that is wrong, if there is one. */
export async function toFirstWrong(within: ParentNode): Promise<void> {
  await tick();
  within.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
}
