// Package frame reads and writes frames of MobilityFirst as the original release has them (profile
// mf1; thesis of 2013, chapter 3): EtherType 0x27c0, then a type, then what belongs to it. All
// integers are big-endian.
//
// A chunk is announced by a [CSYN], answered by a [CACK] that says what has come, and carried by
// [Data] frames, the first of which begins with a [RoutingHeader], and behind it, from end to end,
// a [TransportHeader]. [Probe] and its answer measure a link; [Associate] and [Deassociate] tie a
// host to a point of attachment; an [LSA] tells what a router knows of links. Control frames carry
// the low 32 bits of a name, [GUID.Short].
//
// Values that are parsed share the memory that they are parsed from. Parsers take what outsiders
// send: they are linear in its size, and allocate no more than that. Start reading at [Parse].
package frame
