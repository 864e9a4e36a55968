// Events of Cinema in words.

import { durationWords } from "../ui/duration";
import { several } from "../ui/format";
import { attrsOf, because, number, text, type Attrs } from "./attrs";

type Words = (a: Attrs) => string;

const viewer = (a: Attrs): string => `Viewer ${text(a, "viewer").slice(0, 8)} of gateway ${text(a, "gateway")}`;

/** Of the gateways of one kind, and what they take. */
const gateways = (kind: string, takes: string): Record<string, Words> => ({
  [`cinema.${kind}-agent.up`]: (a) => `The ${kind} gateway ${text(a, "agent")} is up`,
  [`cinema.${kind}-agent.silent`]: (a) => `The ${kind} gateway ${text(a, "agent")} is silent${because(text(a, "error"))}`,
  [`cinema.${kind}-agent.drifted`]: (a) => `The ${kind} gateway ${text(a, "agent")} has restored what another program on its machine had changed`,
  [`cinema.${kind}-agent.added`]: (a) => `The ${kind} gateway ${text(a, "name")} was added`,
  [`cinema.${kind}-agent.changed`]: (a) => `The ${kind} gateway ${text(a, "name")} takes ${attrsOf(a["agent"])["draining"] === true ? `no new ${takes}` : `new ${takes} again`}`,
  [`cinema.${kind}-agent.removed`]: (a) => `The ${kind} gateway ${text(a, "name")} was removed`,
});

export const cinema: Record<string, Words> = {
  "cinema.channel.added": (a) => `Channel ${text(a, "name")} is declared`,
  "cinema.channel.changed": (a) => `Channel ${text(a, "name")} was changed`,
  "cinema.channel.removed": (a) => `Channel ${text(a, "name")} was withdrawn`,
  "cinema.channel.live": (a) => `Channel ${text(a, "channel")} is on the air, by ${text(a, "gateway")}`,
  "cinema.channel.down": (a) => `Channel ${text(a, "channel")} has fallen silent at ${text(a, "gateway")}${because(text(a, "detail"))}`,
  "cinema.channel.refused": (a) => `A producer of channel ${text(a, "channel")} was not let in at ${text(a, "gateway")}${because(text(a, "detail"))}`,
  "cinema.viewer.joined": (a) => `${viewer(a)} watches ${text(a, "channel")}`,
  "cinema.viewer.changed": (a) => `${viewer(a)} changed to ${text(a, "channel")} in ${durationWords(text(a, "zap"))}`,
  "cinema.viewer.left": (a) => `${viewer(a)} watches ${text(a, "channel")} no longer`,
  "cinema.tree.changed": (a) => `Channel ${text(a, "channel")} is on ${several(number(a, "links"), "link")}: ${number(a, "added")} more, ${number(a, "removed")} fewer than before`,
  "cinema.tree.refused": (a) => `Viewers of gateway ${text(a, "gateway")} do not get channel ${text(a, "channel")}${because(text(a, "reason"))}`,
  ...gateways("ingress", "channels"),
  ...gateways("egress", "viewers"),
};
