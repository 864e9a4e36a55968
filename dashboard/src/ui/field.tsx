// A labelled input with what the server says about it.

import type { ComponentChildren } from "preact";

interface Props {
  id: string;
  label: string;
  hint?: string;
  errors?: string[] | undefined;
  children: ComponentChildren;
}

/** The attributes that tie an input to its hint and its errors. */
export const described = (id: string, errors: string[] | undefined): { id: string; "aria-describedby": string; "aria-invalid": boolean } => ({
  id,
  "aria-describedby": `${id}-hint ${id}-error`,
  "aria-invalid": Boolean(errors?.length),
});

export function Field({ id, label, hint, errors, children }: Props) {
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children}
      <span id={`${id}-hint`} class="soft">{hint}</span>
      <Errors id={id} errors={errors} />
    </div>
  );
}

export function Errors({ id, errors }: { id: string; errors: string[] | undefined }) {
  return (
    <span id={`${id}-error`} class="error">
      {errors?.map((text) => <span key={text}>{text}</span>)}
    </span>
  );
}
