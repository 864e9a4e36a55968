// Sends a form and keeps what the server says about it.

import { useEffect, useRef, useState } from "preact/hooks";

import { asProblem, assign, type Assigned, type Problem } from "../api/problem";
import { useNames } from "../names/usenames";

interface Form {
  busy: boolean;
  errors: Assigned;
  /** Goes on the form element: the first field that is wrong gets the focus. */
  form: preact.RefObject<HTMLFormElement>;
  submit(event: Event): void;
}

/** known are the fields that can show an error; send resolves when the server has accepted. */
export function useForm(known: Iterable<string>, send: () => Promise<void>): Form {
  const names = useNames();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (problem) form.current?.querySelector<HTMLElement>('[aria-invalid="true"], [role="alert"]')?.focus();
  }, [problem]);
  const submit = async (): Promise<void> => {
    setBusy(true);
    try {
      await send();
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
    setBusy(false);
  };
  return {
    busy,
    form,
    errors: assign(problem?.said((text) => names.said(text)), known),
    submit: (event) => {
      event.preventDefault();
      if (!busy) void submit();
    },
  };
}
