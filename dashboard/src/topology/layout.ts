// Where switches stand in the picture: in layers, where the network has them, else so
// that distances in the picture follow distances in hops (stress majorisation). The same network always gives the
// same picture: nothing here is random, and the order of the input has no effect.

import { compare } from "./graph";
import { layersOf, placeLayers } from "./layers";

export interface Point {
  x: number;
  y: number;
}

/** Bounds the work: how many pairs are looked at until the picture is good enough. */
const effort = 3e6;
const still = 1e-5;
const flat = 0.1;

/** Places nodes so that neighbours are about 1 apart. */
export function layout(ids: string[], edges: [string, string][]): Map<string, Point> {
  const sorted = [...new Set(ids)].sort(compare);
  const index = new Map(sorted.map((id, i) => [id, i]));
  const neighbours: number[][] = sorted.map(() => []);
  for (const [from, to] of edges) {
    const i = index.get(from), j = index.get(to);
    if (i === undefined || j === undefined || i === j) continue;
    neighbours[i]!.push(j);
    neighbours[j]!.push(i);
  }
  const near = neighbours.map((list) => [...new Set(list)].sort((a, b) => a - b));
  const layers = layersOf(near);
  const points = layers ? placeLayers(layers) : spread(near);
  return new Map(sorted.map((id, i) => [id, { x: round(points[i]!.x), y: round(points[i]!.y) }]));
}

function spread(near: number[][]): Point[] {
  const distance = distances(near);
  const points = circle(near, distance);
  for (let left = effort; left > 0 && majorise(points, distance) > still; left -= points.length ** 2);
  straighten(points);
  return points;
}

const round = (v: number): number => Math.round(v * 1000) / 1000 + 0;

/** Hops between all pairs; separate parts stand a little apart. */
function distances(near: number[][]): number[][] {
  const all = near.map((_, start) => {
    const d = near.map(() => Infinity);
    d[start] = 0;
    const queue = [start];
    for (const i of queue) {
      for (const j of near[i]!) {
        if (d[j] === Infinity) {
          d[j] = d[i]! + 1;
          queue.push(j);
        }
      }
    }
    return d;
  });
  const apart = Math.max(0, ...all.flat().filter(Number.isFinite)) / 2 + 1.5;
  return all.map((row) => row.map((d) => (Number.isFinite(d) ? d : apart)));
}

/** Starts on a circle in depth-first order from an outermost node: paths, rings and trees then have no crossings. */
function circle(near: number[][], distance: number[][]): Point[] {
  const reach = distance.map((row) => Math.max(0, ...row));
  const order: number[] = [];
  const seen = new Set<number>();
  const visit = (i: number): void => {
    if (seen.has(i)) return;
    seen.add(i);
    order.push(i);
    for (const j of near[i]!) visit(j);
  };
  const starts = near.map((_, i) => i).sort((a, b) => reach[b]! - reach[a]! || a - b);
  for (const start of starts) visit(start);
  const points: Point[] = near.map(() => ({ x: 0, y: 0 }));
  const radius = near.length / (2 * Math.PI);
  order.forEach((i, place) => {
    const angle = (2 * Math.PI * place) / near.length;
    points[i] = { x: -radius * Math.cos(angle), y: -radius * Math.sin(angle) };
  });
  return points;
}

/** One round of stress majorisation, node after node. Returns how far the one that moved most has moved. */
function majorise(points: Point[], distance: number[][]): number {
  let moved = 0;
  points.forEach((p, i) => {
    let x = 0, y = 0, sum = 0;
    points.forEach((q, j) => {
      if (i === j) return;
      const d = distance[i]![j]!, weight = 1 / (d * d);
      const dx = p.x - q.x, dy = p.y - q.y;
      const length = Math.sqrt(dx * dx + dy * dy) || 1e-9;
      x += weight * (q.x + (d * dx) / length);
      y += weight * (q.y + (d * dy) / length);
      sum += weight;
    });
    if (sum === 0) return;
    moved = Math.max(moved, Math.abs(x / sum - p.x), Math.abs(y / sum - p.y));
    p.x = x / sum;
    p.y = y / sum;
  });
  return moved;
}

/** Turns the picture so that it is wider than high and its first node is at the upper left. */
function straighten(points: Point[]): void {
  const n = points.length || 1;
  const cx = points.reduce((s, p) => s + p.x, 0) / n, cy = points.reduce((s, p) => s + p.y, 0) / n;
  let xx = 0, xy = 0, yy = 0;
  for (const p of points) {
    p.x -= cx;
    p.y -= cy;
    xx += p.x * p.x;
    xy += p.x * p.y;
    yy += p.y * p.y;
  }
  const angle = Math.atan2(2 * xy, xx - yy) / 2;
  const cos = Math.cos(angle), sin = Math.sin(angle);
  for (const p of points) {
    [p.x, p.y] = [p.x * cos + p.y * sin, p.y * cos - p.x * sin];
  }
  // A row is a row: what is left of a bend is only where the search has stopped.
  if (points.every((p) => Math.abs(p.y) < flat)) for (const p of points) p.y = 0;
  flip(points, "x");
  flip(points, "y");
}

function flip(points: Point[], axis: "x" | "y"): void {
  const first = points.find((p) => Math.abs(p[axis]) > 1e-3);
  if (first && first[axis] > 0) for (const p of points) p[axis] = -p[axis];
}
