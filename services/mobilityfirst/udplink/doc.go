// Package udplink carries frames of MobilityFirst in UDP datagrams over IPv4, between hosts that
// are not on one Ethernet.
//
// A datagram is a frame without a header before it. To a host the link looks like an Ethernet
// without broadcasts, on which each host's Ethernet address consists of its IPv4 address and its
// port ([MAC]), so that addresses need not be learned. Ports are even, because the first byte of a
// host's Ethernet address is even.
//
// Datagrams of [MTU] bytes pass on every path, and larger ones on some. None is fragmented, and the
// sender has to find out which get lost.
package udplink
