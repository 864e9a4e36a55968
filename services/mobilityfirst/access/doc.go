// Package access is an access router: it serves hosts of the original release of MobilityFirst (profile
// mf1), so that they exchange chunks with names, and with each other.
//
// It stands beside a host of ours, which it uses as applications do (package hostapi). On its links it
// speaks what the original release does: it answers a host's probes, takes its associations, and chunks that
// it announces by a CSYN, sends in DATA frames and asks after by the next CSYN. A CACK with all bits says that
// the router has the chunk; from then on the host may forget it, and the router keeps it until the destination
// has taken it. Chunks for the host are announced, sent and asked after in the same way, and taken from the
// host of ours when the CACK has all bits.
//
// The GUIDs of the original release prove nothing. So each host is declared, with a name of ours and its key
// ([Host]): the name is attached while the host is there, and chunks have it as their source and destination
// outside. The host keeps its GUID, which is put in the name's place on the way. What stands between the
// ends alone, the transport header, ends here and is made anew: applications of both kinds meet.
//
// What comes from links is bounded for each host; hosts that are not declared cost a look into a map. Start
// reading at [Router.Run], then presence.go, gather.go and flow.go for what comes from a host, and deliver.go
// for what goes there.
package access
