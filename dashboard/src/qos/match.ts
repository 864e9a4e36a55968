// Descriptions of flows as a form edits them: conditions in the order in which
// they were written.

import type { Match } from "../api/types";

export interface Condition {
  /** Tells conditions apart while they are edited. */
  key: number;
  field: string;
  value: string;
}

/** The fields, in the order in which they are offered, each with an example. */
export const fields: Record<string, string> = {
  ipv4_src: "10.0.0.1 or 10.0.0.0/24",
  ipv4_dst: "10.0.0.2 or 10.0.0.0/24",
  ipv6_src: "2001:db8::1 or 2001:db8::/64",
  ipv6_dst: "2001:db8::2 or 2001:db8::/64",
  ip_proto: "tcp, udp, icmp or a number",
  tcp_src: "443 or 5000-5100",
  tcp_dst: "443 or 5000-5100",
  udp_src: "5201 or 5000-5100",
  udp_dst: "5201 or 5000-5100",
  ip_dscp: "0 to 63",
  in_port: "port number of the first switch",
  eth_src: "02:00:00:00:00:01",
  eth_dst: "02:00:00:00:00:02",
  eth_type: "ipv4, ipv6, arp or 0x0800",
  vlan_vid: "1 to 4094, or none",
  vlan_pcp: "0 to 7",
};

let keys = 0;

export const condition = (field: string): Condition => ({ key: ++keys, field, value: "" });

export const emptyMatch = (): Condition[] => [condition("ipv4_src"), condition("ipv4_dst")];

/** What is sent: the conditions that have a value. */
export function matchOf(conditions: Condition[]): Match {
  return Object.fromEntries(conditions.filter((c) => c.value.trim() !== "").map((c) => [c.field, c.value.trim()]));
}

/** A description in words: ipv4_src 10.0.0.1, udp_dst 5201. */
export const matchWords = (match: Match | undefined): string =>
  Object.entries(match ?? {}).map(([field, value]) => `${field} ${value}`).join(", ");
