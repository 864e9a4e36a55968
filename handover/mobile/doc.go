// Package mobile is the daemon of a mobile device: it keeps one address, and
// every connection on it, while the device goes from one network to the next.
//
// Applications use a virtual interface. The daemon gives it the address that it
// gets by DHCP, chooses which interface carries its packets, and moves them to
// another one when that is lost, when a better one is there, when somebody says
// so, or when the network does. Before a move it gets a link and a lease on the
// new interface, so that the network has prepared the way; the move itself is one
// atomic change of the datapath. With two interfaces the old one is left only
// then (make before break); with one there is a gap from the loss of the old
// link to the lease on the new one (break before make).
//
// The parts, each in a folder of its own: raw sends and receives frames, lease
// is the DHCP client, probe measures, policy chooses, device changes the machine
// and puts it back, datapath carries the frames. This package holds what ties
// them together: one goroutine (the loop) has all state, and everything else
// sends it functions to run.
package mobile
