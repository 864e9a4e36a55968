// What is written in the picture at one size of it: names first, then what the links
// carry, each only where it is over nothing else.

import type { Link } from "../api/types";
import { fitting, textBox, type Box, type Wanted } from "./labels";
import type { Drawn } from "./parts";
import type { Point } from "./layout";
import type { Route } from "./route";
import type { Lane, PlacedCable, PlacedHost, PlacedSwitch, Scene } from "./scene";
import { besides, strandLines, strandsOn } from "./strands";
import { shortWords } from "./words";

/** Pixels: of words, of names where there are many, and the space beside them. */
const height = 13, small = 11, space = 2;
/** Mean width of a letter, by its height. */
const wide = 0.53, wideBold = 0.72;
/** Above so many links their figures are written where a unit of the picture has a pixel. */
const labelled = 30;

interface Label extends Drawn {
  /** The item that it is about. */
  of: string;
}

/**
 * The labels to draw. unit is a pixel in the picture's units, size that of switches
 * and hosts; of what is looked at (active) the label comes first. Where strands of the
 * route go it has their figures, too.
 */
export function lettering(scene: Scene, active: string | undefined, view: Box, unit: number, size: number, route?: Route): Drawn[] {
  const few = scene.cables.length <= labelled || unit <= 1;
  const names = scene.switches.map((s) => nameOf(s, scene.dense ? small : height, unit));
  const others = [
    ...scene.hosts.map((h) => hostLabel(h, size, unit)),
    ...scene.cables.filter((c) => few || c.cable.id === active || hasStrands(c, route)).flatMap((c) => figures(c, unit, route)),
  ];
  const named = fitting(inOrder(names, active, unit), [], view);
  // A name stands on its own switch; to all other words switches are in the way.
  const obstacles = [
    ...scene.switches.map((s) => around(s.at, s.half.x * size, s.half.y * size)),
    ...scene.hosts.map((h) => around(h.at, 7 * size, 7 * size)),
    ...names.filter((n) => named.has(n.id)).map((n) => boxOf(n, unit)),
  ];
  const fits = fitting(inOrder(others, active, unit), obstacles, view);
  return [...names.filter((n) => named.has(n.id)), ...others.filter((o) => fits.has(o.id))];
}

function inOrder(labels: Label[], active: string | undefined, unit: number): Wanted[] {
  const sorted = [...labels.filter((l) => l.of === active), ...labels.filter((l) => l.of !== active)];
  return sorted.map((l) => ({ id: l.id, box: boxOf(l, unit) }));
}

const around = (at: Point, x: number, y: number): Box => ({ x: at.x - x, y: at.y - y, width: 2 * x, height: 2 * y });

/** Where a label stands, with the space around it. */
export function boxOf({ lines, x, y, anchor, kind, height: letter }: Drawn, unit: number): Box {
  const box = textBox(lines, { x, y: y - letter * 0.85 * unit }, anchor, letter * (kind === "name" ? wideBold : wide) * unit, (letter + 1) * unit);
  return { x: box.x - space * unit, y: box.y, width: box.width + 2 * space * unit, height: box.height };
}

const nameOf = (s: PlacedSwitch, letter: number, unit: number): Label =>
  ({ id: `name ${s.node.id}`, of: s.node.id, lines: [s.node.name], x: s.at.x, y: s.at.y + letter * 0.38 * unit, anchor: "middle", kind: "name", height: letter });

/** Further out than the host, by as much as there is between words. */
function hostLabel(h: PlacedHost, size: number, unit: number): Label {
  const length = Math.hypot(h.at.x - h.edge.x, h.at.y - h.edge.y) || 1;
  const out = { x: (h.at.x - h.edge.x) / length, y: (h.at.y - h.edge.y) / length };
  const by = 7 * size + (h.anchor === "middle" ? 11 : 5) * unit;
  return { id: `host ${h.id}`, of: h.id, lines: [h.name], x: h.at.x + out.x * by, y: h.at.y + out.y * by + 4 * unit, anchor: h.anchor, kind: "label", height };
}

const hasStrands = ({ cable }: PlacedCable, route: Route | undefined): boolean =>
  strandsOn(route, cable.ab).length + strandsOn(route, cable.ba).length > 0;

const figures = ({ cable, ab, ba }: PlacedCable, unit: number, route: Route | undefined): Label[] => [
  ...(cable.ab ? [figure("ab", cable.id, cable.ab, ab, unit, route)] : []),
  ...(cable.ba ? [figure("ba", cable.id, cable.ba, ba, unit, route)] : []),
];

/** Beside the middle of the lane and its strands, by as much as there is between words. */
function figure(way: string, cable: string, link: Link, lane: Lane, unit: number, route: Route | undefined): Label {
  const strands = strandsOn(route, link);
  const middle = { x: (lane.from.x + lane.to.x) / 2, y: (lane.from.y + lane.to.y) / 2 };
  const out = Math.hypot(lane.label.x - middle.x, lane.label.y - middle.y) || 1;
  const by = Math.max(1, unit) + besides(strands.length, unit) / out;
  const x = middle.x + (lane.label.x - middle.x) * by, y = middle.y + (lane.label.y - middle.y) * by;
  const [first = "", ...more] = shortWords(link);
  const lines = [`${arrow(lane)} ${first}`, ...more, ...strandLines(strands)];
  const up = lane.above ? (height + 1) * (lines.length - 1) : 0;
  return { id: `${way} ${cable}`, of: cable, lines, x, y: y + (4 - up) * unit, anchor: lane.anchor, kind: "label", height };
}

/** Which way a lane goes. */
function arrow({ from, to }: Lane): string {
  const turn = Math.round(Math.atan2(to.y - from.y, to.x - from.x) / (Math.PI / 4));
  return ["→", "↘", "↓", "↙", "←", "↖", "↑", "↗"][(turn + 8) % 8]!;
}
