// Package mobile is the daemon of a mobile device. It keeps one address, and every connection that
// uses it, while the device goes from one network to the next.
//
// Applications use a virtual interface. The daemon gives it the address that it gets by DHCP,
// chooses which interface carries its packets, and moves them to another one when the link is
// lost, when a better interface is available, or when a user or the network asks for it. Before a
// move it gets a link and a lease on the new interface, so that the network has prepared the path.
// The move itself is one atomic change of the datapath. With two interfaces the old one is left
// only then (make before break); with one there is a gap from the loss of the old link to the
// lease on the new one (break before make).
//
// Each part has its own package: raw sends and receives frames, lease is the DHCP client, probe
// measures, policy chooses, device changes the machine and restores it, datapath carries the
// frames. This package ties them together: one goroutine (the loop) owns all state, and all others
// send it functions to run.
//
// Start reading at Run in run.go, Daemon in daemon.go, and Daemon.decide in move.go.
package mobile
