// Events of the network in words.

import type { Names } from "../names/said";
import { attrsOf, because, text, type Attrs } from "./attrs";

type Words = (a: Attrs, names: Names) => string;

const place = (of: unknown, names: Names): string => {
  const p = attrsOf(of);
  return `${names.of(text(p, "switch"))} port ${text(p, "port")}`;
};

const link = (a: Attrs, names: Names): string => {
  const l = attrsOf(a["link"]);
  return `${place(l["from"], names)} to ${place(l["to"], names)}`;
};

const host = (a: Attrs): string => {
  const h = attrsOf(a["host"]);
  const ips = Array.isArray(h["ips"]) ? h["ips"].filter((ip) => typeof ip === "string") : [];
  const mac = text(h, "mac");
  return ips.length > 0 ? `host ${ips.join(", ")} (${mac})` : `host ${mac}`;
};

const stands = (a: Attrs, names: Names): string => place(attrsOf(a["host"])["at"], names);

export const network: Record<string, Words> = {
  "network.switch.up": (a, names) => `Switch ${names.of(text(a, "switch"))} connected`,
  "network.switch.down": (a, names) => `Switch ${names.of(text(a, "switch"))} is gone${because(text(a, "reason"))}`,
  "network.switch.drifted": (a, names) => `Switch ${names.of(text(a, "switch"))} was not as declared${because(text(a, "reason"))}`,
  "network.switch.refused": (a, names) => `Switch ${names.of(text(a, "switch"))} was not let in${because(text(a, "reason"))}`,
  "network.port.up": (a, names) => `Port ${text(a, "port")} of ${names.of(text(a, "switch"))} came up`,
  "network.port.down": (a, names) => `Port ${text(a, "port")} of ${names.of(text(a, "switch"))} went down`,
  "network.link.up": (a, names) => `Link ${link(a, names)} was found`,
  "network.link.down": (a, names) => `Link ${link(a, names)} is gone`,
  "network.link.misplaced": (a, names) => `Link ${link(a, names)} ends at a port that is for hosts`,
  "network.loop.found": (a, names) => `Port ${text(a, "port")} of ${names.of(text(a, "switch"))} is blocked${because(text(a, "reason"))}`,
  "network.loop.gone": (a, names) => `The loop at port ${text(a, "port")} of ${names.of(text(a, "switch"))} is gone`,
  "network.host.added": (a, names) => `New ${host(a)} at ${stands(a, names)}`,
  "network.host.moved": (a, names) => `The ${host(a)} moved from ${place(a["from"], names)} to ${stands(a, names)}`,
  "network.host.removed": (a, names) => `The ${host(a)} at ${stands(a, names)} is forgotten`,
  "network.host.changed": (a, names) => `The ${host(a)} at ${stands(a, names)} has changed its addresses`,
  "network.host.refused": (a, names) => `What was said of a host at ${names.of(text(a, "switch"))} port ${text(a, "port")} is not believed${because(text(a, "reason"))}`,
  "network.events.left-out": (a, names) => `${text(a, "left_out")} events of ${names.of(text(a, "switch"))} port ${text(a, "port")} were left out`,
};
