// A path that is to be shown: the links it uses, by the port where it leaves a switch.

import type { Names } from "../names/said";
import { portText } from "./graph";
import type { Strand } from "./strands";

/** One switch of a path. */
export interface Hop {
  switch: string;
  out: number;
}

export interface Route {
  leaves: Set<string>;
  switches: Set<string>;
  /** The ports of hosts at its ends. */
  hosts?: Set<string>;
  /** Paths that are told apart. */
  strands?: Strand[];
}

export function routeOf(paths: Hop[][]): Route {
  const hops = paths.flat();
  return {
    leaves: new Set(hops.map((h) => portText({ switch: h.switch, port: h.out }))),
    switches: new Set(hops.map((h) => h.switch)),
  };
}

/** A path in words: s1, s2, s3. */
export const pathWords = (hops: Hop[], names: Names): string => hops.map((h) => names.of(h.switch)).join(" → ");
