// Package linkprobe examines a link between two switches, by frames that one end sends and the
// other passes to the controller. Start reading with [Direction] and [Judge].
//
// Discovery sees one small LLDP frame a second, and takes the link for sound. Some links carry
// those and lose everything larger, or all ARP, or packets that must not be fragmented, or one
// direction; some cut frames short, remove VLAN tags or add them. A [Direction] of a link
// therefore sends frames of several kinds from the smallest to one just above the MTU, repeats
// what does not arrive, searches for the largest size that does, and compares what arrives byte
// by byte. [Judge] returns the faults of a link's two directions, their places, and what to do.
//
// A Direction never sends more than [MaxFrames]. Its frames have random marks, so that nobody who
// has not seen a frame can forge its arrival. They have a source address of their own, so that a
// switch between the two ends that learns addresses never sees one address on two links.
//
// The package makes decisions and keeps state. The caller sends, receives, installs rules and
// runs timers, and must not call the methods of a Direction concurrently.
package linkprobe
