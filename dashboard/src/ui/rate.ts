// Rates as the controller writes them ("2Mbit"), for people.

import { bitRate } from "./format";

const factors: Record<string, number> = { "": 1, k: 1e3, M: 1e6, G: 1e9, T: 1e12 };

/** A rate in bit/s; undefined for what is none. */
export function parseRate(text: string): number | undefined {
  const [, number, prefix] = /^([0-9]+(?:\.[0-9]+)?) *([kMGT]?)bit(?:\/s)?$/.exec(text) ?? [];
  return number === undefined ? undefined : Number(number) * factors[prefix!]!;
}

export const rateWords = (text: string): string => bitRate(parseRate(text));
