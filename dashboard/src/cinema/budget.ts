// What channels take of a link, and what they may.

import type { Budget } from "../api/types";
import { parseRate } from "../ui/rate";

/** The share of what they may that they take; undefined where that is not known. */
export function taken(b: Budget): number | undefined {
  const most = parseRate(b.most);
  return most ? (parseRate(b.kept) ?? 0) / most : undefined;
}

/** The fullest first; of those that are as full, the ones with most channels. */
export function fullestFirst(all: readonly Budget[]): Budget[] {
  return [...all].sort((x, y) => (taken(y) ?? 0) - (taken(x) ?? 0) || y.channels - x.channels || (x.link < y.link ? -1 : 1));
}
