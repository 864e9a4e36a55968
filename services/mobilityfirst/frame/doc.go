// Package frame encodes and decodes frames of MobilityFirst: those of the original release (profile
// mf1; thesis of 2013, chapter 3), and those that Sluice's hosts exchange (mf2, types from 16 on).
// Each has EtherType 0x27c0, then a type, then the fields of that type. All integers are
// big-endian.
//
// A [CSYN] announces a chunk, a [CACK] answers it with the frames that have been received, and
// [Data] frames carry the chunk. The first of them begins with a [RoutingHeader], followed end to
// end by a [TransportHeader]. A [Probe] and its answer measure a link; [Associate] and
// [Deassociate] attach a host to an access point and detach it; an [LSA] reports a router's links.
// Control frames carry the low 32 bits of a name, [GUID.Short].
//
// In mf2 a chunk needs no announcement: the [StreamData] frames of all chunks between two hosts are
// numbered consecutively, and a [StreamAck] acknowledges them and grants credit.
//
// Parsed values share the memory of the input. Parsers accept input from untrusted hosts: they are
// linear in its size, and allocate no more than that. Start reading at [Parse].
package frame
