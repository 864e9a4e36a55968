// What a service shows, or that the controller runs without it.

import type { ComponentChildren } from "preact";

import { useWorld } from "../state/hooks";

export function Served({ by, name, children }: { by: string; name: string; children: ComponentChildren }) {
  const { live } = useWorld();
  const runs = live.runs(by);
  if (runs === undefined) return <p class="panel soft">Asking the controller.</p>;
  return runs ? <>{children}</> : <p class="panel soft">This controller runs without the {name} service.</p>;
}
