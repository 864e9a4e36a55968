// Where the hosts of a switch stand: fanned out in the widest gap between its links.

import type { Point } from "./layout";

const step = 0.7; // radians between two hosts where there is room
const full = 2 * Math.PI;

/** Angles for count hosts of a switch whose links leave at the given angles. */
export function fan(links: number[], count: number): number[] {
  const { from, width } = widestGap(links);
  const apart = Math.min(step, width / (count + (links.length > 0 ? 1 : 0)));
  const first = from + width / 2 - (apart * (count - 1)) / 2;
  return Array.from({ length: count }, (_, i) => first + i * apart);
}

/** The widest gap; among equal ones the one that opens most downwards. */
function widestGap(links: number[]): { from: number; width: number } {
  if (links.length === 0) return { from: -Math.PI / 2, width: full };
  const sorted = links.map((a) => ((a % full) + full) % full).sort((a, b) => a - b);
  const gaps = sorted.map((from, i) => ({ from, width: (sorted[i + 1] ?? sorted[0]! + full) - from }));
  const down = (g: { from: number; width: number }): number => Math.sin(g.from + g.width / 2);
  return gaps.reduce((best, g) => (g.width > best.width + 0.05 || (g.width > best.width - 0.05 && down(g) > down(best) + 0.05) ? g : best));
}

export const angleOf = (from: Point, to: Point): number => Math.atan2(to.y - from.y, to.x - from.x);

export const at = (centre: Point, angle: number, radius: number): Point => ({
  x: centre.x + radius * Math.cos(angle),
  y: centre.y + radius * Math.sin(angle),
});
