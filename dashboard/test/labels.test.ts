import { expect, test } from "vitest";

import { fitting, textBox, type Box } from "../src/topology/labels";
import { boxOf, lettering } from "../src/topology/lettering";
import { makeScene } from "../src/topology/scene";
import { moved, pixels, seen, showing, whole, zoomed } from "../src/topology/viewport";
import type { Link } from "../src/api/types";
import { buildGraph } from "../src/topology/graph";

const box = (x: number, y: number, width = 10, height = 10): Box => ({ x, y, width, height });
const everything = box(-1e6, -1e6, 2e6, 2e6);

test("labels that collide: the first stays", () => {
  const wanted = [box(0, 0), box(5, 5), box(10, 0), box(50, 50)].map((b, i) => ({ id: String(i), box: b }));
  expect([...fitting(wanted, [], everything)]).toEqual(["0", "2", "3"]);
  expect([...fitting(wanted, [box(45, 45)], everything)]).toEqual(["0", "2"]);
  expect([...fitting(wanted, [], box(40, 40, 100, 100))]).toEqual(["3"]);
});

test("the work is bounded", () => {
  const many = Array.from({ length: 5000 }, (_, i) => ({ id: String(i), box: box(i * 20, 0) }));
  expect(fitting(many, [], everything).size).toBe(600);
});

test("a text stands where its anchor says", () => {
  expect(textBox(["abc", "a"], { x: 0, y: 0 }, "start", 2, 5)).toEqual(box(0, 0, 6, 10));
  expect(textBox(["abc"], { x: 0, y: 0 }, "end", 2, 5).x).toBe(-6);
  expect(textBox(["abc"], { x: 0, y: 0 }, "middle", 2, 5).x).toBe(-3);
});

/** Four spines and twelve leaves. */
function spines() {
  const dpid = (n: number): string => n.toString(16).padStart(16, "0");
  const links: Link[] = [];
  for (let spine = 1; spine <= 4; spine++) {
    for (let leaf = 5; leaf <= 16; leaf++) {
      const ends = [{ switch: dpid(spine), port: leaf }, { switch: dpid(leaf), port: spine }] as const;
      for (const [from, to] of [ends, [ends[1], ends[0]]] as const) links.push({ from, to, used_bits_per_second: 1e6, jitter_milliseconds: 0, latency_milliseconds: 1, loss: 0, loss_packets: 0, queue_loss: 0 } as Link);
    }
  }
  return buildGraph([], links, []);
}

test.each([0.2, 0.5, 1, 2])("no label of a dense network is over another, at %f pixels a unit", (scale) => {
  const scene = makeScene(spines());
  const unit = 1 / scale;
  const drawn = lettering(scene, undefined, scene.box, unit, 1).map((d) => boxOf(d, unit));
  expect(drawn.length).toBeGreaterThan(4);
  drawn.forEach((a, i) => drawn.slice(i + 1).forEach((b) => expect(a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height).toBe(false)));
});

test("what is looked at has its label before the others", () => {
  const scene = makeScene(spines());
  const cable = scene.cables[20]!.cable.id;
  expect(lettering(scene, cable, scene.box, 1 / 0.3, 1).filter((d) => d.id.endsWith(cable)).length).toBeGreaterThan(0);
});

const picture = box(0, 0, 1000, 500), size = { width: 500, height: 250 };

test("zoom keeps what is at the point, and ends at the whole picture", () => {
  const at = { x: 250, y: 125 };
  const large = zoomed(whole(picture), picture, 2, at);
  expect(pixels(picture, size, large.zoom)).toBe(1);
  const before = seen(whole(picture), picture, size), after = seen(large, picture, size);
  expect((at.x - after.x) / after.width).toBeCloseTo((at.x - before.x) / before.width);
  expect(zoomed(large, picture, 0.01)).toEqual(whole(picture));
  expect(zoomed(large, picture, 1000).zoom).toBe(16);
});

test("the picture never leaves the view, and what is focused is brought into it", () => {
  const large = zoomed(whole(picture), picture, 4);
  expect(moved(large, picture, 1e6, -1e6).middle).toEqual({ x: 1000, y: 0 });
  expect(moved(whole(picture), picture, 50, 50)).toEqual(whole(picture));
  const corner = { x: 990, y: 490 };
  expect(showing(large, picture, size, corner).middle).toEqual(corner);
  expect(showing(large, picture, size, large.middle)).toBe(large);
});
