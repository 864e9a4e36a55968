// Package content gets files by their names, from whoever has them.
//
// A file's name (GUID) is made of what is in it: the list of the hashes of its pieces ([Manifest]) gives
// a key, and the hash of that key is the name, as with all names. So whoever has a file can attach its
// name, many at the same time, and whoever gets it can tell that it is that file, and each piece that it
// is of it. Nobody need be trusted for that, neither who has the file nor who has kept a copy on the way.
//
// A [Peer] asks for pieces and gives them, over chunks with the services [frame.ContentRequest] and
// [frame.ContentResponse]. [Peer.Get] gets all of a file. A [Cache] has pieces on disk for those who ask
// next, and forgets those that nobody has asked for longest.
//
// Start reading at [Manifest], then at [Peer.Get].
package content
