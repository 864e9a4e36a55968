// The network as a picture. One tab stop; arrow keys go from item to item, and with
// Shift move the picture; + and - enlarge it and make it smaller.

import { useMemo, useRef, useState } from "preact/hooks";

import type { Names } from "../names/said";
import { hostName, portText, type Graph } from "./graph";
import type { Point } from "./layout";
import { lettering } from "./lettering";
import { Cable, Host, hostClass, Switch, switchClass, Words } from "./parts";
import type { Route } from "./route";
import { makeScene, type Scene } from "./scene";
import { useViewport } from "./useviewport";
import { cableWords } from "./words";

/** Pixels for a unit beyond which switches and hosts grow no more, however much the picture is enlarged. */
const largest = 1.3;

interface Props {
  graph: Graph;
  names: Names;
  route: Route | undefined;
}

interface Item {
  id: string;
  words: string;
  at: Point;
}

export function Picture({ graph, names, route }: Props) {
  const { scene, key } = useScene(graph);
  const items = useMemo(() => itemsOf(scene, graph, names, route), [scene, graph, names, route]);
  const byID = useMemo(() => new Map(items.map((i) => [i.id, i])), [items]);
  const [current, setCurrent] = useState("");
  const svg = useRef<SVGSVGElement>(null);
  const view = useViewport(scene.box, key);
  const active = byID.has(current) ? current : items[0]?.id;
  const unit = 1 / view.pixels;
  const size = Math.min(1, unit * largest);
  const letters = useMemo(() => lettering(scene, active, view.seen, unit, size, route), [scene, route, active, view.seen.x, view.seen.y, unit, view.size.width]);

  const press = (e: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    const last = items.length - 1, now = items.findIndex((i) => i.id === active);
    if (view.press(e, byID.get(active ?? "")?.at)) {
      e.preventDefault();
      return;
    }
    const next = e.key === "Home" ? 0 : e.key === "End" ? last : step === undefined ? -1 : (now + step + items.length) % items.length;
    if (next < 0) return;
    e.preventDefault();
    svg.current?.querySelector<SVGGElement>(`[data-item="${CSS.escape(items[next]!.id)}"]`)?.focus();
  };
  const part = (id: string) => ({
    "data-item": id,
    role: "img" as const,
    "aria-label": byID.get(id)!.words,
    tabindex: id === active ? 0 : -1,
    onFocus: () => {
      setCurrent(id);
      view.show(byID.get(id)!.at);
    },
    onMouseEnter: () => setCurrent(id),
  });
  const { x, y, width, height } = view.seen;

  return (
    <figure class="picture" ref={view.place}>
      <div class="actions" role="group" aria-label="Size of the picture">
        <button type="button" aria-label="Zoom in" onClick={view.larger}>+</button>
        <button type="button" aria-label="Zoom out" onClick={view.smaller}>−</button>
        <button type="button" onClick={view.all}>Whole picture</button>
      </div>
      <svg
        ref={svg} viewBox={`${x} ${y} ${width} ${height}`} width={view.size.width} height={view.size.height} role="group" onKeyDown={press} {...view.pointer}
        class={view.zoom > 1 ? "enlarged" : ""} style={{ "--unit": `${unit}px` }}
        aria-label={`Topology: ${graph.switches.length} switches, ${graph.cables.length} links, ${graph.hosts.length} hosts. Arrow keys go from one to the next; plus and minus change the size.`}
      >
        {scene.cables.map((c) => <g key={c.cable.id} class="cable" {...part(c.cable.id)}><Cable cable={c} route={route} unit={unit} /></g>)}
        {scene.hosts.map((h) => <g key={h.id} class={hostClass(h, route)} {...part(h.id)}><Host host={h} size={size} /></g>)}
        {scene.switches.map((s) => <g key={s.node.id} class={switchClass(s, route)} {...part(s.node.id)}><Switch {...s} size={size} /></g>)}
        {letters.map((l) => <Words key={l.id} of={l} unit={unit} />)}
      </svg>
      <figcaption>{active === undefined ? "" : byID.get(active)?.words}</figcaption>
    </figure>
  );
}

/** The scene of a graph: where things stand is found again only when other things stand there, not with each figure. */
function useScene(graph: Graph): { scene: Scene; key: string } {
  const cache = useRef<{ key: string; scene: Scene }>();
  const key = [...graph.switches.map((s) => s.id), "", ...graph.cables.map((c) => c.id), "", ...graph.hosts.map((h) => portText(h.at) + h.mac)].join(" ");
  if (cache.current?.key !== key) cache.current = { key, scene: makeScene(graph) };
  const placed = cache.current.scene;
  const scene = useMemo(() => {
    const cables = new Map(graph.cables.map((c) => [c.id, c]));
    const nodes = new Map(graph.switches.map((s) => [s.id, s]));
    return {
      ...placed,
      cables: placed.cables.map((c) => ({ ...c, cable: cables.get(c.cable.id)! })),
      switches: placed.switches.map((s) => ({ ...s, node: nodes.get(s.node.id)! })),
    };
  }, [placed, graph]);
  return { scene, key };
}

function itemsOf(scene: Scene, graph: Graph, names: Names, route: Route | undefined): Item[] {
  const counts = new Map<string, number>();
  for (const h of graph.hosts) counts.set(h.at.switch, (counts.get(h.at.switch) ?? 0) + 1);
  return [
    ...scene.switches.map(({ node, at }) => {
      const hosts = counts.get(node.id) ?? 0;
      return { id: node.id, at, words: `Switch ${node.name}, ${node.connected ? "connected" : "not connected"}, ${hosts} ${hosts === 1 ? "host" : "hosts"}` };
    }),
    ...scene.cables.map((c) => ({
      id: c.cable.id, words: cableWords(c.cable, names, route), at: { x: (c.ab.from.x + c.ab.to.x) / 2, y: (c.ab.from.y + c.ab.to.y) / 2 },
    })),
    ...scene.hosts.map((h) => ({
      id: h.id, at: h.at,
      words: h.count > 1 ? `${h.name} at ${names.of(h.host.at.switch)}` : `Host ${hostName(h.host)}, ${h.host.mac}, at ${names.port(h.host.at)}`,
    })),
  ];
}
