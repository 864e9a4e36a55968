// Package classifier puts packets of Open vSwitch's userspace datapath into the kernel's traffic
// classes.
//
// The userspace datapath knows a packet's queue (set_queue), but the packet socket by which it
// sends cannot convey the queue, so all packets go to the default class. The kernel sees only the
// packet itself. Therefore Open vSwitch marks the packets of a queue that has a DSCP in the
// database with that DSCP. A Daemon beside the switch reads from the local database which mark
// means which queue, and keeps a small program (cls_bpf) at the root of each token bucket. The
// program looks up the packet's DSCP, restores the DSCP that the packet had before it was marked,
// and returns the class. The daemon then confirms the mark in the database (package mark), and only
// after that are packets marked. So no mark ever leaves the switch, and the next switch sees the
// packet as the host has sent it.
//
// The controller's probes of links need no mark: the program recognises them by their headers, and
// gives them the queue that the database names for them.
//
// Limits: only IPv4 and IPv6 packets, with at most one VLAN tag, can be marked. A host that sends
// packets with a mark's DSCP itself gets them into the class. The marks are codepoints for local
// use.
//
// The daemon also bounds the leaves' queues. All ports of a userspace datapath share one send
// socket. If more packets waited in one port's leaf than the socket holds, packets of all classes
// at all ports would be dropped before they reach their leaf.
//
// Filters continue to work without the daemon, and its confirmations stay in the database. The
// daemon recognises its filters by their names, which encode what they do. If a filter has gone,
// the daemon installs it again or withdraws the confirmation, within a second of noticing that. So
// marks leave a switch only from a port that loses its filter while no daemon runs, for example
// when the machine is restarted without it.
package classifier
