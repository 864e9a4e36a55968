// Package access implements an access router. It serves hosts of the original release of
// MobilityFirst (profile mf1), so that they exchange chunks with names and with each other.
//
// It runs beside a host of Sluice, which it uses like an application (package hostapi). On its
// links it speaks the protocol of the original release. It answers a host's probes and accepts its
// associations. A host announces a chunk with a CSYN, sends it in DATA frames, and asks with the
// next CSYN which of them have arrived. A CACK with all bits set says that the router has the
// chunk: from then on the host may forget it, and the router keeps it until the destination has
// taken it over. Chunks for the host are sent in the same way, and taken over when the host's CACK
// has all bits set.
//
// The GUIDs of the original release prove nothing. So each host is declared, with a name and its
// key ([Host]), and the name is attached while the host is present. Between the router and other
// hosts of Sluice, the host's chunks have this name as source or destination; the router replaces
// it by the host's GUID and vice versa. The transport header, which concerns only the ends, is
// removed and created anew, so that applications of both kinds can communicate.
//
// Input from links is limited per host; a frame of an undeclared host costs one look-up in a map.
// Start reading at [Router.Run], then presence.go, gather.go and flow.go for input from a host, and
// deliver.go for output to it.
package access
