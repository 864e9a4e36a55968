// Package content gets files by their names, from any host that has them.
//
// The name (GUID) of a file is derived from its content: the list of the hashes of its pieces
// ([Manifest]) yields a key, and the hash of the public key is the name, as for all names. So every
// host that has a file can attach its name, many at one time, and a reader can verify the file and
// each of its pieces. It needs to trust neither the hosts that have the file nor the caches on the
// way.
//
// A [Peer] requests pieces and serves them, in chunks with the services [frame.ContentRequest] and
// [frame.ContentResponse]. [Peer.Get] gets a complete file. A [Cache] keeps pieces on disk for
// later requests, and evicts the least recently requested ones.
//
// Start reading at [Manifest], then at [Peer.Get].
package content
