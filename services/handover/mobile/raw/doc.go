// Package raw sends and receives whole Ethernet frames on one interface, by a packet socket.
//
// A packet socket receives a frame before any datapath takes it away, and needs no address on the
// interface. So a mobile device can use DHCP on a network that it has not joined yet, and probe
// whether a gateway is still reachable.
package raw
