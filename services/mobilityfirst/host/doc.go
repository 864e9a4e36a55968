// Package host is a host of MobilityFirst: it brings chunks from its names to others, and takes those
// that come for its names, over links that have no other addresses than Ethernet's.
//
// An application attaches a name ([Host.Attach]), sends chunks to other names, and receives those for
// its own ([Endpoint.Send], [Endpoint.Receive]). The host says hello for its names on each of its
// links, and asks on all of them for the way to a name for which it has chunks ([frame.PathRequest]):
// the name's host answers, with a hello that its owner has signed for this question, or whoever makes
// ways in the network has it answer. Between two names in one direction there is one stream (package
// stream), which goes on when a way is lost and another is found. A chunk is kept, and sent when there
// is a way, until its receiver has taken it or its time is over.
//
// What goes to all hosts that have a name (multicast.go) goes in a stream to each of them.
//
// What comes from links is bounded, per sender and in all: limits.go, memory.go and [Options] say by what.
// Start reading at [Host.Run], then [Endpoint.Send] and receive.go.
package host
