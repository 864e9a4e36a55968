// The picture as data: what stands where, in the picture's units.

import type { Host } from "../api/types";
import { angleOf, at, fan } from "./fan";
import { hostName, portText, type Cable, type Graph, type SwitchNode } from "./graph";
import { layout, type Point } from "./layout";

const unit = 250; // between two switches
const hostRadius = 82; // from a switch to its hosts
const lane = 5; // from a cable's middle to either direction
const between = 16; // between two cables of the same switches
const margin = { x: 125, y: 50 };
const shownHosts = 12; // of one switch
const dense = 12; // more switches than that, and the hosts of each are drawn as one

export type Anchor = "start" | "middle" | "end";

/** How words stand that lead away from something: x is the cosine of the direction. */
const anchorOf = (x: number): Anchor => (x > 0.4 ? "start" : x < -0.4 ? "end" : "middle");

export interface Lane {
  from: Point;
  to: Point;
  /** Where the words about this direction stand. */
  label: Point;
  anchor: Anchor;
  /** Whether they stand above it: then further lines push them up. */
  above: boolean;
}

export interface PlacedCable {
  cable: Cable;
  ab: Lane;
  ba: Lane;
}

export interface PlacedSwitch {
  node: SwitchNode;
  at: Point;
  /** Half of its width and height. */
  half: Point;
}

export interface PlacedHost {
  id: string;
  host: Host;
  /** How many hosts this one stands for, where there are too many to draw. */
  count: number;
  name: string;
  at: Point;
  edge: Point;
  anchor: Anchor;
}

export interface Scene {
  /** Whether there is so much that words have to be small and few. */
  dense: boolean;
  switches: PlacedSwitch[];
  cables: PlacedCable[];
  hosts: PlacedHost[];
  box: { x: number; y: number; width: number; height: number };
}

export function makeScene(graph: Graph): Scene {
  const places = layout(
    graph.switches.map((s) => s.id),
    graph.cables.map((c) => [c.a.switch, c.b.switch]),
  );
  for (const p of places.values()) {
    p.x *= unit;
    p.y *= unit;
  }
  const many = graph.switches.length > dense;
  const half = { x: many ? 46 : 34, y: 17 };
  const switches = graph.switches.map((node) => ({ node, at: places.get(node.id)!, half }));
  const cables = placeCables(graph.cables, places);
  const hosts = switches.flatMap((s) => placeHosts(s, graph, places));
  return { dense: many, switches, cables, hosts, box: box([...switches.map((s) => s.at), ...hosts.map((h) => h.at)]) };
}

function placeCables(cables: Cable[], places: Map<string, Point>): PlacedCable[] {
  const ends = (c: Cable): string => [c.a.switch, c.b.switch].sort().join();
  return cables.map((cable) => {
    const pair = cables.filter((c) => ends(c) === ends(cable));
    const offset = (pair.indexOf(cable) - (pair.length - 1) / 2) * between;
    return placeCable(cable, places.get(cable.a.switch)!, places.get(cable.b.switch)!, offset);
  });
}

function placeCable(cable: Cable, a: Point, b: Point, offset: number): PlacedCable {
  const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
  const normal = { x: -(b.y - a.y) / length, y: (b.x - a.x) / length };
  const shift = (p: Point, by: number): Point => ({ x: p.x + normal.x * by, y: p.y + normal.y * by });
  const middle = shift({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }, offset);
  // Each direction keeps to its right, as on a road, and its words stand at the edge.
  const side = (by: number): Pick<Lane, "label" | "anchor" | "above"> => {
    const label = shift(middle, by * (1 + 11 / lane));
    return { label, anchor: anchorOf(normal.x * Math.sign(by)), above: normal.y * Math.sign(by) < -0.4 };
  };
  return {
    cable,
    ab: { from: shift(a, offset + lane), to: shift(b, offset + lane), ...side(lane) },
    ba: { from: shift(b, offset - lane), to: shift(a, offset - lane), ...side(-lane) },
  };
}

function placeHosts(s: PlacedSwitch, graph: Graph, places: Map<string, Point>): PlacedHost[] {
  const all = graph.hosts.filter((h) => h.at.switch === s.node.id);
  const drawn = all.length > (graph.switches.length > dense ? 1 : shownHosts) ? all.slice(0, 1) : all;
  const links = graph.cables
    .filter((c) => c.a.switch === s.node.id || c.b.switch === s.node.id)
    .map((c) => angleOf(s.at, places.get(c.a.switch === s.node.id ? c.b.switch : c.a.switch)!));
  const angles = all.length > drawn.length && below(links) ? [Math.PI / 2] : fan(links, drawn.length);
  return drawn.map((host, i) => ({
    id: `${host.mac} ${portText(host.at)}`,
    host,
    count: all.length / drawn.length,
    name: drawn.length < all.length ? `${all.length} hosts` : hostName(host),
    at: at(s.at, angles[i]!, hostRadius),
    edge: s.at,
    anchor: anchorOf(Math.cos(angles[i]!)),
  }));
}

/** Whether there is room straight below: then what hangs from switches in a row stands in a row. */
const below = (links: number[]): boolean => links.every((a) => Math.abs(a - Math.PI / 2) > 0.6);

function box(points: Point[]): Scene["box"] {
  const xs = points.map((p) => p.x), ys = points.map((p) => p.y);
  const x = Math.min(0, ...xs) - margin.x, y = Math.min(0, ...ys) - margin.y;
  return { x, y, width: Math.max(0, ...xs) + margin.x - x, height: Math.max(0, ...ys) + margin.y - y };
}
