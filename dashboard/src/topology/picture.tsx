// The network as a picture. One tab stop; arrow keys go from item to item.

import { useRef, useState } from "preact/hooks";

import type { Link } from "../api/types";
import { hostName, portText, type Graph } from "./graph";
import { loadClass, utilisation } from "./load";
import type { Route } from "./route";
import { makeScene, type Lane, type PlacedCable, type PlacedHost, type PlacedSwitch, type Scene } from "./scene";
import { cableWords, shortWords, type Names } from "./words";

/** Beyond this many links their words are only shown for the one that is looked at. */
const labelled = 30;
/** Pixels for a unit of the picture, where there is room. */
const scale = 1.3;
const lineHeight = 14;

interface Props {
  graph: Graph;
  names: Names;
  route: Route | undefined;
}

interface Item {
  id: string;
  words: string;
}

export function Picture({ graph, names, route }: Props) {
  const scene = useScene(graph);
  const items = itemsOf(scene, graph, names);
  const [current, setCurrent] = useState("");
  const svg = useRef<SVGSVGElement>(null);
  const active = items.some((i) => i.id === current) ? current : items[0]?.id;

  const move = (e: KeyboardEvent): void => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    const last = items.length - 1, now = items.findIndex((i) => i.id === active);
    const next = e.key === "Home" ? 0 : e.key === "End" ? last : step === undefined ? -1 : (now + step + items.length) % items.length;
    if (next < 0) return;
    e.preventDefault();
    svg.current?.querySelector<SVGGElement>(`[data-item="${CSS.escape(items[next]!.id)}"]`)?.focus();
  };
  const part = (item: Item) => ({
    "data-item": item.id,
    role: "img" as const,
    "aria-label": item.words,
    tabindex: item.id === active ? 0 : -1,
    onFocus: () => setCurrent(item.id),
    onMouseEnter: () => setCurrent(item.id),
  });
  const itemOf = (id: string): Item => items.find((i) => i.id === id)!;
  const { x, y, width, height } = scene.box;

  return (
    <figure class="picture">
      <svg
        ref={svg} viewBox={`${x} ${y} ${width} ${height}`} width={width * scale} role="group" onKeyDown={move}
        aria-label={`Topology: ${graph.switches.length} switches, ${graph.cables.length} links, ${graph.hosts.length} hosts. Arrow keys go from one to the next.`}
      >
        {scene.cables.map((c) => (
          <g key={c.cable.id} class="cable" {...part(itemOf(c.cable.id))}>
            <line class="hit" x1={c.ab.from.x} y1={c.ab.from.y} x2={c.ab.to.x} y2={c.ab.to.y} />
            <Direction lane={c.ab} link={c.cable.ab} route={route} />
            <Direction lane={c.ba} link={c.cable.ba} route={route} />
          </g>
        ))}
        {scene.hosts.map((h) => (
          <g key={hostId(h)} class="host" {...part(itemOf(hostId(h)))}>
            <line x1={h.edge.x} y1={h.edge.y} x2={h.at.x} y2={h.at.y} />
            <circle cx={h.at.x} cy={h.at.y} r={7} />
            <text x={h.label.x} y={h.label.y + 4} text-anchor={h.anchor}>{h.name}</text>
          </g>
        ))}
        {scene.switches.map((s) => (
          <g key={s.node.id} class={switchClass(s, route)} {...part(itemOf(s.node.id))}>
            <rect x={s.at.x - 34} y={s.at.y - 17} width={68} height={34} rx={8} />
            <text x={s.at.x} y={s.at.y + 5} text-anchor="middle">{s.node.name}</text>
          </g>
        ))}
        {scene.cables.map((c) => (graph.cables.length <= labelled || c.cable.id === active) && <Labels key={c.cable.id} cable={c} />)}
      </svg>
      <figcaption>{items.find((i) => i.id === active)?.words}</figcaption>
    </figure>
  );
}

/** The scene of a graph, made again only when what stands in it changes, not with each figure. */
function useScene(graph: Graph): Scene {
  const cache = useRef<{ key: string; scene: Scene }>();
  const key = [...graph.switches.map((s) => s.id), "", ...graph.cables.map((c) => c.id), "", ...graph.hosts.map((h) => portText(h.at) + h.mac)].join(" ");
  if (cache.current?.key !== key) cache.current = { key, scene: makeScene(graph) };
  const scene = cache.current.scene;
  const cables = new Map(graph.cables.map((c) => [c.id, c]));
  const nodes = new Map(graph.switches.map((s) => [s.id, s]));
  return {
    ...scene,
    cables: scene.cables.map((c) => ({ ...c, cable: cables.get(c.cable.id)! })),
    switches: scene.switches.map((s) => ({ ...s, node: nodes.get(s.node.id)! })),
  };
}

const hostId = (h: PlacedHost): string => `${h.host.mac} ${portText(h.host.at)}`;

function itemsOf(scene: Scene, graph: Graph, names: Names): Item[] {
  return [
    ...scene.switches.map((s) => {
      const hosts = graph.hosts.filter((h) => h.at.switch === s.node.id).length;
      return { id: s.node.id, words: `Switch ${s.node.name}, ${s.node.connected ? "connected" : "not connected"}, ${hosts} ${hosts === 1 ? "host" : "hosts"}` };
    }),
    ...scene.cables.map((c) => ({ id: c.cable.id, words: cableWords(c.cable, names) })),
    ...scene.hosts.map((h) => ({
      id: hostId(h),
      words: `${h.count > 1 ? h.name : `Host ${hostName(h.host)}, ${h.host.mac}`}, at ${names(h.host.at.switch)} port ${h.host.at.port}`,
    })),
  ];
}

const switchClass = (s: PlacedSwitch, route: Route | undefined): string =>
  `switch${s.node.connected ? "" : " gone"}${route?.switches.has(s.node.id) ? " on-route" : ""}`;

function Direction({ lane, link, route }: { lane: Lane; link: Link | undefined; route: Route | undefined }) {
  const on = link !== undefined && route?.leaves.has(portText(link.from));
  const { from, to } = lane;
  return (
    <>
      {on && <line class="route" x1={from.x} y1={from.y} x2={to.x} y2={to.y} />}
      <line class={link ? `lane ${loadClass(utilisation(link))}` : "lane missing"} x1={from.x} y1={from.y} x2={to.x} y2={to.y} />
    </>
  );
}

function Labels({ cable: { cable, ab, ba } }: { cable: PlacedCable }) {
  return (
    <>
      {cable.ab && <Label lane={ab} link={cable.ab} />}
      {cable.ba && <Label lane={ba} link={cable.ba} />}
    </>
  );
}

function Label({ lane, link }: { lane: Lane; link: Link }) {
  const lines = shortWords(link);
  const first = lane.label.y + 4 - (lane.above ? lineHeight * (lines.length - 1) : 0);
  return (
    <text class="label" text-anchor={lane.anchor} aria-hidden="true">
      {lines.map((line, i) => (
        <tspan key={i} x={lane.label.x} y={first + i * lineHeight}>{i === 0 ? `${arrow(lane)} ${line}` : line}</tspan>
      ))}
    </text>
  );
}

/** Which way a lane goes. */
function arrow({ from, to }: Lane): string {
  const turn = Math.round(Math.atan2(to.y - from.y, to.x - from.x) / (Math.PI / 4));
  return ["→", "↘", "↓", "↙", "←", "↖", "↑", "↗"][(turn + 8) % 8]!;
}
