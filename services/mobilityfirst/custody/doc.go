// Package custody is what travels by way of storage nodes: a [Chunk] that its sender has signed whole.
//
// Whoever keeps one, and hands it on, need not be trusted: its destination sees who has sent it, that
// nothing of it was changed, and until when it holds. [Flow] is how the destination takes each once.
package custody
