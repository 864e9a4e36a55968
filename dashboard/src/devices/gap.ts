// For how long a device was without its network when it moved, as far as the controller
// sees it: from its first message at the new place until its packets pass there. Whether
// the time before, from the port's coming up on, was one without network, depends on
// whether the device still had its old place: so that is told apart.

import type { Move } from "../api/types";
import { durationWords, parseDuration, secondsWords } from "../ui/duration";

/** The gap of a move in words, with the parts that make it up. */
export function gapWords({ kind, bicast, prepared, parts, result }: Pick<Move, "kind" | "bicast" | "prepared" | "parts" | "result">): string {
  if (result !== "done" || (kind !== "move" && kind !== "attach")) return "–";
  if (bicast) return "none: packets went to both places";
  const named: [string, string][] = [["address", parts.t_d], ["rules", parts.t_f], ["way", parts.t_e]];
  const known = named.map(([name, t]) => ({ name, seconds: parseDuration(t) ?? 0 })).filter((p) => p.seconds > 0);
  const words = [secondsWords(known.reduce((sum, p) => sum + p.seconds, 0))];
  if (known.length > 1) words.push(`(${known.map((p) => `${p.name} ${secondsWords(p.seconds)}`).join(", ")})`);
  if ((parseDuration(parts.t_a) ?? 0) > 0) words.push(`after ${durationWords(parts.t_a)} of association`);
  return words.join(" ") + (prepared ? ", prepared" : "");
}
