import { describe, expect, test } from "vitest";

import type { Link, Subflow, Switch } from "../src/api/types";
import { Names } from "../src/names/said";
import { connectionsOf, listed, routeAmong, routeOfConnection, totals } from "../src/qos/connections";
import { current, type Showing } from "../src/qos/show";
import { buildGraph } from "../src/topology/graph";
import { boxOf, lettering } from "../src/topology/lettering";
import { makeScene } from "../src/topology/scene";
import { besides, kinds, lineOf, strandLines, strandsOn } from "../src/topology/strands";
import { cableWords } from "../src/topology/words";

const a = "00000000000000a1", b = "00000000000000a2", c = "00000000000000a3";
const subflow = (id: string, connection: string, more: Partial<Subflow> = {}): Subflow => ({
  id, connection, flow: `tcp 10.0.0.1:4${id} > 10.0.0.2:5001`, bits_per_second: 1e6, bytes: 1000, plain: false, reverse: false,
  path: [{ switch: a, in: 9, out: 2 }, { switch: b, in: 1, out: 3 }, { switch: c, in: 2, out: 8 }], since: "2026-11-26T06:00:00Z", moves: 0, ...more,
});
const link = (from: string, fromPort: number, to: string, toPort: number): Link =>
  ({ from: { switch: from, port: fromPort }, to: { switch: to, port: toPort }, used_bits_per_second: 0, loss: 0, loss_packets: 0, queue_loss: 0, jitter_milliseconds: 0 });
const links = [link(a, 2, b, 1), link(b, 1, a, 2), link(b, 3, c, 2), link(c, 2, b, 3)];
const switches = [a, b, c].map((dpid, i) => ({ dpid, name: `s${i + 1}` })) as Switch[];
const names = new Names(new Map(switches.map((s) => [s.dpid, s.name!])));

test("subflows by connection: of the same token at two hosts there are two", () => {
  const all = [subflow("1", "07@10.0.0.2"), subflow("2", "07@10.0.0.3"), subflow("3", "07@10.0.0.2", { bits_per_second: 5e5, bytes: 1 })];
  const connections = connectionsOf(all);
  expect(connections.map((one) => [one.id, one.subflows.map((s) => s.id)])).toEqual([["07@10.0.0.2", ["1", "3"]], ["07@10.0.0.3", ["2"]]]);
  expect(totals(connections[0]!)).toEqual({ rate: 1.5e6, bytes: 1001 });
  expect(connectionsOf([])).toEqual([]);
});

