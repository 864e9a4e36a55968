import { expect, test } from "vitest";

import { durationWords, parseDuration } from "../src/ui/duration";

test.each([
  ["0s", 0, "0 s"],
  ["850µs", 0.00085, "0.85 ms"],
  ["2.1ms", 0.0021, "2.10 ms"],
  ["1.25s", 1.25, "1.25 s"],
  ["999.9ms", 0.9999, "1.00 s"],
  ["3m5.4s", 185.4, "3 min 5 s"],
  ["1h2m3s", 3723, "1 h 2 min"],
  ["-2ms", -0.002, "−2.00 ms"],
])("%s", (text, seconds, words) => {
  expect(parseDuration(text)).toBeCloseTo(seconds, 9);
  expect(durationWords(text)).toBe(words);
});

test.each(["", "soon", "5", "1s2", "1e9s"])("%j is no duration and stays as it is", (text) => {
  expect(parseDuration(text)).toBeUndefined();
  expect(durationWords(text)).toBe(text);
});
