// Package sflow parses sFlow version 5 datagrams (sflow.org/sflow_version_5.txt): the counters
// of ports, and samples of packets, that switches send on their own. Start reading with
// [Datagram.Parse].
//
// A datagram arrives by UDP and may come from anybody. Parsing takes no more memory than the
// datagram is long, skips unknown formats, as the specification requires, and returns an error
// or values that lie within the datagram.
//
// Open vSwitch adds to the counters of a port its datapath identifier and OpenFlow port number
// (format 1004). Samples of packets identify ports by ifIndex only, which the counters of the
// same agent translate. An ifIndex alone is ambiguous: it belongs to the network namespace in
// which the switch runs.
package sflow
