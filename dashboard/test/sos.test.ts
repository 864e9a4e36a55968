import { expect, test } from "vitest";

import type { SosPath } from "../src/api/types";
import { rates } from "../src/sos/course";
import { allowed, confidence, roundTrip } from "../src/sos/paths";
import { beganAt } from "../src/sos/sessions";

test("a course is rates between samples", () => {
  const at = (s: number, up: number) => ({ at: new Date(s * 1000).toISOString(), bytes_up: up, bytes_down: 0, retransmits: 0 });
  expect(rates([at(0, 0), at(2, 1000), at(2, 2000), at(3, 1500)], "bytes_up")).toEqual([4000, 0, 0]);
});

test("a session's beginning is a rate, and the rest stands elsewhere", () => {
  expect(beganAt("95.5 Mbit/s: the path carries 96.5, as measured")).toBe("95.5 Mbit/s");
  expect(beganAt("not as expected".repeat(9))).toMatch(/^not as expectednot a… \(\d+ more\)$/);
});

const path = (p: Partial<SosPath>): SosPath => ({
  agent: "x", peer: "10.0.0.4", port: 7001, bits_per_second: 286e6, source: "measured", doubtful: false, rtt: "150ms", loss: 0, queue: "0s",
  pace_bits_per_second: 283e6, delivered_bits_per_second: 14e7, limit_bits_per_second: 0, sessions: 2, phase: "hold", ...p,
});

test("the confidence in a path's rate is where it comes from, and whether it is doubtful", () => {
  expect(confidence(path({}))).toBe("measured");
  expect(confidence(path({ source: "declared" }))).toBe("declared by the controller");
  expect(confidence(path({ source: "file", doubtful: true }))).toBe("from the agent’s file; doubtful, tried at half");
  expect(confidence(path({ bits_per_second: 0, source: "" }))).toBe("nothing to go by");
  expect(confidence(path({ source: "hearsay" }))).toBe("hearsay");
});

test("what is in use is beside what may be", () => {
  expect(allowed(path({}))).toBe("of 283 Mbit/s; 2 sessions with more to send");
  expect(allowed(path({ sessions: 0 }))).toBe("of 283 Mbit/s");
  expect(allowed(path({ pace_bits_per_second: 0, sessions: 0 }))).toBe("no session sends");
});

test("a queue is beyond the round trip of the path", () => {
  expect(roundTrip(path({}))).toBe("beyond 150 ms");
  expect(roundTrip(path({ rtt: "0s" }))).toBe("round trip not known");
});
