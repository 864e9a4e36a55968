// What the controller says, with the names of switches in place of their numbers.

import { shortName } from "../topology/graph";

/** How switches are called, by their datapath identifiers. */
export class Names {
  constructor(private readonly known: ReadonlyMap<string, string>) {}

  /** The switch's name in the configuration, else its number without leading zeros. */
  of(dpid: string): string {
    return this.known.get(dpid) || shortName(dpid);
  }

  /** A port in words: s1 port 3. */
  port(place: { switch: string; port: number }): string {
    return `${this.of(place.switch)} port ${place.port}`;
  }

  /**
   * A text of the controller with names: 00000000000000a1/3 is "s1 port 3". Numbers
   * that are no known switch's stay as they are.
   */
  said(text: string): string {
    return text.replace(place, (all: string, dpid: string, port?: string, to?: string) => {
      if (!this.known.has(dpid)) return all;
      const name = this.of(dpid);
      if (port === undefined) return name;
      return to === undefined ? `${name} port ${port}` : `${name} port ${port} to ${to}`;
    });
  }

  /** A way of hops SWITCH/IN>OUT: s1 → s2. */
  way(hops: readonly string[] | null | undefined): string {
    return (hops ?? []).map((h) => this.of(h.split("/")[0]!)).join(" → ");
  }
}

/** A switch's sixteen digits, perhaps with a port, or with the ports of a hop. */
const place = /(?<![0-9A-Za-z])([0-9a-f]{16})(?:\/([0-9]+)(?:>([0-9]+))?)?(?![0-9A-Za-z])/g;
