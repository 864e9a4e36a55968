// How an agent is, and where: of whichever service it is.

import type { Agent } from "../api/types";
import { useNames } from "../names/usenames";
import { cut } from "../ui/paged";
import { relative } from "../ui/when";

export function AgentState({ of: a }: { of: Agent }) {
  const names = useNames();
  const good = a.state === "up" && !a.draining;
  return (
    <>
      <span class={good ? "state-good" : "state-bad"}>{a.draining ? "drains" : a.state}</span>
      {a.state !== "up" && a.last_seen && <div class="soft">last heard {relative(a.last_seen)}</div>}
      {a.error && <div class="state-bad">{cut(names.said(a.error))}</div>}
      {(a.warnings ?? []).slice(0, 3).map((w) => <div key={w} class="soft">{cut(names.said(w))}</div>)}
    </>
  );
}

export function AgentPlace({ of: a }: { of: Agent }) {
  const names = useNames();
  return <>{[...new Set(Object.values(a.places).map((p) => names.said(p)))].join(", ") || <span class="state-bad">not seen in the network</span>}</>;
}
