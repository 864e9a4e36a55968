// Further subflows by the connection that they belong to, and what the picture shows of them.

import type { Subflow } from "../api/types";
import type { Route } from "../topology/route";
import { portText } from "../topology/graph";
import { kinds, leavesOf } from "../topology/strands";
import { bitRate } from "../ui/format";

export interface Connection {
  /** Its token, and the host that has chosen it: 9f3c21aa@10.0.0.2. */
  id: string;
  subflows: Subflow[];
}

/** How many subflows of a connection are listed and drawn: as many as there are lines to tell apart. */
export const listed = kinds;

/** The connections in the order in which they come, each with its subflows in theirs. */
export function connectionsOf(subflows: readonly Subflow[]): Connection[] {
  const by = new Map<string, Connection>();
  for (const s of subflows) {
    const c = by.get(s.connection);
    if (c) c.subflows.push(s);
    else by.set(s.connection, { id: s.connection, subflows: [s] });
  }
  return [...by.values()];
}

/** What all subflows of a connection carry, and have carried. */
export const totals = ({ subflows }: Connection): { rate: number; bytes: number } =>
  subflows.reduce((sum, s) => ({ rate: sum.rate + s.bits_per_second, bytes: sum.bytes + s.bytes }), { rate: 0, bytes: 0 });

/** The lines of a connection's subflows, or of the one that has an identifier. */
export function routeOfConnection({ subflows }: Connection, only?: string): Route {
  const shown = subflows.slice(0, listed).map((s, kind) => ({ s, kind, path: s.path ?? [] })).filter(({ s }) => only === undefined || s.id === only);
  return {
    leaves: new Set(),
    switches: new Set(shown.flatMap(({ path }) => path.map((h) => h.switch))),
    hosts: new Set(shown.flatMap(({ path }) => endsOf(path))),
    strands: shown.map(({ s, kind, path }) => ({ kind, leaves: leavesOf(path, s.reverse), carries: bitRate(s.bits_per_second) })),
  };
}

/** The lines of CONNECTION, or of CONNECTION/SUBFLOW; undefined for what is over. */
export function routeAmong(connections: readonly Connection[], id: string): Route | undefined {
  const [name, only] = id.split("/");
  const c = connections.find((one) => one.id === name);
  return c && (only === undefined || c.subflows.some((s) => s.id === only)) ? routeOfConnection(c, only) : undefined;
}

/** The ports of the hosts at both ends of a path. */
function endsOf(path: NonNullable<Subflow["path"]>): string[] {
  const first = path[0], last = path[path.length - 1];
  return first && last ? [portText({ switch: first.switch, port: first.in }), portText({ switch: last.switch, port: last.out })] : [];
}
