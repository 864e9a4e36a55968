// Package datapath carries frames between the virtual interface of a mobile
// device and its network interfaces.
//
// Applications use only the virtual interface (VNI): it has the address, its
// own MAC address and a carrier that never drops. A network accepts only the
// MAC address of the interface that joined it. Between the two stands a
// [Datapath]: what the VNI sends leaves by one chosen interface with that
// interface's MAC address, and what comes in by a chosen interface reaches the
// VNI with the VNI's. Both Ethernet headers and the payload of ARP and of IPv6
// neighbour discovery are rewritten, so neither side ever sees the other's
// address. Which interface sends and which ones are listened to is one atomic
// change ([Datapath.Use]).
//
// handover/mobile/datapath/ebpf is one, of programs in the kernel; the daemon's own
// tests have another, which remembers what it is told.
//
// # What stays with the interface
//
// Frames that concern a link and not the address on it never reach the VNI:
// 802.1X (EAPOL), frames to the reserved group addresses 01:80:c2:00:00:0x, and
// DHCP for IPv4. The daemon speaks DHCP itself, by a packet socket on the
// interface; packet sockets see the whole traffic, and what is sent by one leaves
// unchanged.
package datapath
