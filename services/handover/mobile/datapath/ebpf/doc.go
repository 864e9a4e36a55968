// Package ebpf is the mobile device's datapath in the kernel: two small tc programs, and no
// switch.
//
// One program is attached to the egress of the VNI, one to the ingress of each interface
// (bpf/datapath.c). They rewrite MAC addresses and redirect the frame, which stays in the kernel's
// own buffer: partial checksums and GSO survive, and nothing is copied. One element of one map
// holds the choice of interfaces, so a switch is one update of a map.
//
// # Design choices
//
// The programs are written in C and not assembled in Go, because loops over neighbour discovery's
// options and a hash are readable in C. bpf2go embeds the objects and generates their Go types; a test
// compiles the source again where the compiler is installed.
//
// The programs are attached by the clsact qdisc, which every kernel since 4.5 has, and stay
// attached when the daemon is killed: the device continues to work until the daemon is started again.
// The new daemon takes over the VNI with its address, and replaces the old programs by new ones.
//
// The VNI is one end of a veth pair whose other end carries nothing: every kernel with containers
// has veth, its carrier is constant, and it accepts GSO frames.
//
// # Copies
//
// A packet that the network sends to several interfaces is delivered once: from the interface that
// brought it first. A table of fingerprints (addresses, ports, identification and the start of the
// payload) counts how often each packet came by each interface. The table is kept as soon as two
// interfaces are attached, even while only one of them receives, because copies by the other one may
// come late.
//
// If an interface joins TCP segments before the programs see them (GRO), two interfaces may join
// them differently. Such copies are not recognised, and TCP drops them itself. Datagrams are not
// joined unless that is switched on.
//
// # Last segments
//
// For [Datapath.SendAgain] the last TCP segments of each connection are kept, one with payload and
// one without, as soon as there are two interfaces. They are kept in an array of 256 entries, each
// with a lock; a hash of the connection selects its entry. Of a segment that the interface still has
// to split (GSO), the last piece is kept.
//
// Start reading at [Open] and bpf/datapath.c.
package ebpf
