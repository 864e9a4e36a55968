// The frame of a form that requests something: its fields, and what the server
// says about the whole.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect } from "preact/hooks";

import type { Assigned } from "../api/problem";

interface Props {
  title: string;
  /** What the button that sends it says; "Request" if it is left out. */
  verb?: string;
  /** Whether it stands on the page from the start: then it does not take the focus. */
  still?: boolean;
  busy: boolean;
  errors: Assigned;
  form: RefObject<HTMLFormElement>;
  submit(event: Event): void;
  cancel?: () => void;
  children: ComponentChildren;
}

export function Request({ title, verb = "Request", still = false, busy, errors, form, submit, cancel, children }: Props) {
  useEffect(() => {
    if (!still) form.current?.querySelector<HTMLElement>("input, select")?.focus();
  }, [form, still]);
  return (
    <form class="request" ref={form} aria-label={title} noValidate onSubmit={submit}>
      {children}
      <p class="error" role="alert" tabindex={-1}>{errors.rest.join(" ")}</p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}>{verb}</button>
        {cancel && <button type="button" onClick={cancel}>Cancel</button>}
      </div>
    </form>
  );
}
