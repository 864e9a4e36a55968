// What the picture and the tables draw: switches, cables (the two directions of
// a link together) and hosts, in an order that does not depend on the answer's.

import type { Host, Link, Place, Switch } from "../api/types";

export interface SwitchNode {
  id: string;
  name: string;
  connected: boolean;
}

export interface Cable {
  id: string;
  a: Place;
  b: Place;
  ab?: Link;
  ba?: Link;
}

export interface Graph {
  switches: SwitchNode[];
  cables: Cable[];
  hosts: Host[];
}

export const portText = (p: Place): string => `${p.switch}/${p.port}`;

export function buildGraph(switches: Switch[], links: Link[], hosts: Host[]): Graph {
  const nodes = new Map<string, SwitchNode>();
  for (const s of switches) {
    nodes.set(s.dpid, { id: s.dpid, name: s.name || shortName(s.dpid), connected: true });
  }
  const cables = new Map<string, Cable>();
  for (const link of links) {
    for (const { switch: id } of [link.from, link.to]) {
      if (!nodes.has(id)) nodes.set(id, { id, name: shortName(id), connected: false });
    }
    addDirection(cables, link);
  }
  return {
    switches: [...nodes.values()].sort((x, y) => compare(x.id, y.id)),
    cables: [...cables.values()].sort((x, y) => compare(x.id, y.id)),
    hosts: hosts.filter((h) => nodes.has(h.at.switch)).sort((x, y) => compare(portText(x.at) + x.mac, portText(y.at) + y.mac)),
  };
}

function addDirection(cables: Map<string, Cable>, link: Link): void {
  const forward = compare(portText(link.from), portText(link.to)) < 0;
  const [a, b] = forward ? [link.from, link.to] : [link.to, link.from];
  const id = `${portText(a)}-${portText(b)}`;
  const cable = cables.get(id) ?? { id, a, b };
  if (forward) cable.ab = link;
  else cable.ba = link;
  cables.set(id, cable);
}

/** Compares by code units: the same order in every language. */
export const compare = (x: string, y: string): number => (x < y ? -1 : x > y ? 1 : 0);

/** A datapath identifier without its leading zeros. */
export const shortName = (dpid: string): string => dpid.replace(/^0+(?=.)/, "");

/** A host's name: its first address, or else its MAC address. */
export const hostName = (h: Host): string => h.ips?.find((ip) => ip.includes(".")) ?? h.ips?.[0] ?? h.mac;
