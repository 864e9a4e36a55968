// By which of its interfaces a device is attached, and where it may be.

import type { Device, Port } from "../api/types";

/** An interface of a device, as a form offers it. */
export interface Interface {
  mac: string;
  words: string;
}

/**
 * The interfaces by which a device can be attached. A device's first address is that of
 * its virtual interface if it has a daemon, and of its only interface if it has none.
 */
export function interfacesOf({ macs }: Pick<Device, "macs">): Interface[] {
  if (macs.length < 2) return macs.map((mac) => ({ mac, words: mac }));
  const [, ...own] = macs;
  return own.map((mac, i) => ({ mac, words: `interface ${i + 1} of ${own.length} (${mac})` }));
}

/** By which of its interfaces a device is attached. */
export function accessOf(d: Pick<Device, "at" | "macs">): string {
  const mac = d.at?.mac;
  if (!mac) return "not known";
  return interfacesOf(d).find((i) => i.mac === mac)?.words ?? mac;
}

/** Above it are the numbers of ports that are none: the switch itself, all, and so on. */
const lastPort = 0xffffff00;

/** The ports where a device may be, by their numbers: no link to another switch is there. */
export const accessesOf = (ports: readonly Port[]): Port[] =>
  ports.filter((p) => p.edge && p.port <= lastPort).sort((x, y) => x.port - y.port);
