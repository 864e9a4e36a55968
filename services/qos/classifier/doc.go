// Package classifier brings packets of Open vSwitch's userspace datapath into the
// kernel's classes.
//
// The userspace datapath knows a packet's queue (set_queue), but the packet socket by
// which it sends has no place for it, so everything goes to the default class. What
// does reach the kernel is the packet itself: for a queue with a DSCP in the database
// Open vSwitch marks its packets. A Daemon beside the switch reads from the local
// database which mark is to mean which queue, and keeps a small program (cls_bpf) at the
// root of each token bucket: it looks the packet's DSCP up, gives the packet the DSCP
// back that it had before it was marked, and names the class. Then it says so in the
// database (package mark), and only then are packets marked. So no mark ever leaves the
// switch, and the next one sees the packet as the host has sent it.
//
// The controller's probes of links need no mark: the program knows them by what they are,
// and gives them the queue that the database names for them.
//
// Limits: only IPv4 and IPv6 packets, with at most one VLAN tag, can be marked; a host
// that sends a mark's DSCP itself enters the class. The marks are codepoints for local
// use.
//
// The daemon also bounds the leaves' queues. All ports of a userspace datapath share
// one send socket: were more packets to wait in one port's leaf than the socket holds,
// packets of all classes of all ports would be dropped before they reach theirs.
//
// Filters go on working without the daemon, which finds them again by the name that says
// what they do, and what it has said of them stays in the database. Within a second of
// finding one gone it takes that back or installs it again. So marks leave a switch only
// from a port that loses its filter while no daemon runs, as when the machine is
// restarted without it.
package classifier
