// Package hostapi defines how applications use a MobilityFirst host: by messages over a Unix
// socket, which [Client] sends and receives.
//
// Each message consists of a length (4 bytes, of what follows it), a kind (1 byte) and the fields
// of the kind; all numbers are big-endian. An application attaches a name whose key it has, once
// for each connection, and the host confirms that. It then sends chunks, each with a number of its
// own choice, and the host reports their results by these numbers. Chunks for its name come with
// numbers of the host, by which the application takes them over; until it does, the senders keep
// them. The name is attached until the connection ends.
//
// A chunk with the service [frame.Multicast], which cannot be combined with others, goes to each
// host that has the name. It counts as sent when all of them have taken it over; otherwise the
// result says how many have not. Every other chunk goes to one host.
//
// Both sides always read. So an application may have at most [MaxUnderway] bytes of chunks in
// flight, and the host delivers [MaxAhead] chunks before the first of them is taken over.
//
//	kind            from         fields
//	 1 attach       application  32 bytes, the seed of the Ed25519 key (RFC 8032)
//	 2 send         application  number (4), service (2), destination (20), payload
//	 3 take         application  number (4) of a chunk
//	 4 ping         application  number (4), destination (20), timeout in ms (4)
//	 5 attached     host         name (20)
//	 6 sent         host         number (4), and the error in UTF-8; empty if the receiver has taken the chunk over
//	 7 chunk        host         number (4), service (2), source (20), place (8, see [Place]), payload
//	 8 pong         host         number (4), round trip in ns (8), and the error in UTF-8; empty if there was an answer
//	 9 failed       host         why the connection ends, in UTF-8
//	10 refuse       application  number (4) of a chunk
package hostapi
