// Package ebpf is the mobile device's datapath in the kernel: two small programs
// of tc, and no switch.
//
// One program stands at the egress of the VNI, one at the ingress of each
// interface (bpf/datapath.c). They rewrite MAC addresses and redirect the frame,
// which stays the kernel's own buffer all the way: partial checksums and GSO
// survive, and nothing is copied. One element of one map holds the choice of
// interfaces, so a switch is one update of a map.
//
// # Choices
//
// The programs are C and not assembled in Go: loops over neighbour discovery's
// options and a hash are readable there. The object is embedded and a test
// compiles the source again where the compiler is installed.
//
// They are attached by the clsact qdisc, which every kernel since 4.5 has, and
// stay attached when the daemon is killed: the device goes on working until the
// daemon is back, which then takes over the VNI with the address on it, and puts
// new programs in the place of the old ones.
//
// The VNI is one end of a veth pair whose other end carries nothing: every
// kernel with containers has veth, its carrier is constant, and it takes GSO
// frames.
//
// # Copies
//
// A packet that the network sends to several interfaces is delivered once: from
// the one that brought it first. A table of fingerprints (addresses, ports,
// identification and the start of the payload) counts how often each packet came
// by each interface. It is kept as soon as two interfaces are attached, also
// while only one is received from: the copies by the next one may come late.
//
// Where an interface joins TCP segments before the programs see them (GRO), two
// interfaces may join them differently; such copies are not recognised, and TCP
// drops them itself. Datagrams are not joined unless that is switched on.
//
// # What was sent last
//
// For [Datapath.SendAgain] the last TCP segment of each connection is kept, one with
// payload and one without, as soon as there are two interfaces: in an array of 256
// places, each with a lock, where a connection has its place by a hash. A segment that
// an interface is still to cut is kept by its last piece.
package ebpf
