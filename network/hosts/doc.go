// Package hosts keeps the table of end hosts: the edge port at which each MAC address and VLAN
// is, and the IP addresses that it uses. Start reading with [Table.Learn].
//
// A host is learned from any frame that it sends into an edge port. Its addresses are learned
// from packets that only their owner sends: ARP, neighbour discovery, and packets with a
// link-local IPv6 source, which no router forwards. The sender of any other IP packet may be
// behind a router. Such a source address counts only inside subnets that the operator has named,
// and is never taken from another host.
//
// A frame that shows a known host at another port, or another host with its address, is a
// [Claim]. The controller asks the known host at its old place; if it answers there, the claim
// is refused. If it cannot be asked because its switch has just left or returned, the claim
// waits. Hosts that a service manages are always where the service says.
//
// The table's content survives a restart: [Table.UnsavedChanges] returns what has changed, and
// [Table.Restore] enters it into a new table.
//
// [Table.Learn] and [Table.Lookup] run for every packet-in. For a known host they neither
// allocate nor wait for each other; only changes are serialised.
package hosts
