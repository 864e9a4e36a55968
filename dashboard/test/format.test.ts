import { expect, test } from "vitest";

import { bitRate, byteCount, count, milliseconds, parseNumber, percent, several } from "../src/ui/format";

test.each([
  [bitRate(0), "0 bit/s"],
  [bitRate(999), "999 bit/s"],
  [bitRate(999.7e3), "1.00 Mbit/s"],
  [bitRate(9_412_345), "9.41 Mbit/s"],
  [bitRate(1e10), "10.0 Gbit/s"],
  [bitRate(undefined), "–"],
  [byteCount(1536), "1.54 kB"],
  [count(12_345), "12.3\u202fk"],
  [count(7), "7"],
  [milliseconds(0.4), "0.40 ms"],
  [milliseconds(123.4), "123 ms"],
  [percent(0), "0 %"],
  [percent(0.00001), "< 0.01 %"],
  [percent(0.0021), "0.21 %"],
  [percent(0.5), "50 %"],
  [percent(undefined), "–"],
  [several(1, "link"), "1 link"],
  [several(0, "link"), "0 links"],
])("%s", (got, want) => expect(got).toBe(want));

test("numbers", () => {
  expect(parseNumber(" 4.5 ")).toBe(4.5);
  expect(parseNumber("-1")).toBe(-1);
  expect(parseNumber("1e9x")).toBe("1e9x");
});
