// Package custody defines the chunks that travel by way of storage nodes: a [Chunk] is signed as a
// whole by its sender.
//
// A node that stores and forwards a chunk need not be trusted: the destination can verify who has
// sent it, that it is unchanged, and until when it is valid. With [Flow] the destination takes each
// chunk once.
package custody
