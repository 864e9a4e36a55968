import { expect, test } from "vitest";

import { Names } from "../src/names/said";

const names = new Names(new Map([["00000000000000a1", "s1"], ["00000000000000a2", ""]]));

test.each([
  ["link from 00000000000000a1/3: its capacity is not known", "link from s1 port 3: its capacity is not known"],
  ["switch 00000000000000a1 is gone", "switch s1 is gone"],
  ["by 00000000000000a1/3>4, 00000000000000a2/1>2", "by s1 port 3 to 4, a2 port 1 to 2"],
  ["cookie 0x00000000000000a1", "cookie 0x00000000000000a1"],
  ["00000000000000ff/1 is no switch of ours", "00000000000000ff/1 is no switch of ours"],
  ["00000000000000a100000000000000a1", "00000000000000a100000000000000a1"],
])("%s", (text, want) => expect(names.said(text)).toBe(want));

test("a way", () => {
  expect(names.way(["00000000000000a1/1>2", "00000000000000a2/3>4"])).toBe("s1 → a2");
  expect(names.way(undefined)).toBe("");
});
