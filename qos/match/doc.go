// Package match reads descriptions of flows as operators write them and turns
// them into OpenFlow matches.
//
// The fields have the names of OpenFlow's match fields as the requests of the
// QoS dissertation use them (section 4.3.1: "ipv4_src", "tcp_dst"). Numbers may be
// written as numbers or as strings, addresses with a prefix length, ports as
// ranges. What OpenFlow wants named beside a field (the ethertype beside an
// address, the protocol beside a port) follows from it and may be left out. One
// description becomes several matches where it has to: a range of ports is split
// into masked values, and a TCP port without an IP version is meant for both.
package match
