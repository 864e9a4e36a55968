// Package raw sends and receives whole Ethernet frames on one interface, by a
// packet socket.
//
// A packet socket sees a frame before any datapath takes it away, and needs no
// address on the interface: that is how a mobile device speaks DHCP on a
// network that it has not joined yet, and how it asks whether a gateway is
// still there.
package raw
