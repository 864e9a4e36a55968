// Package storage is a storage node of MobilityFirst: it keeps chunks that may wait ([frame.DelayTolerant]) on
// disk, and hands each on when its destination is there and the way to it is good.
//
// A sender's host signs such a chunk (package custody) and sends it to the node's name, as it sends any
// other. The node has taken it when the disk has it: from then on a crash, or a kill, loses nothing. Until
// the destination's application has taken it, the node keeps it, or until its time is over.
//
// Nobody need trust the node: it can lose chunks, and not forge them. What senders have it keep is bounded,
// of each and in all ([Options]).
//
// Start reading at [Node.Run]. [Store] is what is on the disk, courier.go how it is handed on.
package storage
