// Package frame reads and writes frames of MobilityFirst: those of the original release (profile
// mf1; thesis of 2013, chapter 3), and those that hosts of Sluice have between them (mf2, types from
// 16 on). Each has EtherType 0x27c0, then a type, then what belongs to it. All integers are big-endian.
//
// A chunk is announced by a [CSYN], answered by a [CACK] that says what has come, and carried by
// [Data] frames, the first of which begins with a [RoutingHeader], and behind it, from end to end,
// a [TransportHeader]. [Probe] and its answer measure a link; [Associate] and [Deassociate] tie a
// host to a point of attachment; an [LSA] tells what a router knows of links. Control frames carry
// the low 32 bits of a name, [GUID.Short].
//
// In mf2 a chunk needs no announcement: [StreamData] frames of all chunks between two hosts are
// numbered through, and answered by a [StreamAck], which gives credit.
//
// Values that are parsed share the memory that they are parsed from. Parsers take what outsiders
// send: they are linear in its size, and allocate no more than that. Start reading at [Parse].
package frame
