// What viewers' last changes of channel took.

import type { Viewer } from "../api/types";
import { parseDuration, secondsWords } from "../ui/duration";

export interface Zaps {
  /** How many viewers have changed at all. */
  viewers: number;
  /** Seconds; undefined where nobody has. */
  median: number | undefined;
  slowest: number | undefined;
}

export function zapsOf(viewers: readonly Viewer[]): Zaps {
  const took = viewers.filter((v) => v.changes > 0).map((v) => parseDuration(v.zap)).filter((s) => s !== undefined).sort((a, b) => a - b);
  const half = took.length / 2;
  const median = took.length % 2 === 1 ? took[Math.floor(half)] : took.length > 0 ? (took[half - 1]! + took[half]!) / 2 : undefined;
  return { viewers: took.length, median, slowest: took.at(-1) };
}

export const zapWords = (seconds: number | undefined): string => (seconds === undefined ? "–" : secondsWords(seconds));

/** Which share of their packets viewers have lost between the gateways; undefined where there were none. */
export function lossOf(viewers: readonly Viewer[]): number | undefined {
  const lost = viewers.reduce((sum, v) => sum + v.lost, 0), got = viewers.reduce((sum, v) => sum + v.packets, 0);
  return lost + got > 0 ? lost / (lost + got) : undefined;
}
