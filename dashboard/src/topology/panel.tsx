// The part of the page that shows the network.

import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

import type { Problem } from "../api/problem";
import { useNames } from "../names/usenames";
import { useWorld } from "../state/hooks";
import { Panel } from "../ui/panel";
import { buildGraph } from "./graph";
import { levels } from "./load";
import { Picture } from "./picture";
import type { Route } from "./route";
import { Tables } from "./tables";

interface Props {
  /** What is shown in the picture. */
  route: Route | undefined;
  title?: string;
  /** What went wrong in finding the route. */
  problem?: Problem | undefined;
  /** What stands above the picture, and below it. */
  intro?: ComponentChildren;
  children?: ComponentChildren;
}

export function Topology({ route, title = "Topology", problem, intro, children }: Props) {
  const { live } = useWorld();
  const [tables, setTables] = useState(false);
  const { switches, links, hosts } = live;
  const graph = useMemo(() => buildGraph(switches.value, links.value, hosts.value), [switches.value, links.value, hosts.value]);
  const names = useNames();
  const choose = (label: string, value: boolean) => (
    <button type="button" aria-pressed={tables === value} onClick={() => setTables(value)}>{label}</button>
  );
  return (
    <Panel id="topology" title={title} problem={problem ?? links.problem ?? switches.problem ?? hosts.problem} actions={<>{choose("Picture", false)}{choose("Tables", true)}</>}>
      {intro}
      {graph.switches.length === 0 && <p class="soft">{switches.at > 0 ? "No switch is connected." : "Asking the controller."}</p>}
      {graph.switches.length > 0 && (tables ? <Tables graph={graph} names={names} reservations={live.reservations.value} /> : <Picture graph={graph} names={names} route={route} />)}
      {!tables && <Legend />}
      {children}
    </Panel>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Utilisation of a link, by the colour of its line">
      {levels.map((l, i) => <li key={l.name}><span class={`mark load-${i}`} />{l.name}</li>)}
      <li><span class="mark load-unknown" />capacity not known</li>
    </ul>
  );
}
