// Package host implements a MobilityFirst host: it sends chunks from its names to others, and
// receives those for its names, over links that have no other addresses than Ethernet's.
//
// An application attaches a name ([Host.Attach]), sends chunks to other names, and receives those
// for its own ([Endpoint.Send], [Endpoint.Receive]). The host says hello for its names on each of
// its links, and asks on all of them for a path to a name for which it has chunks
// ([frame.PathRequest]). The name's host answers with a hello that the name's owner has signed for
// this request; in a network with a controller, the controller sets up a path and forwards the
// request. Between two names there is one stream in each direction (package stream), which
// continues when a path is lost and another is found. A chunk is kept, and sent when there is a
// path, until its receiver has taken it over or its time has ended.
//
// A chunk for all hosts that have a name (multicast.go) is sent in one stream to each of them.
//
// Input from links is limited per sender and in total: limits.go, memory.go and [Options] contain
// the limits. Start reading at [Host.Run], then [Endpoint.Send] and receive.go.
package host
