// Package rawlink sends and receives MobilityFirst's frames on one Ethernet interface, many with
// one system call. It needs CAP_NET_RAW. Start reading at [Open].
package rawlink
