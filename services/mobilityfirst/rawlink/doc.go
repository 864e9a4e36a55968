// Package rawlink sends and receives MobilityFirst frames on one Ethernet interface, many with one
// system call, through package packetsocket. It requires CAP_NET_RAW. Start reading at [Open].
package rawlink
