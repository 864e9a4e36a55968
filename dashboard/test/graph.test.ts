import { expect, test } from "vitest";

import type { Host, Link, Switch } from "../src/api/types";
import { Names } from "../src/names/said";
import { buildGraph, hostName, shortName } from "../src/topology/graph";
import { loadClass, utilisation } from "../src/topology/load";
import { routeOf } from "../src/topology/route";
import { makeScene } from "../src/topology/scene";
import { cableWords, linkWords, shortWords } from "../src/topology/words";

const a = "00000000000000a1", b = "00000000000000a2";
const link = (from: string, fromPort: number, to: string, toPort: number, more: Partial<Link> = {}): Link =>
  ({ from: { switch: from, port: fromPort }, to: { switch: to, port: toPort }, used_bits_per_second: 0, loss: 0, loss_packets: 0, queue_loss: 0, jitter_milliseconds: 0, ...more });
const forward = link(a, 2, b, 1, { used_bits_per_second: 8e6, capacity_bits_per_second: 1e7, latency_milliseconds: 0.4, jitter_milliseconds: 0.05, loss: 0.002, loss_packets: 5000 });
const switches = [{ dpid: b, name: "right" }, { dpid: a, name: "" }] as Switch[];
const host = (mac: string, ips: string[], port = 1): Host => ({ mac, ips, at: { switch: a, port }, seen: "2026-11-21T06:00:00Z" });

/** No switch has a name. */
const numbers = new Names(new Map());

test("the two directions of a link are one cable, whichever comes first", () => {
  const back = link(b, 1, a, 2);
  for (const links of [[forward, back], [back, forward]]) {
    const { cables } = buildGraph(switches, links, []);
    expect(cables).toHaveLength(1);
    expect(cables[0]).toMatchObject({ a: forward.from, b: forward.to, ab: forward, ba: back });
  }
});

test("two links between the same switches are two cables side by side", () => {
  const scene = makeScene(buildGraph(switches, [forward, link(a, 3, b, 4)], []));
  expect(scene.cables).toHaveLength(2);
  expect(scene.cables[0]!.ab.from).not.toEqual(scene.cables[1]!.ab.from);
});

test("a switch that only a link names is shown as not connected", () => {
  const { switches: nodes } = buildGraph([switches[1]!], [forward], []);
  expect(nodes).toEqual([{ id: a, name: "a1", connected: true }, { id: b, name: "a2", connected: false }]);
});

test("everything lies within the picture, also with more hosts than can be drawn", () => {
  const hosts = Array.from({ length: 30 }, (_, i) => host(`02:00:00:00:00:${String(i).padStart(2, "0")}`, []));
  const { switches: drawn, hosts: dots, box } = makeScene(buildGraph(switches, [forward], hosts));
  expect(dots).toHaveLength(1);
  expect(dots[0]!.name).toBe("30 hosts");
  for (const { at } of [...drawn, ...dots]) {
    expect(at.x).toBeGreaterThan(box.x);
    expect(at.x).toBeLessThan(box.x + box.width);
    expect(at.y).toBeGreaterThan(box.y);
    expect(at.y).toBeLessThan(box.y + box.height);
  }
});

test("the level of a link", () => {
  const levels = [[0, "load-0"], [0.25, "load-1"], [0.6, "load-2"], [0.8, "load-3"], [0.9, "load-4"], [1.1, "load-4"], [undefined, "load-unknown"]] as const;
  for (const [share, want] of levels) expect(loadClass(share)).toBe(want);
  expect(utilisation(forward)).toBeCloseTo(0.8);
  expect(utilisation(link(a, 1, b, 1))).toBeUndefined();
});

test("a link in words", () => {
  expect(shortWords(forward)).toEqual(["80 % · 0.40 ± 0.05 ms", "0.20 % lost"]);
  expect(shortWords(link(a, 1, b, 1, { used_bits_per_second: 1500 }))).toEqual(["1.50 kbit/s"]);
  const full = link(a, 1, b, 1, { queue_loss: 0.15 });
  expect(shortWords(full)).toEqual(["0 bit/s", "15 % lost in queues"]);
  expect(linkWords(full, numbers)).toContain("loss unknown, queues lost 15 % within the last minute");
  const [cable] = buildGraph(switches, [forward], []).cables;
  expect(cableWords(cable!, numbers)).toBe(
    "Link a1 port 2, a2 port 1. a1 to a2: 8.00 Mbit/s of 10.0 Mbit/s (80 %), latency 0.40 ms, jitter 0.05 ms, loss 0.20 % of 5000 packets",
  );
});

test("a path lights the links it leaves by", () => {
  const route = routeOf([[{ switch: a, out: 2 }, { switch: b, out: 3 }]]);
  expect([...route.leaves]).toEqual([`${a}/2`, `${b}/3`]);
  expect(route.switches.has(b)).toBe(true);
});

test("names", () => {
  expect(hostName(host("02:00:00:00:00:01", ["fe80::1", "10.0.0.1"]))).toBe("10.0.0.1");
  expect(hostName(host("02:00:00:00:00:01", []))).toBe("02:00:00:00:00:01");
  expect(shortName("0000000000000000")).toBe("0");
});
