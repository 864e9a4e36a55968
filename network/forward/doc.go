// Package forward decides what default forwarding does with a packet and which
// rules it wants. It is pure logic: decisions are data, and nothing is sent.
//
//   - Unicast to a known host: rules along the whole path that match
//     in-port, both MAC addresses and VLAN. The in-port is part of the
//     match so that a host that has moved is seen at once: its next frame matches
//     nothing.
//   - Broadcast, multicast, unknown unicast: along the spanning tree and out of
//     edge ports. Rules carry group frames from tree port to tree port
//     ([View.BaseProgram]); only where a frame enters the network does it come up.
//   - ARP and neighbour solicitations for known addresses: answered here.
//
// [Table] remembers the flows that have rules. After any change of topology or
// hosts, [Table.Repair] says which of them have to be replaced or deleted.
package forward
