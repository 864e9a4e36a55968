import { expect, test } from "vitest";

import { rates } from "../src/sos/course";

test("a course is rates between samples", () => {
  const at = (s: number, up: number) => ({ at: new Date(s * 1000).toISOString(), bytes_up: up, bytes_down: 0, retransmits: 0 });
  expect(rates([at(0, 0), at(2, 1000), at(2, 2000), at(3, 1500)], "bytes_up")).toEqual([4000, 0, 0]);
});
