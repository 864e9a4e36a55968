// Package hosts keeps the table of end hosts: which MAC address in which VLAN
// stands behind which edge port, and which IP addresses it has claimed.
//
// A host is learned from any frame it sends into an edge port. Its addresses are
// learned where the protocol makes the claim the sender's own: ARP, neighbour
// discovery, and link-local IPv6 sources, which no router passes on. The source
// of any other IP packet may stand behind a router, so it counts only inside
// subnets that the operator has named, and never takes an address from another
// host.
//
// A host that is said to be elsewhere than it was, or to have lost an address to
// another, is in [Doubt]: it is asked where it was, and if it answers there the claim is
// refused. If it cannot be asked because its switch has left or come a moment ago, the claim
// waits for that. Hosts that a service keeps are where the service says.
//
// What is known of hosts outlives the table: [Table.Notes] tells what has changed, and
// [Table.Restore] makes it known in the next one.
//
// [Table.Learn] and [Table.Lookup] run for every packet-in. For a known host
// they neither allocate nor wait for one another; only changes are serialised.
package hosts
