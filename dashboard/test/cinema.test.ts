import { describe, expect, test } from "vitest";

import type { Agent, Budget, Channel, Link, Lineup, Tree, Viewer } from "../src/api/types";
import { fullestFirst, taken } from "../src/cinema/budget";
import { summary } from "../src/cinema/summary";
import { fromRoot, onward, routeOfTree } from "../src/cinema/way";
import { lossOf, zapsOf, zapWords } from "../src/cinema/zaps";
import { parseRate, rateWords } from "../src/ui/rate";

const viewer = (gateway: string, channels: string[], more: Partial<Viewer> = {}): Viewer =>
  ({ id: "0".repeat(32), gateway, port: 20000, channels, since: "2026-11-21T06:00:00Z", changes: 0, zap: "0s", delivered: 0, packets: 0, lost: 0, ...more });
const zapped = (zap: string): Viewer => viewer("out1", ["a"], { changes: 1, zap });

test.each([
  ["2Mbit", 2e6],
  ["1.5 Gbit/s", 1.5e9],
  ["0bit", 0],
  ["10kbit", 1e4],
  ["2MB", undefined],
  ["Mbit", undefined],
  ["", undefined],
])("rate %j", (text, want) => expect(parseRate(text)).toBe(want));

test("a rate in words", () => {
  expect(rateWords("1.234567Mbit")).toBe("1.23 Mbit/s");
  expect(rateWords("nonsense")).toBe("–");
});

describe("zaps", () => {
  test.each([
    [[], undefined, undefined],
    [["30ms"], 0.03, 0.03],
    [["30ms", "10ms", "1.2s"], 0.03, 1.2],
    [["40ms", "20ms"], 0.03, 0.04],
    [["40ms", "nonsense"], 0.04, 0.04],
  ])("of %j", (all, median, slowest) => {
    const z = zapsOf(all.map(zapped));
    if (median === undefined) expect(z.median).toBeUndefined();
    else expect(z.median).toBeCloseTo(median);
    expect(z.slowest).toBe(slowest);
  });

  test("who has not changed channel does not count", () => expect(zapsOf([viewer("out1", ["a"])])).toEqual({ viewers: 0, median: undefined, slowest: undefined }));

  test("in words", () => {
    expect(zapWords(undefined)).toBe("–");
    expect(zapWords(0.0234)).toBe("23.4 ms");
  });
});

test("what viewers lose, of all their packets", () => {
  expect(lossOf([])).toBeUndefined();
  expect(lossOf([viewer("out1", ["a"], { packets: 90, lost: 10 }), viewer("out1", ["a"], { packets: 100 })])).toBe(0.05);
});

test("budgets, the fullest first", () => {
  const budget = (link: string, channels: number, kept: string, most: string): Budget => ({ link, to: "x", channels, kept, most });
  const all = [budget("d", 0, "0bit", "1Gbit"), budget("c", 1, "1Mbit", "0bit"), budget("b", 1, "1Mbit", "50Mbit"), budget("a", 2, "2Mbit", "4Mbit")];
  expect(fullestFirst(all).map((b) => b.link)).toEqual(["a", "b", "c", "d"]);
  expect(taken(all[3]!)).toBe(0.5);
  expect(taken(all[1]!)).toBeUndefined();
});

describe("a tree", () => {
  const id = (n: number): string => n.toString(16).padStart(16, "0");
  const link = (from: number, port: number, to: number): Link => ({ from: { switch: id(from), port }, to: { switch: id(to), port: 1 } }) as Link;
  // 3 comes in and goes to 1; 1 goes to 4 and 2.
  const links = [link(3, 1, 1), link(1, 4, 4), link(1, 2, 2), link(1, 5, 5), link(11, 2, 4)];
  const tree: Tree = {
    channel: "a", bit_rate: "1Mbit", from: `${id(3)}/9`, links: [`${id(1)}/2`, `${id(1)}/4`, `${id(3)}/1`], viewers: 3,
    switches: [1, 2, 3, 4].map((n) => ({ switch: id(n), in: n === 3 ? 9 : 1, out: 0, groups: 0, copies: 0 })),
  };

  test("from where it comes in", () => expect(fromRoot(tree, links).map((s) => s.switch)).toEqual([3, 1, 2, 4].map(id)));

  test("its links lead on", () => {
    const at = (n: number) => tree.switches.find((s) => s.switch === id(n))!;
    expect(onward(tree, at(1), links)).toEqual([id(2), id(4)]);
    expect(onward(tree, at(4), links)).toEqual([]);
    expect(onward(tree, at(3), [])).toEqual([`${id(3)}/1`]); // a link that the network has no longer
  });

  test("is all there also when the links are not known, or go in a circle", () => {
    expect(fromRoot(tree, []).map((s) => s.switch)).toEqual([3, 1, 2, 4].map(id));
    const circle = { ...tree, links: [...tree.links, `${id(4)}/1`] };
    expect(fromRoot(circle, [...links, link(4, 1, 3)])).toHaveLength(4);
  });

  test("in the picture: links, switches, and the gateways at its ends", () => {
    const egress = [["out1", `${id(2)}/7`], ["out2", `${id(4)}/7`]].map(([name, place]) => ({ name, places: { "10.0.0.1": place } }) as unknown as Agent);
    const route = routeOfTree(tree, [viewer("out2", ["b", "a"]), viewer("out1", ["b"])], egress);
    expect([...route.leaves]).toEqual(tree.links);
    expect(route.switches.has(id(4))).toBe(true);
    expect([...route.hosts!]).toEqual([`${id(3)}/9`, `${id(4)}/7`]);
    const { from: _, ...idle } = { ...tree, links: [], switches: [] };
    expect([...routeOfTree(idle, [viewer("out2", ["a"])], egress).hosts!]).toEqual([]);
  });
});

test("all of it in a few sentences", () => {
  const channels = [{ on_air: "live" }, { on_air: "down" }] as Channel[];
  const egress = [{ state: "up" }, { state: "silent" }] as Agent[];
  const lineup = { channels: [], gateways: [{ name: "out1", room: 7, url: "" }] } as Lineup;
  expect(summary(channels, [zapped("20ms")], egress, lineup)).toBe(
    "1 of 2 channels are on the air. 1 viewer watches by 1 of 2 egress gateways that are up, which have room for 7 more. The last changes of channel of 1 viewer took 20.0 ms in the median, and 20.0 ms at most.",
  );
  expect(summary([], [], [], undefined)).toContain("No viewer has changed channel yet.");
});
