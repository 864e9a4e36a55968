// A link in words: short beside its line, in full for its description.

import type { Link } from "../api/types";
import type { Names } from "../names/said";
import { bitRate, milliseconds, percent, spread } from "../ui/format";
import type { Cable } from "./graph";
import { utilisation } from "./load";
import type { Route } from "./route";
import { strandsOn, strandWords } from "./strands";

/** Beside the line, in lines: how full and how long it is, and what path and queues lose if they do. */
export function shortWords(link: Link): string[] {
  const share = utilisation(link);
  const words = [share === undefined ? bitRate(link.used_bits_per_second) : percent(share)];
  if (link.latency_milliseconds !== undefined) words.push(spread(link.latency_milliseconds, link.jitter_milliseconds));
  const first = words.join(" · ");
  const lines = [first];
  if (link.loss > 0) lines.push(`${percent(link.loss)} lost`);
  if (link.queue_loss > 0) lines.push(`${percent(link.queue_loss)} lost in queues`);
  return lines;
}

export function linkWords(link: Link, names: Names): string {
  const capacity = link.capacity_bits_per_second ? ` of ${bitRate(link.capacity_bits_per_second)} (${percent(utilisation(link))})` : "";
  return [
    `${names.of(link.from.switch)} to ${names.of(link.to.switch)}: ${bitRate(link.used_bits_per_second)}${capacity}`,
    `latency ${milliseconds(link.latency_milliseconds)}`,
    `jitter ${milliseconds(link.jitter_milliseconds)}`,
    ...lossWords(link),
  ].join(", ");
}

/** What the path loses, of how many packets, and what queues have lost within the last minute. */
function lossWords(link: Link): string[] {
  const path = link.loss_packets > 0 ? `loss ${percent(link.loss)} of ${link.loss_packets} packets` : "loss unknown";
  return link.queue_loss > 0 ? [path, `queues lost ${percent(link.queue_loss)} within the last minute`] : [path];
}

export function cableWords(cable: Cable, names: Names, route?: Route): string {
  const title = `Link ${names.port(cable.a)}, ${names.port(cable.b)}`;
  const directions = [cable.ab, cable.ba].filter((l): l is Link => l !== undefined).map((l) => [linkWords(l, names), ...strandsOn(route, l).map((s) => `subflow ${strandWords(s)}`)].join(", "));
  return [title, ...directions].join(". ");
}
