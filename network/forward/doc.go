// Package forward decides what default forwarding does with a packet, and which rules it wants.
// It is pure logic: decisions are data, and nothing is sent. Start reading with [Table.Decide].
//
//   - Unicast to a known host: rules along the whole path that match
//     in-port, both MAC addresses and VLAN. The in-port is part of the
//     match so that a move of the source host is noticed at once: its next
//     frame matches no rule.
//   - Broadcast, multicast, unknown unicast: along the spanning tree and out of
//     edge ports. Rules forward group frames from tree port to tree port
//     ([View.BaseProgram]); only the switch where a frame enters the network
//     sends it to the controller.
//   - ARP and neighbour solicitations for known addresses: answered by the controller.
//
// [Table] remembers the flows that have rules. After a change of topology or hosts,
// [Table.Repair] returns the flows that have to be replaced or deleted.
package forward
