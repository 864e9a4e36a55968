import { describe, expect, test } from "vitest";

import { fan } from "../src/topology/fan";
import { layout, type Point } from "../src/topology/layout";

type Edges = [string, string][];

const names = (n: number): string[] => Array.from({ length: n }, (_, i) => `s${String(i + 1).padStart(2, "0")}`);
const line = (n: number): Edges => names(n).slice(1).map((id, i) => [names(n)[i]!, id]);
const ring = (n: number): Edges => [...line(n), [names(n)[n - 1]!, names(n)[0]!]];
const apart = (a: Point, b: Point): number => Math.hypot(a.x - b.x, a.y - b.y);

function crossings(places: Map<string, Point>, edges: Edges): number {
  const side = (a: Point, b: Point, c: Point): number => Math.sign((b.x - a.x) * (c.y - a.y) - (b.y - a.y) * (c.x - a.x));
  let found = 0;
  edges.forEach((e, i) => {
    for (const f of edges.slice(i + 1)) {
      if (new Set([...e, ...f]).size < 4) continue;
      const [a, b, c, d] = [...e, ...f].map((id) => places.get(id)!) as [Point, Point, Point, Point];
      if (side(a, b, c) !== side(a, b, d) && side(c, d, a) !== side(c, d, b)) found++;
    }
  });
  return found;
}

describe("layout", () => {
  test("three switches in a row lie in a row, the first at the left", () => {
    const places = layout(names(3), line(3));
    const [a, b, c] = names(3).map((id) => places.get(id)!) as [Point, Point, Point];
    expect(a.x).toBeCloseTo(-1, 2);
    expect(b.x).toBeCloseTo(0, 2);
    expect(c.x).toBeCloseTo(1, 2);
    for (const p of [a, b, c]) expect(p.y).toBe(0);
  });

  test("the same network gives the same picture, whatever the order of the answer", () => {
    const edges = [...ring(7), ["s01", "s04"], ["s03", "s06"]] as Edges;
    const turned = edges.map(([a, b]): [string, string] => [b, a]).reverse();
    expect(layout(names(7).reverse(), turned)).toEqual(layout(names(7), edges));
  });

  const tree = names(15).slice(1).map((id, i): [string, string] => [names(15)[Math.floor(i / 2)]!, id]);
  test.each<[string, number, Edges]>([
    ["line", 20, line(20)],
    ["ring", 8, ring(8)],
    ["tree", 15, tree],
    ["two parts", 6, [["s01", "s02"], ["s02", "s03"], ["s04", "s05"], ["s05", "s06"]]],
  ])("a %s has no crossings, and nodes keep their distance", (_, n, edges) => {
    const places = layout(names(n), edges);
    expect(crossings(places, edges)).toBe(0);
    const all = [...places.values()];
    all.forEach((p, i) => all.slice(i + 1).forEach((q) => expect(apart(p, q)).toBeGreaterThan(0.4)));
    for (const [a, b] of edges) expect(apart(places.get(a)!, places.get(b)!)).toBeLessThan(1.6);
  });

  test("one node, no node, and links of nodes that are not there", () => {
    expect(layout(["a"], [["a", "b"]])).toEqual(new Map([["a", { x: 0, y: 0 }]]));
    expect(layout([], [])).toEqual(new Map());
  });

  test("200 switches take no noticeable time", () => {
    const begin = performance.now();
    layout(names(200), ring(200));
    expect(performance.now() - begin).toBeLessThan(2000);
  });
});

describe("fan", () => {
  test("one host stands opposite to the only link", () => {
    expect(Math.cos(fan([0], 1)[0]!)).toBeCloseTo(-1);
  });

  test("between two opposite links the lower side is taken", () => {
    expect(fan([0, Math.PI], 1)[0]).toBeCloseTo(Math.PI / 2);
  });

  test("many hosts share the gap and keep off the links", () => {
    const angles = fan([0, Math.PI / 2], 8);
    expect(new Set(angles).size).toBe(8);
    for (const a of angles) {
      expect(a).toBeGreaterThan(Math.PI / 2);
      expect(a).toBeLessThan(2 * Math.PI);
    }
  });

  test("a switch without links has them all around", () => {
    expect(new Set(fan([], 4).map((a) => a.toFixed(3))).size).toBe(4);
  });
});

/** The fat tree of k-port switches: cores, then pods of aggregation and edge switches. */
function fatTree(k: number): { ids: string[]; edges: Edges; layer: (id: string) => string } {
  const half = k / 2, edges: Edges = [];
  const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);
  const cores = range(half * half).map((c) => `core${c}`);
  const pods = range(k).map((p) => ({ agg: range(half).map((a) => `agg${p}-${a}`), edge: range(half).map((e) => `edge${p}-${e}`) }));
  for (const { agg, edge } of pods) {
    agg.forEach((a, i) => {
      for (const c of cores.slice(i * half, (i + 1) * half)) edges.push([c, a]);
      for (const e of edge) edges.push([a, e]);
    });
  }
  return { ids: [...cores, ...pods.flatMap((p) => [...p.agg, ...p.edge])], edges, layer: (id) => id.replace(/[0-9-]+$/, "") };
}

describe("layers", () => {
  const { ids, edges, layer } = fatTree(6);
  const heights = (places: Map<string, Point>, name: string): Set<number> => new Set(ids.filter((id) => layer(id) === name).map((id) => places.get(id)!.y));

  test("a fat tree of 45 switches stands in three, edges below", () => {
    expect(ids.length).toBe(45);
    const places = layout(ids, edges);
    const [core, agg, edge] = ["core", "agg", "edge"].map((name) => [...heights(places, name)]);
    expect([core!.length, agg!.length, edge!.length]).toEqual([1, 1, 1]);
    expect(core![0]!).toBeLessThan(agg![0]!);
    expect(agg![0]!).toBeLessThan(edge![0]!);
    for (const name of ["core", "agg", "edge"]) {
      const row = ids.filter((id) => layer(id) === name).map((id) => places.get(id)!.x).sort((a, b) => a - b);
      for (let i = 1; i < row.length; i++) expect(row[i]! - row[i - 1]!).toBeGreaterThan(0.4);
    }
  });

  test("the switches of a pod stand together", () => {
    const places = layout(ids, edges);
    for (const name of ["edge", "agg"]) {
      const row = ids.filter((id) => layer(id) === name).sort((a, b) => places.get(a)!.x - places.get(b)!.x).map((id) => id.split("-")[0]);
      expect(row.filter((pod, i) => pod !== row[i - 1]).length).toBe(6);
    }
  });

  test("they stay when links are down", () => {
    const lost = edges.filter((_, i) => i % 20 !== 3);
    const places = layout(ids, lost);
    for (const name of ["core", "agg", "edge"]) expect(heights(places, name).size).toBe(1);
  });

  test.each([["a line", line(12), 12], ["a ring", ring(12), 12]])("%s has none", (_, shape, n) => {
    const places = layout(names(n), shape);
    expect(new Set([...places.values()].map((p) => p.y)).size === 1 || new Set([...places.values()].map((p) => p.y)).size > 3).toBe(true);
  });
});
