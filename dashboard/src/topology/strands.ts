// Several paths that are told apart: each is a line of its own beside the links that it
// uses, also where they use the same.

import type { Link } from "../api/types";
import { portText } from "./graph";
import type { Hop, Route } from "./route";
import type { Lane } from "./scene";

/** How many lines are told apart: strand-0 to strand-7 of the style sheet. */
export const kinds = 8;

export interface Strand {
  /** Its line: from 0, below kinds. */
  kind: number;
  /** By which ports it leaves switches. */
  leaves: Set<string>;
  /** What it carries, beside its line: 9.30 Mbit/s. */
  carries: string;
}

/** Between two lines, in units of the picture and at least in pixels. */
const apart = 5, apartPixels = 4;

/** By which ports a path leaves switches; in the other direction those by which it comes in. */
export const leavesOf = (path: readonly (Hop & { in: number })[], reverse: boolean): Set<string> =>
  new Set(path.map((h) => portText({ switch: h.switch, port: reverse ? h.in : h.out })));

/** The strands that use one direction of a link. */
export const strandsOn = (route: Route | undefined, link: Link | undefined): Strand[] =>
  link && route?.strands ? route.strands.filter((s) => s.leaves.has(portText(link.from))) : [];

/** A strand in words, with the number that it has in the list: 1: 9.30 Mbit/s. */
export const strandWords = (s: Strand): string => `${s.kind + 1}: ${s.carries}`;

/** The same of several beside their link, two to a line. */
export const strandLines = (strands: readonly Strand[]): string[] =>
  strands.flatMap((_, i) => (i % 2 > 0 ? [] : [strands.slice(i, i + 2).map(strandWords).join(" · ")]));

/** How far from a lane the line of the strand at a place stands; of as many strands as place says, how wide they are. */
export const besides = (place: number, unit: number): number => place * Math.max(apart, apartPixels * unit);

/** The line of the strand at a place, from 1, on the outer side of a lane: each direction keeps to its right. */
export function lineOf({ from, to }: Pick<Lane, "from" | "to">, place: number, unit: number): Pick<Lane, "from" | "to"> {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1, by = besides(place, unit) / length;
  const x = -(to.y - from.y) * by, y = (to.x - from.x) * by;
  return { from: { x: from.x + x, y: from.y + y }, to: { x: to.x + x, y: to.y + y } };
}
