// An event in words, with the names of switches.

import type { BusEvent } from "../api/types";
import type { Names } from "../names/said";
import { cut } from "../ui/paged";
import { attrsOf } from "./attrs";
import { cinema } from "./cinema";
import { network } from "./network";
import { services } from "./services";

/** What is shown of one event. */
const letters = 300;

/** What happened. A kind that this page does not know is said with all that it tells. */
export function eventWords(event: BusEvent, names: Names): string {
  const attrs = attrsOf(event.attrs);
  const words = network[event.kind] ?? services[event.kind] ?? cinema[event.kind];
  if (words) return cut(names.said(words(attrs, names)), letters);
  const told = Object.entries(attrs).map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "string" ? value : JSON.stringify(value)}`);
  const kind = event.kind.replace(/[.-]/g, " ");
  return cut(names.said(told.length > 0 ? `${kind}: ${told.join(", ")}` : kind), letters);
}

/** Which part of the program an event is of: what stands before the first dot. */
export const partOf = (kind: string): string => kind.split(".")[0]!;
