// Package udplink carries frames of MobilityFirst in UDP datagrams over IPv4, between hosts that no Ethernet joins.
//
// A datagram is a frame, without any header before it. To a host the link looks like an Ethernet on which nobody hears
// broadcasts, and each other host's Ethernet address is its IPv4 address with its port ([MAC]): nothing has to be
// learned or remembered of any. As an Ethernet address of one host is even in its first byte, ports are even.
//
// Datagrams of [MTU] bytes pass on every way, larger ones where they do: none is cut up on its way, and what gets lost is for
// who sends to find out.
package udplink