test("thousands of them are grouped at once, and of one connection no more are drawn than there are lines", () => {
  const all = Array.from({ length: 8192 }, (_, i) => subflow(String(i), `${i % 2000}@10.0.0.2`));
  const began = performance.now();
  const connections = connectionsOf(all);
  expect(performance.now() - began).toBeLessThan(500);
  expect(connections).toHaveLength(2000);
  const [one] = connectionsOf(all.map((s) => ({ ...s, connection: "1@10.0.0.2" })));
  expect(routeOfConnection(one!).strands!.map((s) => s.kind)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  expect(listed).toBe(kinds);
});

describe("what is drawn", () => {
  const [one] = connectionsOf([subflow("1", "x"), subflow("2", "x", { reverse: true, bits_per_second: 2e6 }), subflow("3", "x")]);
  const route = routeOfConnection(one!);
  /** The picture is never lower than this. */
  const roomy = { x: -500, y: -150, width: 1000, height: 300 };
  const kindsOn = (l: Link): number[] => strandsOn(route, l).map((s) => s.kind);

  test("is on the side of a link to which more goes", () => {
    expect(links.map(kindsOn)).toEqual([[0, 2], [1], [0, 2], [1]]);
    expect([...route.switches]).toEqual([a, b, c]);
    expect([...route.hosts!]).toEqual([`${a}/9`, `${c}/8`]);
    expect(strandsOn(undefined, links[0])).toEqual([]);
    expect(strandsOn(route, undefined)).toEqual([]);
  });

  test("of one subflow is its own line", () => {
    expect(routeOfConnection(one!, "2").strands!.map((s) => s.kind)).toEqual([1]);
    expect(routeAmong([one!], "x")!.strands).toHaveLength(3);
    expect(routeAmong([one!], "x/3")!.strands!.map((s) => s.kind)).toEqual([2]);
    expect(routeAmong([one!], "x/4")).toBeUndefined();
    expect(routeAmong([one!], "y")).toBeUndefined();
  });

  test("is beside the lane, each line by itself, also where a pixel is large", () => {
    const lane = { from: { x: 0, y: 0 }, to: { x: 100, y: 0 } };
    for (const unit of [0.1, 1, 5]) {
      const lines = [1, 2, 3].map((place) => lineOf(lane, place, unit).from.y);
      expect(lines[0]! / unit).toBeGreaterThanOrEqual(4);
      expect(lines[1]! - lines[0]!).toBeCloseTo(besides(1, unit));
      expect(lines[2]! - lines[1]!).toBeCloseTo(besides(1, unit));
    }
    const back = lineOf({ from: lane.to, to: lane.from }, 1, 1);
    expect(back.from.y).toBeLessThan(0);
    expect(lineOf({ from: lane.from, to: lane.from }, 1, 1).from).toEqual({ x: 0, y: 0 });
  });

  test("says what each carries: beside the link, and in words", () => {
    const graph = buildGraph(switches, links, []);
    const scene = makeScene(graph);
    const lines = lettering(scene, undefined, roomy, 1, 1, route).flatMap((d) => d.lines);
    expect(lines.filter((l) => l === "2: 2.00 Mbit/s")).toHaveLength(2);
    expect(lines.filter((l) => l === "1: 1.00 Mbit/s · 3: 1.00 Mbit/s")).toHaveLength(2);
    expect(strandLines([...route.strands!, route.strands![1]!, route.strands![0]!])).toHaveLength(3);
    expect(lettering(scene, undefined, roomy, 1, 1).flatMap((d) => d.lines).some((l) => l.startsWith("1:"))).toBe(false);
    const words = cableWords(graph.cables[0]!, names, route);
    expect(words).toMatch(/s1 to s2: .*, subflow 1: 1\.00 Mbit\/s, subflow 3: 1\.00 Mbit\/s\. s2 to s1: .*, subflow 2: 2\.00 Mbit\/s$/);
  });

  test("no label of it is over a line of it", () => {
    const scene = makeScene(buildGraph(switches, links, []));
    const labels = lettering(scene, undefined, roomy, 1, 1, route).filter((d) => d.kind === "label").map((d) => boxOf(d, 1));
    expect(labels).toHaveLength(4);
    // The network is a row: all lanes are level.
    const heights = scene.cables.flatMap(({ cable, ab, ba }) => [[cable.ab, ab], [cable.ba, ba]] as const)
      .flatMap(([l, lane]) => strandsOn(route, l).map((_, i) => lineOf(lane, i + 1, 1).from.y));
    for (const box of labels) for (const y of heights) expect(y < box.y || y > box.y + box.height).toBe(true);
  });
});

test("what is shown is as it is now, and what is over is shown no longer", () => {
  const route = (n: string) => ({ leaves: new Set([n]), switches: new Set<string>() });
  const showing: Showing = { hovered: { id: "flow 1", route: route("old") }, selected: { id: "connection 1", route: route("old") } };
  expect(current(showing, "class ", () => undefined)).toBe(showing);
  const next = current(showing, "connection ", (rest) => route(`new ${rest}`));
  expect(next.hovered).toBe(showing.hovered);
  expect([...next.selected!.route.leaves]).toEqual(["new 1"]);
  expect(current(showing, "connection ", () => undefined)).toEqual({ hovered: showing.hovered });
});
