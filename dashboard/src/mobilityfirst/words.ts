// Names and paths in words.

import type { NameNode, NamePath } from "../api/types";
import { byteCount, percent, several } from "../ui/format";

/** The beginning of a name, by which people tell it from others. */
export const shortName = (name: string): string => (name.length > 12 ? `${name.slice(0, 12)}…` : name);

type End = NamePath["ends"][number];

/** The two ends of a path. */
export const endsOf = (p: NamePath): [End | undefined, End | undefined] => [p.ends[0], p.ends[1]];

/** The switches by which a path goes, from its first end. */
export const wayOf = (p: NamePath): string[] => p.hops.map((hop) => hop.split(":")[0] ?? hop);

/** How a node stands, in a word, and whether that is as it should be. */
export function standing(n: Pick<NameNode, "state" | "standing" | "draining">): { said: string; good: boolean } {
  if (n.draining) return { said: "drains", good: false };
  if (n.state !== "up") return { said: n.state, good: false };
  return n.standing === "full" ? { said: "full", good: false } : { said: "up", good: true };
}

/** What a node does, and how much of it. */
export function doing(n: Pick<NameNode, "storage" | "compute" | "cache">): string {
  if (n.storage) return `keeps ${several(n.storage.chunks, "chunk")} for ${several(n.storage.destinations, "name")}, ${byteCount(n.storage.bytes)} of ${byteCount(n.storage.size)}`;
  if (n.compute) return `calls ${n.compute.function}: ${n.compute.running} of ${n.compute.workers} run, ${n.compute.queued} wait`;
  if (n.cache) {
    const asked = n.cache.hits + n.cache.misses;
    return `has ${several(n.cache.contents, "content")}, ${byteCount(n.cache.bytes)} of ${byteCount(n.cache.size)}${asked > 0 ? `; ${percent(n.cache.hits / asked)} were there` : ""}`;
  }
  return "has not told yet";
}
