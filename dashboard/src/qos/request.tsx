// The frame of a form that requests something: its fields, and what the server
// says about the whole.

import type { ComponentChildren, RefObject } from "preact";
import { useEffect } from "preact/hooks";

import type { Assigned } from "../api/problem";

interface Props {
  title: string;
  busy: boolean;
  errors: Assigned;
  form: RefObject<HTMLFormElement>;
  submit(event: Event): void;
  cancel(): void;
  children: ComponentChildren;
}

export function Request({ title, busy, errors, form, submit, cancel, children }: Props) {
  useEffect(() => form.current?.querySelector("input")?.focus(), [form]);
  return (
    <form class="request" ref={form} aria-label={title} noValidate onSubmit={submit}>
      {children}
      <p class="error" role="alert" tabindex={-1}>{errors.rest.join(" ")}</p>
      <div class="actions">
        <button type="submit" class="primary" disabled={busy}>Request</button>
        <button type="button" onClick={cancel}>Cancel</button>
      </div>
    </form>
  );
}
