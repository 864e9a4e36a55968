// Package sflow reads sFlow version 5 datagrams (sflow.org/sflow_version_5.txt): the
// counters of ports, and samples of packets, that switches send by themselves.
//
// A datagram comes by UDP from whoever wants to send one. Parsing it takes no more
// memory than the datagram is long, skips what it does not know, as the
// specification asks, and ends in an error or in values that lie within the datagram.
//
// Open vSwitch adds to the counters of a port its datapath identifier and OpenFlow
// port number (format 1004); samples of packets name ports by ifIndex only, which
// the counters of the same agent translate. The ifIndex alone says nothing: it is
// that of the network namespace the switch runs in.
package sflow
