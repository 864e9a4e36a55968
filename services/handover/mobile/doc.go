// Package mobile is the daemon of a mobile device. It keeps one address, and every connection that
// uses it, while the device goes from one network to the next.
//
// Applications use a virtual interface. The daemon gives it the address that it gets by DHCP,
// chooses which interface carries its packets, and moves them to another one when the link is
// lost, when a better interface is available, or when a user or the network asks for it. Before a
// move it gets a link and a lease on the new interface, so that the network has prepared the path.
// The move itself is one atomic change of the datapath. A device with two interfaces leaves the old
// one only after it has the lease on the new one (make before break). With one interface there is a gap
// from the loss of the old link to the lease on the new one (break before make).
//
// Each part has its own package: internal/packetsocket sends and receives frames, lease is the DHCP
// client, probe measures paths, policy chooses an interface, device changes the machine's state and
// restores it, and datapath carries the frames. This package ties them together: one goroutine (the
// loop) owns all state, and all others send it functions to run.
//
// Start reading at Run in run.go, Daemon in daemon.go, and Daemon.decide in move.go.
package mobile
