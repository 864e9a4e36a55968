// The tree of a channel as the picture and the words beside it need it.

import type { Agent, Link, Tree, TreeSwitch, Viewer } from "../api/types";
import { portText } from "../topology/graph";
import type { Route } from "../topology/route";

/** What of the picture belongs to the tree: links, switches, and the gateways at its ends. */
export function routeOfTree(tree: Tree, viewers: readonly Viewer[], egress: readonly Agent[]): Route {
  const watching = new Set(viewers.filter((v) => v.channels.includes(tree.channel)).map((v) => v.gateway));
  const ends = egress.filter((a) => watching.has(a.name)).flatMap((a) => Object.values(a.places));
  return {
    leaves: new Set(tree.links),
    switches: new Set(tree.switches.map((s) => s.switch)),
    hosts: new Set(tree.from ? [tree.from, ...ends] : []),
  };
}

/** The switches to which one sends the channel on, by their datapath identifiers. */
export function onward(tree: Tree, of: TreeSwitch, links: readonly Link[]): string[] {
  const to = new Map(links.map((l) => [portText(l.from), l.to.switch]));
  return tree.links.filter((l) => l.startsWith(`${of.switch}/`)).map((l) => to.get(l) ?? l);
}

/** From where the channel comes to where it ends: a switch before those that have it from it. */
export function fromRoot(tree: Tree, links: readonly Link[]): TreeSwitch[] {
  const by = new Map(tree.switches.map((s) => [s.switch, s]));
  const order = tree.switches.filter((s) => tree.from === `${s.switch}/${s.in}`);
  const seen = new Set(order);
  for (const s of order) {
    for (const next of onward(tree, s, links).map((d) => by.get(d))) {
      if (!next || seen.has(next)) continue;
      seen.add(next);
      order.push(next);
    }
  }
  return [...order, ...tree.switches.filter((s) => !seen.has(s))];
}
