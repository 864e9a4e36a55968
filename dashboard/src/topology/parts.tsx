// The parts of the picture: cables, hosts, switches, and the words beside them.

import type { Link } from "../api/types";
import { portText } from "./graph";
import { loadClass, utilisation } from "./load";
import type { Route } from "./route";
import type { Anchor, Lane, PlacedCable, PlacedHost, PlacedSwitch } from "./scene";
import { lineOf, strandsOn } from "./strands";

interface Shown {
  route: Route | undefined;
  /** Of a pixel, in the picture's units. */
  unit: number;
}

export function Cable({ cable: { cable, ab, ba }, ...shown }: Shown & { cable: PlacedCable }) {
  return (
    <>
      <line class="hit" x1={ab.from.x} y1={ab.from.y} x2={ab.to.x} y2={ab.to.y} />
      <Direction lane={ab} link={cable.ab} {...shown} />
      <Direction lane={ba} link={cable.ba} {...shown} />
    </>
  );
}

function Direction({ lane, link, route, unit }: Shown & { lane: Lane; link: Link | undefined }) {
  const { from, to } = lane;
  const on = link !== undefined && route?.leaves.has(portText(link.from));
  return (
    <>
      {on && <line class="route" x1={from.x} y1={from.y} x2={to.x} y2={to.y} />}
      <line class={link ? `lane ${loadClass(utilisation(link))}` : "lane missing"} x1={from.x} y1={from.y} x2={to.x} y2={to.y} />
      {strandsOn(route, link).map(({ kind }, i) => {
        const line = lineOf(lane, i + 1, unit);
        return <line key={kind} class={`strand strand-${kind}`} x1={line.from.x} y1={line.from.y} x2={line.to.x} y2={line.to.y} />;
      })}
    </>
  );
}

export const Host = ({ host: { edge, at }, size }: { host: PlacedHost; size: number }) => (
  <>
    <line x1={edge.x} y1={edge.y} x2={at.x} y2={at.y} />
    <circle cx={at.x} cy={at.y} r={7 * size} />
  </>
);

/** size is 1, or less where the picture is enlarged so much that they would be too large. */
export const Switch = ({ at, half, size }: PlacedSwitch & { size: number }) => (
  <rect x={at.x - half.x * size} y={at.y - half.y * size} width={2 * half.x * size} height={2 * half.y * size} rx={8 * size} />
);

export const switchClass = (s: PlacedSwitch, route: Route | undefined): string =>
  `switch${s.node.connected ? "" : " gone"}${route?.switches.has(s.node.id) ? " on-route" : ""}`;

export const hostClass = (h: PlacedHost, route: Route | undefined): string =>
  `host${route?.hosts?.has(portText(h.host.at)) ? " on-route" : ""}`;

/** A label as it is drawn: its lines, from the baseline of the first. */
export interface Drawn {
  id: string;
  lines: string[];
  x: number;
  y: number;
  anchor: Anchor;
  kind: "name" | "label";
  /** Of a letter, in pixels. */
  height: number;
}

/** unit is the size of a pixel in the picture's units: words are as large whatever is enlarged. */
export function Words({ of: { lines, x, y, anchor, kind, height }, unit }: { of: Drawn; unit: number }) {
  return (
    <text class={kind} text-anchor={anchor} aria-hidden="true" font-size={height * unit} stroke-width={4 * unit}>
      {lines.map((line, i) => <tspan key={i} x={x} y={y + i * 14 * unit}>{line}</tspan>)}
    </text>
  );
}
