// Package hostapi is how applications use a MobilityFirst host: by messages over a Unix socket, which
// [Client] sends and reads.
//
// Each message is a length (4 bytes, of what follows it), a kind (1 byte) and what belongs to the kind;
// all numbers are big-endian. An application attaches a name of which it has the key, once for each
// connection, and is told so. Then it sends chunks, each with a number of its own choice, and is told
// by that number what has become of them. Chunks for its name come with numbers of the host's, by which
// it says that it has taken them: until it does, the sender keeps them. The name is there until the
// connection ends.
//
// A chunk with the service [frame.Multicast], and no other, goes to each host that has the name, and is told to be
// sent when all of them have taken it, or with how many have not; every other goes to one of them.
//
// Either side always reads. So an application has [MaxUnderway] bytes of chunks under way at most, and the
// host brings [MaxAhead] chunks before the first of them is taken.
//
//	kind            from         what belongs to it
//	 1 attach       application  32 bytes, the seed of the Ed25519 key (RFC 8032)
//	 2 send         application  number (4), service (2), destination (20), payload
//	 3 take         application  number (4) of a chunk
//	 4 ping         application  number (4), destination (20), at most so many ms (4)
//	 5 attached     host         name (20)
//	 6 sent         host         number (4), and why not, in UTF-8; nothing if the receiver has taken it
//	 7 chunk        host         number (4), service (2), source (20), payload
//	 8 pong         host         number (4), round trip in ns (8), and why not, in UTF-8; nothing if there was an answer
//	 9 failed       host         why the connection ends, in UTF-8
//	10 refuse       application  number (4) of a chunk
package hostapi
