// Package ovs is the mobile device's datapath in Open vSwitch: a bridge whose
// own port is the VNI and whose other ports are the interfaces, with this
// package as its controller.
//
// # Rules
//
// Table 0 decides who may pass: one rule for the interface that sends, one for
// each that is received from. These few are what Use changes, in one atomic
// bundle. Every interface has two tables of its own that rewrite addresses, one
// for each direction; they stay as they are as long as the interface is
// attached. Without the daemon the switch goes on working with the rules it has.
//
// The rewriting of router solicitations is beyond OpenFlow 1.3: they come to the
// controller and leave as packet-outs. They are rare.
//
// # Why its own session
//
// The controller is a small session on the bridge's management socket and not
// the controller core (package network): the core sends LLDP probes out of every
// port and learns the hosts behind them, which a device must not do in networks
// that it visits.
//
// # Switching
//
// A bundle is atomic in the tables, but the switch's caches follow later, and
// not all at once. So Use has them emptied, and it makes two changes: first it
// sends by the new interface and listens to old and new, then it stops listening
// to the old. Nothing is lost, and what the network sends by both ways is
// delivered twice for the milliseconds between.
//
// # The userspace datapath
//
// Without the kernel module (datapath_type netdev) the kernel's own stack sees
// the interfaces' frames too, and would accept those for the VNI's address a
// second time. A table of nftables stops them at the interfaces' ingress; what
// packet sockets see, Open vSwitch among them, comes before it. Receive offload
// (GRO) is switched off as long as an interface is attached, because frames
// would grow beyond what a port takes, unless userspace TSO is enabled.
package ovs
