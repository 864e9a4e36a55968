// Package datapath holds the configuration, the counters and the checks of a datapath, which carries
// frames between the virtual interface of a mobile device and its network interfaces. Package
// services/handover/mobile/datapath/ebpf is the datapath, made of programs in the kernel.
//
// Applications use only the virtual interface (VNI): it has the address, its own MAC address and a
// carrier that never drops. A network accepts only the MAC address of the interface that joined
// it. A datapath translates between the two: frames of the VNI leave by one chosen interface
// with that interface's MAC address, and frames that come in by a chosen interface reach the VNI
// with the VNI's. It rewrites both Ethernet headers and the payload of ARP and of IPv6 neighbour
// discovery, so neither side ever sees the other's address. One atomic change (Use) sets which
// interface sends and which ones receive.
//
// # What stays with the interface
//
// Frames that concern a link and not the address on it never reach the VNI: 802.1X (EAPOL), frames
// to the reserved group addresses 01:80:c2:00:00:0x, and DHCP for IPv4. The daemon itself is the
// DHCP client, with a packet socket on the interface. Packet sockets see all traffic, and frames
// that they send leave unchanged.
package datapath
