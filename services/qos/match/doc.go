// Package match parses descriptions of flows as operators write them and turns them into
// OpenFlow matches. Start reading at Flow.
//
// The fields have the names of OpenFlow's match fields in the form that the requests of the QoS
// dissertation use (section 4.3.1: "ipv4_src", "tcp_dst"). Numbers may be written as numbers or as
// strings, addresses with a prefix length, ports as ranges. Prerequisites that OpenFlow requires
// for a field (the ethertype for an address, the protocol for a port) follow from the field and may
// be omitted. One description becomes several matches where necessary: a range of ports is split
// into masked values, and a TCP port without an IP version matches both versions.
package match
