// Package linkprobe finds out what is wrong with a link between two switches, by frames
// that one end sends and the other is to hand in.
//
// Discovery knows a link by one small LLDP frame a second, and takes it for sound. There
// are links that carry those and lose everything larger, or all ARP, or what may not be
// fragmented, or one direction; that cut frames short, and that take off VLAN tags or put
// them on. So a [Way], one direction of a link, sends frames of several kinds from the
// smallest to one just above the MTU, repeats what does not arrive, searches the largest
// that does, and compares what arrives byte by byte. [Judge] says of a link's two ways
// which faults they have, where, and what to do.
//
// A way never sends more than [MaxFrames]. What it sends bears a source address of its
// own and random marks, so that nobody who has not seen a frame can answer for it, and a
// switch between the two that learns addresses never sees one address on two links.
//
// The package decides and remembers. Sending, receiving, rules and timers are the
// caller's; it has to see to it that the methods of a way are not called concurrently.
package linkprobe
