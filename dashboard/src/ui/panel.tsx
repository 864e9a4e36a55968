// A part of the page with its heading, and what went wrong in fetching it.

import type { ComponentChildren } from "preact";

import type { Problem } from "../api/problem";
import { useNames } from "../names/usenames";

interface Props {
  id: string;
  title: string;
  actions?: ComponentChildren;
  problem?: Problem | undefined;
  children: ComponentChildren;
}

export function Panel({ id, title, actions, problem, children }: Props) {
  const names = useNames();
  return (
    <section class="panel" id={id} aria-labelledby={`${id}-title`}>
      <header>
        <h2 id={`${id}-title`}>{title}</h2>
        <div class="actions">{actions}</div>
      </header>
      {problem && <p class="error" role="status">Not up to date: {names.said(problem.message)}.</p>}
      {children}
    </section>
  );
}
