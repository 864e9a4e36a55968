// Networks that are built in layers, such as trees, spines and leaves, and fat trees,
// are drawn in layers. Others have none.

import type { Point } from "./layout";

/** Smaller networks are clear without. */
const fewest = 8;
/** Share of the links that may join two switches of one layer. */
const sideways = 0.1;
/** Between two switches, and between two layers, where neighbours elsewhere are 1 apart. */
const apart = { x: 0.44, y: 0.95 };

/**
 * The layers from the lowest up, each with its nodes from left to right; undefined
 * where the network is not built so. near has each node's neighbours.
 */
export function layersOf(near: readonly (readonly number[])[]): number[][] | undefined {
  const degrees = near.map((list) => list.length), most = Math.max(0, ...degrees);
  if (near.length < fewest || most < 3) return undefined;
  // The lowest are joined to few: at most half as many as the one that is joined to most.
  const height = heights(near, degrees.flatMap((d, i) => (d <= most / 2 ? [i] : [])));
  if (height.some((h) => h === Infinity)) return undefined;
  let links = 0, level = 0;
  near.forEach((list, i) => list.forEach((j) => {
    links++;
    if (height[i] === height[j]) level++;
  }));
  if (level > links * sideways) return undefined;
  const layers: number[][] = Array.from({ length: Math.max(...height) + 1 }, () => []);
  height.forEach((h, i) => layers[h]!.push(i));
  return layers.length < 2 ? undefined : ordered(layers, near);
}

/** Hops to the nearest of the lowest. */
function heights(near: readonly (readonly number[])[], lowest: number[]): number[] {
  const height = near.map(() => Infinity);
  for (const i of lowest) height[i] = 0;
  const queue = [...lowest];
  for (const i of queue) {
    for (const j of near[i]!) {
      if (height[j] !== Infinity) continue;
      height[j] = height[i]! + 1;
      queue.push(j);
    }
  }
  return height;
}

/**
 * Orders the lowest layer so that what hangs together below the top stands together,
 * and each other layer by where its neighbours below stand.
 */
function ordered(layers: number[][], near: readonly (readonly number[])[]): number[][] {
  const [, ...higher] = layers;
  const place = new Map<number, number>();
  const note = (layer: number[]): void => layer.forEach((i, at) => place.set(i, (at + 0.5) / layer.length));
  const order = together(layers, near);
  note(order);
  const done = [order];
  for (const layer of higher) {
    const below = new Set(done[done.length - 1]);
    const middle = new Map(layer.map((i) => {
      const places = near[i]!.filter((j) => below.has(j)).map((j) => place.get(j)!);
      return [i, places.reduce((a, b) => a + b, 0) / places.length];
    }));
    const sorted = [...layer].sort((a, b) => Math.round((middle.get(a)! - middle.get(b)!) * 1e6) || a - b);
    note(sorted);
    done.push(sorted);
  }
  return done;
}

/** The lowest nodes, each followed by those that are reached from it without the top layer, the nearest first. */
function together(layers: readonly number[][], near: readonly (readonly number[])[]): number[] {
  const height = new Map(layers.flatMap((layer, h) => layer.map((i) => [i, h] as const)));
  const top = layers.length - 1;
  const seen = new Set<number>(), order: number[] = [];
  for (const start of layers[0]!) {
    const stack = [start];
    for (let i = stack.pop(); i !== undefined; i = stack.pop()) {
      if (seen.has(i)) continue;
      seen.add(i);
      if (height.get(i) === 0) order.push(i);
      // What is lower comes off the stack first.
      const next = near[i]!.filter((j) => !seen.has(j) && height.get(j) !== top);
      stack.push(...next.sort((a, b) => height.get(b)! - height.get(a)! || b - a));
    }
  }
  return order;
}

/** Where the nodes of layers stand: the lowest at the bottom, each layer over the whole width. */
export function placeLayers(layers: readonly (readonly number[])[]): Point[] {
  const width = Math.max(...layers.map((l) => l.length)) * apart.x;
  const points: Point[] = [];
  layers.forEach((layer, h) => layer.forEach((i, at) => {
    points[i] = { x: ((at + 0.5) / layer.length - 0.5) * width, y: -h * apart.y };
  }));
  return points;
}

