// Package storage implements a storage node of MobilityFirst. It stores chunks that may wait
// ([frame.DelayTolerant]) on disk, and delivers each when its destination is present and the path
// to it is good.
//
// A sender's host signs such a chunk (package custody) and sends it to the node's name like any
// other chunk. The node takes the chunk over only when it is on the disk: from then on a crash or a
// kill loses nothing. It keeps the chunk until the destination's application has taken it over, or
// until the chunk has expired.
//
// Nobody has to trust the node: it can lose chunks, but not forge them. What senders may store is
// limited per sender, per place from which they send, and in total ([Options]).
//
// Start reading at [Node.Run]. [Store] holds the chunks on disk, and courier.go delivers them.
package storage
