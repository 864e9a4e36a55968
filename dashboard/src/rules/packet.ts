// A packet as the trace form describes it, in the words of ofproto/trace.

import type { Values } from "../ui/texts";

export const protocols = ["tcp", "udp", "icmp", "arp", "ip"] as const;
export type Protocol = (typeof protocols)[number];

const names: Record<Protocol, [field: string, value: string][]> = {
  tcp: [["nw_src", "src"], ["nw_dst", "dst"], ["tp_src", "src_port"], ["tp_dst", "dst_port"]],
  udp: [["nw_src", "src"], ["nw_dst", "dst"], ["tp_src", "src_port"], ["tp_dst", "dst_port"]],
  icmp: [["nw_src", "src"], ["nw_dst", "dst"]],
  arp: [["arp_spa", "src"], ["arp_tpa", "dst"]],
  ip: [["nw_src", "src"], ["nw_dst", "dst"]],
};

/** Whether the protocol has ports. */
export const hasPorts = (protocol: Protocol): boolean => protocol === "tcp" || protocol === "udp";

/** IPv6 addresses make the protocol that of IPv6, and their fields those of IPv6. */
export function packetOf(protocol: Protocol, values: Values): string {
  const value = (name: string): string => (values[name] ?? "").trim();
  const six = value("src").includes(":") || value("dst").includes(":");
  const field = (name: string): string => (six ? name.replace(/^nw_/, "ipv6_") : name);
  const fields = names[protocol].filter(([, from]) => value(from) !== "").map(([name, from]) => `${field(name)}=${value(from)}`);
  const rest = [["switch", "switch"], ["in_port", "in_port"]].filter(([, from]) => value(from!) !== "").map(([name, from]) => `${name}=${value(from!)}`);
  return [six ? (protocol === "ip" ? "ipv6" : `${protocol}6`) : protocol, ...fields, ...rest, ...(value("more") ? [value("more")] : [])].join(",");
}
