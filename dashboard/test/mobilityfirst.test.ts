import { expect, test } from "vitest";

import { doing, endsOf, shortName, standing, wayOf } from "../src/mobilityfirst/words";

const end = (name: string, label: number) => ({ name, port: "0000000000000001/1", mac: "02:00:00:00:00:01", label });

test("a path between names", () => {
  const a = end("9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930", 17), b = end("0c5f1e7a9b3d2c4e6f8091a2b3c4d5e6f7081920", 4);
  const path = { id: "1", ends: [a, b], hops: ["0000000000000001:3", "0000000000000002:1"], lease: "45s" };
  expect(endsOf(path)).toEqual([a, b]);
  expect(wayOf(path)).toEqual(["0000000000000001", "0000000000000002"]);
  expect(wayOf({ ...path, hops: [] })).toEqual([]);
});

test("a name is cut where people can still tell it from others", () => {
  expect(shortName("9b3e1c6f0a5d4c7e8f90a1b2c3d4e5f607182930")).toBe("9b3e1c6f0a5d…");
  expect(shortName("printer")).toBe("printer");
});

test("how a node stands", () => {
  const node = { state: "up", standing: "fit", draining: false } as const;
  expect(standing(node)).toEqual({ said: "up", good: true });
  expect(standing({ ...node, standing: "full" })).toEqual({ said: "full", good: false });
  expect(standing({ ...node, state: "silent", standing: "silent" })).toEqual({ said: "silent", good: false });
  expect(standing({ state: "silent", standing: "draining", draining: true })).toEqual({ said: "drains", good: false });
});

test("what a node does", () => {
  const storage = { chunks: 1200, destinations: 1, bytes: 5e6, size: 1e9, kept: 1300, handed_on: 100, refused: 0, lost: 0 };
  expect(doing({ storage })).toBe("keeps 1200 chunks for 1 name, 5.00 MB of 1.00 GB");
  const compute = { function: "compress", builtin: true, called: 7, failed: 1, refused: 0, running: 2, workers: 4, queued: 3, load: 0.5, cpu_time: "1s" };
  expect(doing({ compute })).toBe("calls compress: 2 of 4 run, 3 wait");
  const cache = { contents: 2, pieces: 9, bytes: 2e6, size: 4e6, hits: 3, misses: 1, failed: 0 };
  expect(doing({ cache })).toBe("has 2 contents, 2.00 MB of 4.00 MB; 75 % were there");
  expect(doing({ cache: { ...cache, hits: 0, misses: 0 } })).toBe("has 2 contents, 2.00 MB of 4.00 MB");
  expect(doing({})).toBe("has not told yet");
});
